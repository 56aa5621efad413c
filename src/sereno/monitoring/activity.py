"""Current activity: attempts by worker, and jobs that arrived and ended by queue."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sereno.bounded_count import BOUND, BoundedCount
from sereno.database.statement import Operation, Statement, queries

_sql = queries("monitoring/activity")

# Newest rows that are searched for attempts that have ended.
WINDOW = 5000


@dataclass(frozen=True, slots=True)
class WorkRow:
    """One attempt of one worker. `outcome` is "running" for one that has not ended."""

    session: int
    job: int
    attempt: int
    task: str
    outcome: str
    started_at: datetime
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class MinuteRow:
    """Attempts that ended within one minute, by outcome."""

    at: datetime
    succeeded: int
    retried: int
    dead: int
    cancelled: int


def work(seconds: float, most: int) -> Operation[list[WorkRow]]:
    """Return running attempts, then those that ended within `seconds`, newest first."""
    rows = yield Statement(_sql["work"], {"seconds": seconds, "most": most, "window": WINDOW})
    return [WorkRow(*row) for row in rows]


def arrived(seconds: float) -> Operation[dict[str, BoundedCount]]:
    """Return the number of jobs created within `seconds`, by queue."""
    rows = yield Statement(_sql["arrived"], {"seconds": seconds, "bound": BOUND})
    return {queue: BoundedCount(count, not more) for queue, count, more in rows}


def ended(queues: Sequence[str], seconds: float) -> Operation[dict[str, list[MinuteRow]]]:
    """Return the minutes of each queue; minutes in which no attempt ended are left out."""
    found: dict[str, list[MinuteRow]] = {}
    for queue, *line in (yield Statement(_sql["ended"], {"queues": list(queues), "seconds": seconds})):
        found.setdefault(queue, []).append(MinuteRow(*line))
    return found
