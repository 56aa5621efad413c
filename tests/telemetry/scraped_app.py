"""The application whose metrics are scraped: a task that returns counts, and an event by push and inbox."""

import os
from dataclasses import dataclass
from typing import TypedDict

from sereno import Content, Context, Recipient, Sereno, in_app
from sereno.channels.expo import Expo

app = Sereno()


class Counts(TypedDict):
    """What a run of `ingest` found."""

    found: int
    new: int
    note: str


@dataclass(frozen=True)
class Order:
    """The payload of the event."""

    number: int


class QuickExpo(Expo):
    """Requests receipts at once."""

    receipts_after = 0.2


ready = app.event("order.ready", Order, channels=[QuickExpo(url=os.environ.get("TEST_EXPO", "")), in_app])


@ready.template()
def _(order: Order, to: Recipient) -> Content:
    return Content("Ready", f"Order {order.number} for {to.key}")


@app.task
async def ingest(found: int, new: int) -> Counts:
    return {"found": found, "new": new, "note": "x"}


@app.task
def ingest_in_transaction(ctx: Context, found: int) -> Counts | None:
    with ctx.transaction():
        ctx.set_result({"found": found, "new": 1, "note": "x"})
    return None


@app.task(isolate=True)
def ingest_alone(found: int) -> Counts:
    return {"found": found, "new": 0, "note": "x"}


@app.task
async def plain(found: int) -> dict[str, int]:
    return {"found": found}
