"""What a person may see: read operations for the command line, the HTTP API and the dashboard."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sereno.store.filters import JobFilter
from sereno.store.statement import Operation, Row, Statement, queries

_sql = queries("insight")

# No list counts further than this; what is behind it is shown as "more than".
BOUND = 10_000


@dataclass(frozen=True, slots=True)
class Count:
    """A number that was counted up to a bound; when it is not exact, there are at least this many."""

    value: int
    exact: bool = True

    @classmethod
    def bounded(cls, found: int, bound: int = BOUND) -> "Count":
        return cls(min(found, bound), found <= bound)

    def __str__(self) -> str:
        if self.exact:
            return f"{self.value:,}"
        return f">{self.value:,}" if self.value >= BOUND else f"≥{self.value:,}"


@dataclass(frozen=True, slots=True)
class JobLine:
    """A job as a list shows it."""

    id: int
    state: str
    task: str
    queue: str
    tenant: str | None
    priority: int
    attempt: int
    failures: int
    run_at: datetime
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    unique_key: str | None
    tags: Sequence[str] | None
    reason: str | None
    error_type: str | None
    error_message: str | None


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job with everything that its own row holds, live or finished."""

    id: int
    state: str
    task: str
    queue: str
    tenant: str | None
    priority: int
    attempt: int
    failures: int
    crashes: int
    snoozes: int
    releases: int
    run_at: datetime
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    expires_at: datetime | None
    cancel_requested: bool
    unique_key: str | None
    tags: Sequence[str] | None
    trace: str | None
    args: Mapping[str, Any]
    reason: str | None
    error_type: str | None
    error_message: str | None
    traceback: str | None
    session_id: int | None
    host: str | None
    pid: int | None
    ready_seq: int | None


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One try. `outcome` is "running" for the one that has not ended."""

    number: int
    session_id: int | None
    started_at: datetime
    finished_at: datetime | None
    outcome: str
    reason: str | None
    error_type: str | None
    error_message: str | None
    traceback: str | None


@dataclass(frozen=True, slots=True)
class StepRow:
    """A step that is done for good."""

    name: str
    attempt: int
    result: Any
    done_at: datetime


@dataclass(frozen=True, slots=True)
class ProgressRow:
    """How far the running attempt says it is."""

    attempt: int
    fraction: float
    note: str | None
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class PauseRow:
    """A queue, a task or a tenant that an operator has stopped."""

    kind: str
    name: str
    paused_at: datetime
    paused_by: str
    note: str | None


@dataclass(frozen=True, slots=True)
class SessionRow:
    """One life of one worker process. `expired`: its lease ran out and nobody has declared it dead yet."""

    id: int
    host: str
    pid: int
    state: str
    queues: Mapping[str, int]
    tasks: int
    running: int
    started_at: datetime
    ended_at: datetime | None
    lease_seconds: float
    version: str
    idle: bool


@dataclass(frozen=True, slots=True)
class Waiting:
    """What stands between a ready job and a worker."""

    workers: int
    serving: int
    able: int
    slots: int
    busy: int
    ahead: Count
    now: datetime


@dataclass(frozen=True, slots=True)
class NextJob:
    """The job that falls due next."""

    id: int
    task: str
    run_at: datetime
    in_seconds: float


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """The oldest transaction of the database."""

    pid: int
    application: str
    seconds: float
    state: str | None


@dataclass(frozen=True, slots=True)
class FailureRow:
    """An attempt that went wrong lately."""

    id: int
    task: str
    queue: str
    attempt: int
    outcome: str
    finished_at: datetime
    reason: str | None
    error_type: str | None
    error_message: str | None


def list_jobs(wanted: JobFilter, limit: int, before: int | None = None) -> Operation[list[JobLine]]:
    """Newest first; `before` is the last id of the page before."""
    rows = yield Statement(_sql["list_jobs"], wanted.params() | {"limit": limit, "before": before})
    return [JobLine(*row) for row in rows]


def job_row(job_id: int) -> Operation[JobRow | None]:
    """A job by its id, wherever it is."""
    rows = yield Statement(_sql["live_job"], {"id": job_id})
    if not rows:
        rows = yield Statement(_sql["finished_job"], {"id": job_id})
    return JobRow(*rows[0]) if rows else None


def attempts(job_id: int) -> Operation[list[AttemptRow]]:
    rows = yield Statement(_sql["attempts"], {"id": job_id})
    return [AttemptRow(*row) for row in rows]


def steps(job_id: int) -> Operation[list[StepRow]]:
    rows = yield Statement(_sql["steps"], {"id": job_id})
    return [StepRow(*row) for row in rows]


def progress(job_id: int) -> Operation[ProgressRow | None]:
    rows = yield Statement(_sql["progress"], {"id": job_id})
    return ProgressRow(*rows[0]) if rows else None


def queue_rows() -> Operation[list[Row]]:
    """As the query has them; `operations.queues` gives them names."""
    rows = yield Statement(_sql["queues"], {"bound": BOUND})
    return rows


def pauses() -> Operation[list[PauseRow]]:
    rows = yield Statement(_sql["pauses"])
    return [PauseRow(*row) for row in rows]


def sessions() -> Operation[list[SessionRow]]:
    """Alive first, then those that ended within a day."""
    rows = yield Statement(_sql["sessions"], {"bound": BOUND})
    return [SessionRow(*row) for row in rows]


def waiting(row: JobRow) -> Operation[Waiting]:
    """What a ready job waits for."""
    given = {"queue": row.queue, "task": row.task, "priority": row.priority, "ready_seq": row.ready_seq or 0}
    rows = yield Statement(_sql["waiting"], given | {"bound": BOUND})
    workers, serving, able, slots, busy, ahead, now = rows[0]
    return Waiting(workers, serving, able, int(slots), busy, Count.bounded(ahead), now)


def dead_letters() -> Operation[Count]:
    rows = yield Statement(_sql["dead_letters"], {"bound": BOUND})
    return Count.bounded(rows[0][0])


def next_scheduled() -> Operation[NextJob | None]:
    rows = yield Statement(_sql["next_scheduled"])
    return NextJob(*rows[0]) if rows else None


def schema_version() -> Operation[int]:
    rows = yield Statement(_sql["schema_version"])
    return int(rows[0][0] or 0)


def oldest_transaction() -> Operation[OpenTransaction | None]:
    rows = yield Statement(_sql["oldest_transaction"])
    return OpenTransaction(*rows[0]) if rows else None


def newest_failures(limit: int) -> Operation[list[FailureRow]]:
    rows = yield Statement(_sql["newest_failures"], {"limit": limit})
    return [FailureRow(*row) for row in rows]


def finished_total() -> Operation[int]:
    """A counter: the difference between two looks is what finished in between."""
    rows = yield Statement(_sql["finished_total"])
    return int(rows[0][0])
