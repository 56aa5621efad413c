"""An application whose jobs emit chunks until they have emitted all of them."""

import asyncio
import time

from sereno import Backoff, Context, Sereno

CHUNKS = 150
# Seconds of work between two chunks.
WORK = 0.02

app = Sereno()


@app.task(retry=Backoff(20, first="1s", jitter=0))
async def talks(ctx: Context) -> None:
    for number in range(CHUNKS):
        ctx.emit([ctx.attempt, number])
        await asyncio.sleep(WORK)


@app.task(retry=Backoff(20, first="1s", jitter=0))
def talks_in_a_thread(ctx: Context) -> None:
    for number in range(CHUNKS):
        ctx.emit([ctx.attempt, number])
        time.sleep(WORK)


@app.task(isolate=True, retry=Backoff(20, first="1s", jitter=0))
async def talks_alone(ctx: Context) -> None:
    for number in range(CHUNKS):
        ctx.emit([ctx.attempt, number])
        await asyncio.sleep(WORK)
