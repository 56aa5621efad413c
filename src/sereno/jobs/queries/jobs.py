"""Read operations on jobs, queues and sessions for the command line, the HTTP API and the dashboard."""

from collections.abc import Collection

from sereno.bounded_count import BOUND, BoundedCount
from sereno.database.statement import Operation, Row, Statement, queries
from sereno.jobs.filters import JobFilter
from sereno.jobs.queries.rows import (
    AttemptRow,
    FailureRow,
    JobLine,
    JobRow,
    NextJob,
    OpenTransaction,
    PauseRow,
    ProgressRow,
    RunningRow,
    SessionRow,
    StepRow,
    TaskLine,
    WaitReason,
)

_sql = queries("jobs/queries/jobs")

# Most rows of one result, and most bytes of texts and JSON in it.
MOST_ROWS, MOST_BYTES = 1000, 4 * 1024 * 1024


def list_jobs(wanted: JobFilter, limit: int, before: int | None = None) -> Operation[list[JobLine]]:
    """Return jobs, newest first; `before` is the last id of the previous page."""
    rows = yield Statement(_sql["list_jobs"], wanted.params() | {"limit": limit, "before": before})
    return [JobLine(*row) for row in rows]


def job_row(job_id: int) -> Operation[JobRow | None]:
    """Return a live or finished job by its id."""
    rows = yield Statement(_sql["live_job"], {"id": job_id})
    if not rows:
        rows = yield Statement(_sql["finished_job"], {"id": job_id})
    return JobRow(*rows[0]) if rows else None


def attempts(job_id: int) -> Operation[list[AttemptRow]]:
    """Return the attempts of a job in order; if there are too many, the newest."""
    rows = yield Statement(_sql["attempts"], {"id": job_id, "most": MOST_ROWS, "bytes": MOST_BYTES})
    return [AttemptRow(*row) for row in rows]


def steps(job_id: int) -> Operation[list[StepRow]]:
    """Return the finished steps of a job in order; if there are too many, the newest."""
    rows = yield Statement(_sql["steps"], {"id": job_id, "most": MOST_ROWS, "bytes": MOST_BYTES})
    return [StepRow(*row) for row in rows]


def progress(job_id: int) -> Operation[ProgressRow | None]:
    rows = yield Statement(_sql["progress"], {"id": job_id})
    return ProgressRow(*rows[0]) if rows else None


def queue_rows() -> Operation[list[Row]]:
    """Return the raw rows; `queues.list_queues` converts them."""
    rows = yield Statement(_sql["queues"], {"bound": BOUND})
    return rows


def pauses(names: Collection[str] | None = None) -> Operation[list[PauseRow]]:
    """Return at most MOST_ROWS pauses, queues and tasks before tenants. `names`: only these."""
    given = {"most": MOST_ROWS, "names": None if names is None else list(names)}
    rows = yield Statement(_sql["pauses"], given)
    return [PauseRow(*row) for row in rows]


def sessions() -> Operation[list[SessionRow]]:
    """Return live sessions first, then those that ended within a day."""
    rows = yield Statement(_sql["sessions"], {"bound": BOUND})
    return [SessionRow(*row) for row in rows]


def waiting(row: JobRow) -> Operation[WaitReason]:
    """Return what a ready job waits for."""
    given = {"queue": row.queue, "task": row.task, "priority": row.priority, "ready_seq": row.ready_seq or 0}
    rows = yield Statement(_sql["waiting"], given | {"bound": BOUND})
    workers, serving, able, slots, busy, ahead, now = rows[0]
    return WaitReason(workers, serving, able, int(slots), busy, BoundedCount.bounded(ahead), now)


def dead_letters() -> Operation[BoundedCount]:
    rows = yield Statement(_sql["dead_letters"], {"bound": BOUND})
    return BoundedCount.bounded(rows[0][0])


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
    """Return a counter of finished jobs; the difference of two reads is what finished in between."""
    rows = yield Statement(_sql["finished_total"])
    return int(rows[0][0])


def by_task() -> Operation[list[TaskLine]]:
    """Return figures by task, over the newest jobs."""
    rows = yield Statement(_sql["by_task"], {"bound": BOUND})
    return [TaskLine(*row) for row in rows]


def running_now(limit: int) -> Operation[list[RunningRow]]:
    """Return running jobs that report progress."""
    rows = yield Statement(_sql["running_now"], {"limit": limit})
    return [RunningRow(*row) for row in rows]
