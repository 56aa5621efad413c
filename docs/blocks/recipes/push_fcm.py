import asyncio
import json
from dataclasses import dataclass
from pathlib import Path

from sereno import Sereno
from sereno.channels.fcm import FCM
from sereno.testing.fcm import FCMProvider

app = Sereno()


@dataclass
class OrderReady:
    number: int


async def main() -> None:
    async with FCMProvider() as fcm_here:
        Path("service-account.json").write_text(json.dumps(fcm_here.account))
        # the block of the page
        async with app.working():
            await order_ready.anotify(OrderReady(7), subject="7", to="ada")
            while (await order_ready.astatus("7")).deliveries != {"sent": 1}:
                await asyncio.sleep(0.05)
        assert [message["data"] for message in fcm_here.sent] == [{"number": "7"}]
    await app.aclose()


asyncio.run(main())
