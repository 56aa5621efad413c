"""Queues with their job counts and workers, and what is paused."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sereno.bounded_count import BOUND, BoundedCount
from sereno.database.statement import Operation, Row
from sereno.jobs.queries import jobs as job_queries
from sereno.jobs.queries.carriers import CarrierLine, list_carriers
from sereno.jobs.queries.rows import PauseRow


@dataclass(frozen=True, slots=True)
class QueueLine:
    """A queue with its job counts and workers. `waiting`: jobs that wait for other jobs.

    `oldest_seconds`: how long its oldest ready job has been due. `carrier`: what is outside of PostgreSQL; null for a
    queue without a carrier.
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
    carrier: CarrierLine | None = None

    @property
    def is_paused(self) -> bool:
        return self.paused_at is not None


def list_queues() -> Operation[list[QueueLine]]:
    """Return every queue that has jobs, a worker, a pause or a carrier."""
    rows = yield from job_queries.queue_rows()
    carriers = {line.queue: line for line in (yield from list_carriers())}
    return [_line(row, carriers.get(row[0])) for row in rows]


def list_pauses(names: Collection[str] | None = None) -> Operation[list[PauseRow]]:
    """Return at most 1,000 pauses of queues, tasks and tenants. `names`: only these."""
    return job_queries.pauses(names)


def _line(row: Row, carrier: CarrierLine | None) -> QueueLine:
    queue, waiting, scheduled, more_scheduled, ready, running, finished, oldest, slots, workers, *others = row
    paused_at, paused_by, note = others
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
        paused_at,
        paused_by,
        note,
        carrier,
    )
