import asyncio
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sereno import Sereno
from sereno.channels import apns as apns_channel
from sereno.testing.apns import APNsProvider

app = Sereno()


@dataclass
class OrderShipped:
    number: int


async def main() -> None:
    async with APNsProvider() as apple_here:
        APNs = partial(apns_channel.APNs, url=apple_here.url)
        Path("AuthKey_ABC123DEFG.p8").write_text(apple_here.account["private_key"])
        # the block of the page
        async with app.working():
            await order_shipped.anotify(OrderShipped(7), subject="7", to="ada")
            while (await order_shipped.astatus("7")).deliveries != {"sent": 1}:
                await asyncio.sleep(0.05)
        assert [message["number"] for message in apple_here.sent] == [7]
    await app.aclose()


asyncio.run(main())
