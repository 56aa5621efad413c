"""Operator actions on queues: list, pause, resume. Tasks and tenants are paused the same way."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sereno.access import audit
from sereno.access.actor import default_actor
from sereno.database.statement import Operation, Row
from sereno.jobs import pauses
from sereno.jobs import queries as job_queries
from sereno.jobs.pauses import PauseKind
from sereno.jobs.rows import BOUND, Count, PauseRow


@dataclass(frozen=True, slots=True)
class QueueLine:
    """A queue with its job counts and workers. `oldest_seconds`: how long its oldest ready job has been due."""

    queue: str
    scheduled: Count
    ready: Count
    running: Count
    finished_last_minute: Count
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


def pause(
    kind: PauseKind, name: str, *, note: str | None = None, actor: str | None = None, by_tenant: bool = False
) -> Operation[bool]:
    """Stop starting its jobs; running jobs continue. Returns False when it was paused already.

    `by_tenant`: a user of the paused tenant pauses it, and may also resume it.
    """
    who = actor or default_actor()
    changed = yield from pauses.pause(kind, name, who, note, by_tenant=by_tenant)
    if changed:
        yield from audit.audit(who, f"{kind}.pause", f"{kind} {name}", {"note": note})
    return changed


def resume(kind: PauseKind, name: str, *, actor: str | None = None, by_tenant: bool = False) -> Operation[bool]:
    """Start its jobs again. Returns False if it was not paused. `by_tenant`: only if the tenant's users paused it."""
    changed = yield from pauses.resume(kind, name, by_tenant=by_tenant)
    if changed:
        yield from audit.audit(actor or default_actor(), f"{kind}.resume", f"{kind} {name}", {})
    return changed


def _line(row: Row) -> QueueLine:
    queue, scheduled, more_scheduled, ready, running, finished, oldest, slots, workers, *paused = row
    return QueueLine(
        queue,
        Count(min(scheduled, BOUND), not more_scheduled),
        Count.bounded(ready),
        Count.bounded(running),
        Count(finished, finished < BOUND),
        oldest,
        slots,
        workers,
        *paused,
    )
