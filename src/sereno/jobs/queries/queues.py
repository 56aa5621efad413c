"""Queues with their job counts and workers, and what is paused."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sereno.bounded_count import BOUND, BoundedCount
from sereno.database.statement import Operation, Row
from sereno.jobs.queries import jobs as job_queries
from sereno.jobs.queries.rows import PauseRow


@dataclass(frozen=True, slots=True)
class QueueLine:
    """A queue with its job counts and workers. `waiting`: jobs that wait for other jobs.

    `oldest_seconds`: how long its oldest ready job has been due.
    """

    queue: str
    waiting: BoundedCount
    scheduled: BoundedCount
    ready: BoundedCount
    running: BoundedCount
    finished_last_minute: BoundedCount
    oldest_seconds: float | None
    slots: int
    workers: int
    paused_at: datetime | None
    paused_by: str | None
    note: str | None

    @property
    def is_paused(self) -> bool:
        return self.paused_at is not None


def list_queues() -> Operation[list[QueueLine]]:
    """Return every queue that has jobs, a worker or a pause."""
    rows = yield from job_queries.queue_rows()
    return [_line(row) for row in rows]


def list_pauses(names: Collection[str] | None = None) -> Operation[list[PauseRow]]:
    """Return at most 1,000 pauses of queues, tasks and tenants. `names`: only these."""
    return job_queries.pauses(names)


def _line(row: Row) -> QueueLine:
    queue, waiting, scheduled, more_scheduled, ready, running, finished, oldest, slots, workers, *paused = row
    return QueueLine(
        queue,
        BoundedCount.bounded(waiting),
        BoundedCount(min(scheduled, BOUND), not more_scheduled),
        BoundedCount.bounded(ready),
        BoundedCount.bounded(running),
        BoundedCount(finished, finished < BOUND),
        oldest,
        slots,
        workers,
        *paused,
    )
