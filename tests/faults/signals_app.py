"""The application of the signals fault test: orders that wait for their payment."""

import asyncio
import random

from sereno import Backoff, Context, Sereno

app = Sereno()


async def reserve() -> None:
    await asyncio.sleep(random.uniform(0.01, 0.1))


@app.task(queue="work", retry=Backoff(8, delays=["50ms"], jitter=0))
async def order(ctx: Context, n: int) -> None:
    await ctx.step("reserve", reserve)
    amount = await ctx.wait_for(f"paid:{n}", timeout="1h", type=int)
    await ctx.step("pack", reserve)
    async with ctx.transaction() as connection:
        await connection.execute("insert into effects values (%s, %s)", [n, amount])
