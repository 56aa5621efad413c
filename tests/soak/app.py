"""The application of the soak, which its worker, scheduler and server load: tasks of every kind, and one event."""

import os
from dataclasses import dataclass

from bench.notify_app import LocalExpo
from sereno import Backoff, Content, Context, Limit, Rate, Recipient, Sereno, in_app
from sereno.worker.maintenance import duties

# Seconds. An hour of the moved clock takes seconds, so that each process has to check more often what is due.
duties.CHECK_EVERY = 0.25

TENANTS = ("north", "south", "east", "west")

app = Sereno()
app.channels.accounts["expo"] = {"url": os.environ.get("SOAK_PROVIDER", "")}
app.queue("fair", fair_key="{tenant}")


@dataclass(frozen=True)
class Price:
    """The payload of the event."""

    code: str
    amount: int


price_changed = app.event("price.changed", Price, channels=[LocalExpo(), in_app], category="prices")


@price_changed.template()
def _(price: Price, to: Recipient) -> Content:
    return Content(f"Price of {price.code}", f"{price.amount:,} for {to.key}")


@app.task(queue="work")
async def plain(n: int) -> None:
    """Succeeds."""


@app.task(queue="work", retry=Backoff(3, delays=["10m"], jitter=0))
async def fails_once(ctx: Context, n: int) -> None:
    if ctx.failures == 0:
        raise RuntimeError(f"the first attempt at {n} fails")


@app.task(queue="work", retry=Backoff(2, delays=["5m"], jitter=0))
async def always_fails(n: int) -> None:
    raise ValueError(f"number {n} is never right")


@app.task(queue="work", concurrency=Limit(2, key="{account}"))
async def two_at_once(account: str, n: int) -> None:
    """Runs at most twice at once for each account."""


@app.task(queue="work", order_key="{account}")
async def in_order(account: str, n: int) -> None:
    """Runs one after another for each account."""


@app.task(queue="work", rate=Rate(5_000, per="1s", key="{account}"))
async def rated(account: str, n: int) -> None:
    """Has a rate for each account."""


@app.task(queue="fair")
async def in_turn(n: int) -> None:
    """Takes turns with other tenants."""


@app.task(queue="work")
async def with_step(ctx: Context, n: int) -> None:
    """Stores a step and its progress, which are deleted with the job."""
    await ctx.step("first", lambda: n)
    ctx.progress(0.5, "half")


@app.task(queue="paused")
async def waits_for_resume(n: int) -> None:
    """Waits while its queue is paused."""


@app.task(queue="work")
async def reconcile(n: int) -> None:
    """The job of the schedules."""
