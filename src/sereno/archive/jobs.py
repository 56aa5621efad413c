"""Archive jobs requested over HTTP. A worker runs the job; its result is an entry of the audit.

The entry is written in the transaction that settles the job: exactly one for each job that succeeded.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sereno.access import audit
from sereno.access.audit_queries import audit_lines
from sereno.access.masking import masked
from sereno.archive.orders import EXTRACT, JOB_KINDS, RESTORE, TASKS, VERIFY, ExtractOrder, JobKind, Order, RestoreOrder
from sereno.archive.queries import kind_names
from sereno.archive.restore import RestoreRequest, unknown_kind
from sereno.archive.rows import TimeSpan
from sereno.database.statement import Operation
from sereno.errors import JobNotFound
from sereno.jobs import operations as jobs

ENDED = {VERIFY: "archive.verified", RESTORE: "archive.restored", EXTRACT: "archive.extracted"}
# Audit entries of one job that are searched for its result.
MOST_LINES = 50


@dataclass(frozen=True, slots=True)
class ArchiveJob:
    """A job of the archive. `progress`: from 0 to 1, while it runs. `result`: if it succeeded."""

    job: int
    what: JobKind
    state: str
    requested_by: str | None
    request: Mapping[str, Any]
    requested_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    progress: float | None
    note: str | None
    error: str | None
    result: Mapping[str, Any] | None


def request_of(order: RestoreOrder) -> RestoreRequest:
    return RestoreRequest(order.kind, TimeSpan(order.ids, order.from_at, order.to_at), order.keep, order.without)


def span_of(order: ExtractOrder) -> TimeSpan:
    return TimeSpan(from_at=order.from_at, to_at=order.to_at)


def check_extract(order: ExtractOrder) -> Operation[None]:
    """Raise InvalidArguments if the archive has no rows of that kind, or the time span is invalid."""
    kinds = yield from kind_names()
    if order.kind not in kinds:
        raise unknown_kind(order.kind, kinds)
    span_of(order).check_times()


def show(job_id: int) -> Operation[ArchiveJob]:
    """Return its progress and its result. Raises JobNotFound for a job that is not the archive's."""
    found = yield from jobs.show(job_id)
    row = found.job
    what = JOB_KINDS.get(row.task)
    if what is None:
        raise JobNotFound(f"job {job_id} is not a job of the archive")
    action = ENDED.get(row.task)
    lines = (yield from audit_lines(subject=f"job {job_id}", most=MOST_LINES)) if action else []
    result = next((line.detail for line in lines if line.action == action), None)
    request = dict(row.args.get("order", {}))
    progress = found.progress
    return ArchiveJob(
        job=row.id,
        what=what,
        state=row.state,
        requested_by=request.pop("requested_by", None),
        request=masked(request),
        requested_at=row.created_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
        progress=None if progress is None else progress.fraction,
        note=None if progress is None else progress.note,
        error=None if row.state == "succeeded" else row.reason or row.error_message,
        # A retried job has no result until it has succeeded again.
        result=result if row.state == "succeeded" else None,
    )


def ended(order: Order, job_id: int, result: Mapping[str, Any]) -> Operation[None]:
    """Record the result."""
    yield from audit.audit(order.requested_by, ENDED[TASKS[type(order)]], f"job {job_id}", result)
