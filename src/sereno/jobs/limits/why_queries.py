"""What stands between a job and its start when there are limits: its limiters, its lane, its order."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sereno.database.statement import Operation, Statement, queries
from sereno.jobs.rows import BOUND, Count

_sql = queries("jobs/limits/why_queries")

# So many of those who hold a slot are named.
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
    """One limit with the key of one job. `of_queue`: it holds for all jobs of the queue.

    `kind`: slots, rate, unknown, or given (it comes with the job and nobody has read it yet). `is_awaited`: the job's
    lane waits for it. `look_in`: seconds until somebody looks at those who wait. `running`: slots in use. `claimed`:
    the jobs that use them; more than that, if some take turns. `first`: some of those who are in.
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
    look_in: float | None
    is_awaited: bool
    running: int
    claimed: int
    first: Sequence[SlotHolder]


@dataclass(frozen=True, slots=True)
class LaneState:
    """Where a job stands among those with the same keys, and whose turn it is.

    `lanes_ahead`: jobs with other keys, taken together by their keys, that have their turn first. `keys_ahead`: other
    fair keys.
    """

    ahead: Count
    lanes_ahead: Count
    fair: str | None
    weight: float
    keys_ahead: Count
    next_key: str | None


@dataclass(frozen=True, slots=True)
class OrderState:
    """The order that a job stands in. The head is the only one that may run."""

    key: str
    head: int
    head_task: str
    head_state: str
    head_seconds: float | None
    head_run_at: datetime
    head_session: int | None
    before: Count
    behind: Count
    dead: int | None
    dead_task: str | None


def limiters(job_id: int) -> Operation[list[LimiterState]]:
    """What a live job passes, also if it carries no key and only its queue has limits."""
    rows = yield Statement(_sql["limiters"], {"id": job_id, "most": NAMED, "bound": BOUND})
    return [replace(LimiterState(*row), first=[SlotHolder(*each) for each in row[-1]]) for row in rows]


def lane(job_id: int) -> Operation[LaneState | None]:
    rows = yield Statement(_sql["lane"], {"id": job_id, "bound": BOUND})
    if not rows:
        return None
    ahead, lanes_ahead, fair, weight, keys_ahead, next_key = rows[0]
    return LaneState(
        Count.bounded(ahead), Count.bounded(lanes_ahead), fair, weight, Count.bounded(keys_ahead), next_key
    )


def order(job_id: int) -> Operation[OrderState | None]:
    """None when it has no order key."""
    rows = yield Statement(_sql["order"], {"id": job_id, "bound": BOUND})
    if not rows:
        return None
    key, head, task, state, seconds, run_at, session, before, behind, dead, dead_task = rows[0]
    counts = Count.bounded(before), Count.bounded(behind)
    return OrderState(key, head, task, state, seconds, run_at, session, *counts, dead, dead_task)
