"""The application of the limits fault test. Every handler writes its start and end to a log of its process."""

import asyncio
import json
import os
import random
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from sereno import Backoff, Context, Limit, Rate, Sereno

app = Sereno()
QUICK = Backoff(8, delays=["50ms"], jitter=0)

SLOTS_OF_AN_ACCOUNT = 2
SLOTS_OF_THE_QUEUE = 4
STARTS_A_SECOND = 10
BURST = 2

# Two tasks of two queues share it, because both name it.
PROVIDER = Rate(STARTS_A_SECOND, name="provider", burst=BURST)

app.queue("narrow", concurrency=Limit(SLOTS_OF_THE_QUEUE))


def note(event: str, ctx: Context, key: str) -> None:
    """Append one line in one write, to a file of this process only: it survives a kill."""
    line = {
        "event": event,
        "at": time.monotonic_ns(),
        "pid": os.getpid(),
        "job": ctx.job_id,
        "attempt": ctx.attempt,
        "task": ctx.task,
        "queue": ctx.queue,
        "key": key,
        "claimed": ctx.claimed_at.timestamp(),
        "alone": Path(sys.argv[0]).stem == "isolated",
    }
    path = f"{os.environ['TEST_LOG']}.{os.getpid()}.events"
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.write(descriptor, json.dumps(line).encode() + b"\n")
    os.close(descriptor)


@asynccontextmanager
async def logged(ctx: Context, key: str, n: int) -> AsyncIterator[None]:
    """Log start and end, and sleep for a moment; every seventh job fails once."""
    note("begin", ctx, key)
    try:
        yield
        await asyncio.sleep(random.uniform(0.01, 0.15))
        if n % 7 == 3 and ctx.failures == 0:
            raise RuntimeError("every seventh fails once")
    finally:
        note("end", ctx, key)


@app.task(queue="wide", retry=QUICK, concurrency=Limit(SLOTS_OF_AN_ACCOUNT, key="{account}"))
async def two_at_once(ctx: Context, account: str, n: int) -> None:
    async with logged(ctx, account, n):
        pass


@app.task(queue="wide", retry=QUICK, rate=PROVIDER)
async def calls_the_provider(ctx: Context, n: int) -> None:
    async with logged(ctx, "", n):
        pass


@app.task(queue="narrow", retry=QUICK, rate=PROVIDER)
async def calls_the_provider_too(ctx: Context, n: int) -> None:
    async with logged(ctx, "", n):
        pass


@app.task(queue="wide", retry=QUICK, order_key="{account}")
async def in_order(ctx: Context, account: str, n: int) -> None:
    async with logged(ctx, account, n):
        pass


@app.task(queue="wide", retry=QUICK, fair_key="{customer}")
async def in_turn(ctx: Context, customer: str, n: int) -> None:
    async with logged(ctx, customer, n):
        pass


@app.task(queue="narrow", retry=QUICK)
async def under_the_limit_of_its_queue(ctx: Context, n: int) -> None:
    async with logged(ctx, "", n):
        pass


@app.task(queue="wide", retry=QUICK)
async def plain(ctx: Context, n: int) -> None:
    async with logged(ctx, "", n):
        pass
