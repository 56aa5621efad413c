"""Queries for `why`: the limiters, the lane and the order of a job."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sereno.bounded_count import BOUND, BoundedCount
from sereno.database.statement import Operation, Statement, queries

_sql = queries("jobs/limits/why_queries")

# Slot holders that are listed.
NAMED = 3


@dataclass(frozen=True, slots=True)
class SlotHolder:
    """A running job that holds a slot."""

    id: int
    task: str
    seconds: float
    session: int


@dataclass(frozen=True, slots=True)
class LimiterState:
    """One limit with the key of one job. `of_queue`: it applies to all jobs of the queue.

    `kind`: slots, rate, unknown, or given (it comes with the job and no worker has stored it yet). `is_awaited`: the
    job's lane waits for it. `check_in`: seconds until the waiting lanes are checked. `running`: slots in use.
    `claimed`: the jobs that use them; more than `running` if some share slots. `first`: some of the slot holders.
    """

    name: str
    key: str
    cost: int
    of_queue: bool
    kind: str
    slots: int | None
    units: float | None
    period: float | None
    burst: float | None
    tokens: float | None
    closed_until: datetime | None
    check_in: float | None
    is_awaited: bool
    running: int
    claimed: int
    first: Sequence[SlotHolder]


@dataclass(frozen=True, slots=True)
class LaneState:
    """The place of a job among those with the same keys, and of its lane among others.

    `lanes_ahead`: other lanes that have their turn first. `keys_ahead`: their fair keys.
    """

    ahead: BoundedCount
    lanes_ahead: BoundedCount
    fair: str | None
    weight: float
    keys_ahead: BoundedCount
    next_key: str | None


@dataclass(frozen=True, slots=True)
class OrderState:
    """The order that a job belongs to. Only its head may run."""

    key: str
    head: int
    head_task: str
    head_state: str
    head_seconds: float | None
    head_run_at: datetime
    head_session: int | None
    before: BoundedCount
    behind: BoundedCount
    dead: int | None
    dead_task: str | None


def limiters(job_id: int) -> Operation[list[LimiterState]]:
    """Return the limiters of a live job, those of its queue included."""
    rows = yield Statement(_sql["limiters"], {"id": job_id, "most": NAMED, "bound": BOUND})
    return [replace(LimiterState(*row), first=[SlotHolder(*each) for each in row[-1]]) for row in rows]


def lane(job_id: int) -> Operation[LaneState | None]:
    rows = yield Statement(_sql["lane"], {"id": job_id, "bound": BOUND})
    if not rows:
        return None
    ahead, lanes_ahead, fair, weight, keys_ahead, next_key = rows[0]
    return LaneState(
        BoundedCount.bounded(ahead),
        BoundedCount.bounded(lanes_ahead),
        fair,
        weight,
        BoundedCount.bounded(keys_ahead),
        next_key,
    )


def order(job_id: int) -> Operation[OrderState | None]:
    """Return the order of a job; None when it has no order key."""
    rows = yield Statement(_sql["order"], {"id": job_id, "bound": BOUND})
    if not rows:
        return None
    key, head, task, state, seconds, run_at, session, before, behind, dead, dead_task = rows[0]
    counts = BoundedCount.bounded(before), BoundedCount.bounded(behind)
    return OrderState(key, head, task, state, seconds, run_at, session, *counts, dead, dead_task)
