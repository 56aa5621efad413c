"""The application of the storm. Every handler writes its begin and its end to the journal of its process."""

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from sereno import Backoff, Content, Context, LeaseLost, Limit, Rate, Recipient, Retry, Sereno, Snooze
from tests.faults.notified_app import Carrier, Offer
from tests.storm.journal import (
    DIRECTORY,
    WORKER,
    Journal,
    ResultsSeen,
    RunBegan,
    RunEnded,
    SignalReceived,
    StepRan,
    now,
)

app = Sereno()
# Seconds until an attempt that met a fault of the database is repeated.
AFTER_ERROR = 0.2
PATIENT = Backoff(20, delays=[AFTER_ERROR], jitter=0)
# A frozen process is replaced after the timeout of its jobs.
TIMEOUT = "5s"

SLOTS_OF_AN_ACCOUNT = 2
SLOTS_OF_THE_QUEUE = 4
STARTS_A_SECOND = 40
BURST = 5
STEPS = 3
# Items of an iteration, and those that one transaction commits.
ITEMS, COMMIT_EVERY = 12, 3

app.queue("narrow", concurrency=Limit(SLOTS_OF_THE_QUEUE))
offer_made = app.event("offer.made", Offer, channels=[Carrier()], category="offers")
_journal = Journal(Path(os.environ.get(DIRECTORY, ".")), os.environ.get(WORKER, ""))


@offer_made.template()
def render(offer: Offer, to: Recipient) -> Content:
    return Content(f"{offer.code} for {to.key}")


@asynccontextmanager
async def logged(ctx: Context, key: str = "") -> AsyncIterator[None]:
    """Write the begin and the end of an attempt, both while it holds its slots."""
    fire = None if ctx.fire is None else (ctx.fire.schedule_id, ctx.fire.at.isoformat())
    claimed = ctx.claimed_at.timestamp()
    _journal.write(RunBegan(ctx.job_id, ctx.attempt, ctx.task, key, claimed, now(), fire))
    outcome, delay = "retry", AFTER_ERROR
    try:
        yield
        outcome, delay = "ok", 0.0
    except Retry as retry:
        delay = retry.after or 0.0
        raise
    except Snooze:
        # It waits for a signal, which may be there already.
        outcome, delay = "waits", 0.0
        raise
    except asyncio.CancelledError:
        outcome = "cancelled"
        raise
    except LeaseLost:
        outcome = "lost"
        raise
    finally:
        _journal.write(RunEnded(ctx.job_id, ctx.attempt, outcome, delay, now(), time.time()))


@app.task(queue="work", retry=PATIENT, timeout=TIMEOUT)
async def plain(ctx: Context, n: int) -> None:
    async with logged(ctx):
        await asyncio.sleep(random.uniform(0, 0.03))


@app.task(queue="work", retry=PATIENT, timeout=TIMEOUT)
async def flaky(ctx: Context, n: int) -> None:
    """Fail up to two times, and ask for different delays."""
    async with logged(ctx):
        if ctx.failures < n % 3:
            raise Retry("it fails at first", after=0.05 + n % 7 * 0.15)


@app.task(queue="work", retry=PATIENT, timeout=TIMEOUT)
async def counted(ctx: Context, n: int) -> None:
    async with logged(ctx), ctx.transaction() as connection:
        await connection.execute("insert into effects (job, attempt) values (%s, %s)", [ctx.job_id, ctx.attempt])


@app.task(queue="work", retry=PATIENT, timeout=TIMEOUT)
async def in_steps(ctx: Context, n: int) -> None:
    def step(number: int) -> int:
        _journal.write(StepRan(ctx.job_id, ctx.attempt, number))
        return n + number

    async with logged(ctx):
        for number in range(STEPS):
            assert await ctx.step(f"step {number}", step, number) == n + number


@app.task(queue="work", retry=PATIENT, timeout=TIMEOUT, concurrency=Limit(SLOTS_OF_AN_ACCOUNT, key="{account}"))
async def two_at_once(ctx: Context, account: str, n: int) -> None:
    async with logged(ctx, account):
        await asyncio.sleep(random.uniform(0.005, 0.03))


@app.task(queue="work", retry=PATIENT, timeout=TIMEOUT, order_key="{account}", dead_blocks=True)
async def in_order(ctx: Context, account: str, n: int) -> None:
    async with logged(ctx, account):
        await asyncio.sleep(random.uniform(0.001, 0.01))


@app.task(queue="work", retry=PATIENT, timeout=TIMEOUT, rate=Rate(STARTS_A_SECOND, name="provider", burst=BURST))
async def rated(ctx: Context, n: int) -> None:
    async with logged(ctx):
        pass


@app.task(queue="narrow", retry=PATIENT, timeout=TIMEOUT)
async def narrow(ctx: Context, n: int) -> None:
    async with logged(ctx):
        await asyncio.sleep(random.uniform(0.001, 0.01))


@app.task(queue="work", retry=PATIENT, timeout=TIMEOUT)
async def cancelled_in_bulk(ctx: Context, n: int) -> None:
    """Planned for a time that never comes: a bulk operation cancels it."""
    async with logged(ctx):
        pass


@app.task(queue="work", retry=PATIENT, timeout=TIMEOUT)
async def fired(ctx: Context) -> None:
    async with logged(ctx):
        pass


@app.task(queue="work", retry=PATIENT, timeout=TIMEOUT)
async def member(ctx: Context, key: str, n: int) -> int:
    """A job of a group."""
    async with logged(ctx, key):
        await asyncio.sleep(random.uniform(0, 0.02))
    return 2 * n


@app.task(queue="work", retry=PATIENT, timeout=TIMEOUT)
async def gathered(ctx: Context, key: str) -> None:
    """The job after a group. Its effect commits with its success."""
    async with logged(ctx, key):
        _journal.write(ResultsSeen(ctx.job_id, ctx.attempt, await ctx.results(), time.time()))
        async with ctx.transaction() as connection:
            await connection.execute("insert into effects (job, attempt) values (%s, %s)", [ctx.job_id, ctx.attempt])


@app.task(queue="work", retry=PATIENT, timeout=TIMEOUT)
async def link(ctx: Context, key: str, n: int) -> int:
    """A job of a chain: each waits for the one before."""
    async with logged(ctx, key):
        _journal.write(ResultsSeen(ctx.job_id, ctx.attempt, await ctx.results(), time.time()))
    return 2 * n


@app.task(queue="work", retry=PATIENT, timeout=TIMEOUT)
async def signalled(ctx: Context, name: str) -> None:
    async with logged(ctx, name):
        value = await ctx.wait_for(name, type=int)
        _journal.write(SignalReceived(ctx.job_id, ctx.attempt, name, value))


@app.task(queue="work", retry=PATIENT, timeout=TIMEOUT)
async def iterated(ctx: Context, n: int) -> None:
    async with logged(ctx):
        async for batch in ctx.iterate("items", list(range(ITEMS)), commit_every=COMMIT_EVERY).batches():
            async with batch.transaction() as connection:
                for item in batch:
                    await connection.execute("insert into items (job, item) values (%s, %s)", [ctx.job_id, item])
