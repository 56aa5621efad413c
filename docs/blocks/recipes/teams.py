import asyncio
from dataclasses import dataclass
from functools import partial

from sereno import Sereno
from sereno.channels import teams as teams_channel
from sereno.testing.chats import TeamsProvider

app = Sereno()


@dataclass
class OrderReady:
    number: int


async def main() -> None:
    async with TeamsProvider() as teams_here:
        Teams = partial(teams_channel.Teams, url=teams_here.url)
        url = teams_here.address
        # the block of the page
        async with app.working():
            await order_ready.anotify(OrderReady(7), subject="7", to="kitchen")
            while (await order_ready.astatus("7")).deliveries != {"sent": 1}:
                await asyncio.sleep(0.05)
        assert len(teams_here.sent) == 1
    await app.aclose()


asyncio.run(main())
