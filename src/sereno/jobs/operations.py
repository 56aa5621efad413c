"""Operator actions on jobs: list, show, enqueue, retry, cancel, delete."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from sereno.access import audit
from sereno.access.actor import default_actor
from sereno.bounded_count import BoundedCount
from sereno.database.statement import Operation, Plan
from sereno.errors import InvalidArguments, JobNotFound, Refused
from sereno.jobs import bulk_selection
from sereno.jobs import transitions as store
from sereno.jobs.bulk_selection import TALLY_BOUND
from sereno.jobs.filters import JobFilter
from sereno.jobs.job import EnqueuedJob, NewJob
from sereno.jobs.lifecycle import FINAL
from sereno.jobs.queries import jobs as job_queries
from sereno.jobs.queries import links
from sereno.jobs.queries.rows import AttemptRow, JobLine, JobRow, ProgressRow, StepRow
from sereno.jobs.rows import KeyConflict
from sereno.jobs.signals import SignalWait, awaited_signal

CANCELLABLE = ("waiting", "scheduled", "ready", "running")
DELETABLE = ("waiting", "scheduled", "ready", *FINAL)


@dataclass(frozen=True, slots=True)
class JobPage:
    """One page of a list; `next` is the cursor of the following page."""

    items: list[JobLine]
    next: int | None


@dataclass(frozen=True, slots=True)
class JobDetail:
    """One job with its attempts, steps and progress, and the signal that it waits for."""

    job: JobRow
    attempts: list[AttemptRow]
    steps: list[StepRow]
    progress: ProgressRow | None
    waits_for: SignalWait | None = None


@dataclass(frozen=True, slots=True)
class JobTally:
    """The jobs that a bulk change would affect."""

    total: BoundedCount
    by_task: dict[str, int]
    by_queue: dict[str, int]
    by_tenant: dict[str, int]


@dataclass(slots=True)
class ChangedJobs:
    """The result of a bulk change. `stopping`: running jobs with a requested cancel. `left`: matched but unchanged.

    `conflicts`: unchanged jobs whose unique key a live job holds, with that job.
    """

    done: list[int] = field(default_factory=list)
    stopping: list[int] = field(default_factory=list)
    left: list[int] = field(default_factory=list)
    conflicts: list[KeyConflict] = field(default_factory=list)


def list_jobs(wanted: JobFilter | None = None, *, limit: int = 50, before: int | None = None) -> Operation[JobPage]:
    """Return live and finished jobs, newest first. `before`: the cursor of the previous page."""
    found = yield from job_queries.list_jobs(wanted or JobFilter(), limit + 1, before)
    page = found[:limit]
    return JobPage(page, page[-1].id if len(found) > limit else None)


def show(job_id: int) -> Operation[JobDetail]:
    """Return one job with all its attempts, steps and progress, or raise JobNotFound."""
    row = yield from job_queries.job_row(job_id)
    if row is None:
        raise JobNotFound(f"no job has the id {job_id}")
    tried = yield from job_queries.attempts(job_id)
    steps = yield from job_queries.steps(job_id)
    progress = yield from job_queries.progress(job_id)
    waits_for = (yield from awaited_signal(job_id)) if row.state == "scheduled" else None
    return JobDetail(row, [*tried, *_last_attempt(row)], steps, progress, waits_for)


def enqueue(
    jobs: Sequence[NewJob], *, actor: str | None = None, tenant: str | None = None
) -> Operation[list[EnqueuedJob]]:
    """Enqueue the jobs and write the actor to the audit log. `tenant`: of a caller who sees no other tenant's jobs."""
    for new in jobs:
        if new.options.after:
            yield from _check_predecessors(new.options.after, tenant)
    made = yield from store.enqueue(jobs)
    for job in made:
        subject = f"job {job.id}"
        yield from audit.audit(
            actor or default_actor(), "job.enqueue", subject, {"task": job.task, "created": job.created}
        )
    return made


def _check_predecessors(ids: Sequence[int], tenant: str | None) -> Operation[None]:
    for job in (yield from links.linked(ids, tenant=tenant)):
        if job.state is None:
            hidden = "" if tenant is None else ", or you have no access to it"
            raise InvalidArguments(
                f"after: job {job.id} does not exist{hidden}: it was deleted, or it succeeded and its task has "
                "history=False"
            )


def count(wanted: JobFilter) -> Operation[JobTally]:
    """Return how many jobs match, by task, queue and tenant."""
    found = yield from bulk_selection.tally(wanted)
    by_task: Counter[str] = Counter()
    by_queue: Counter[str] = Counter()
    by_tenant: Counter[str] = Counter()
    for task, queue, tenant, number in found:
        by_task[task] += number
        by_queue[queue] += number
        if tenant is not None:
            by_tenant[tenant] += number
    total = BoundedCount.bounded(sum(by_task.values()), TALLY_BOUND)
    return JobTally(total, dict(by_task.most_common()), dict(by_queue.most_common()), dict(by_tenant.most_common()))


def count_retry(wanted: JobFilter) -> Operation[JobTally]:
    """Return the jobs that `retry` would requeue."""
    return count(wanted.within(FINAL))


def count_cancel(wanted: JobFilter) -> Operation[JobTally]:
    """Return the jobs that `cancel` would cancel."""
    return count(wanted.within(CANCELLABLE))


def count_delete(wanted: JobFilter) -> Operation[JobTally]:
    """Return the jobs that `delete` would delete."""
    return count(wanted.within(DELETABLE))


def retry(
    wanted: JobFilter, *, rate: float | None = None, yes: bool = False, actor: str | None = None
) -> Plan[ChangedJobs]:
    """Requeue finished jobs under their own ids, all at once or `rate` per second.

    Of several jobs with the same unique key only the first is requeued. The others, and jobs whose key a live job
    holds, stay finished.
    """
    _check_confirmed(wanted, yes, "retry")
    return _in_batches(wanted.within(FINAL), "job.retry", actor, partial(_retry_batch, 1 / rate if rate else 0.0))


def cancel(
    wanted: JobFilter, *, reason: str | None = None, yes: bool = False, actor: str | None = None
) -> Plan[ChangedJobs]:
    """Cancel waiting jobs at once, and request a cancel of running ones."""
    _check_confirmed(wanted, yes, "cancel")
    text = reason or f"cancelled by {actor or default_actor()}"
    return _in_batches(wanted.within(CANCELLABLE), "job.cancel", actor, partial(_cancel_batch, text))


def delete(wanted: JobFilter, *, yes: bool = False, actor: str | None = None) -> Plan[ChangedJobs]:
    """Delete jobs and their attempts. Refused when the id of a running job is given."""
    _check_confirmed(wanted, yes, "delete")
    return _delete(wanted, actor)


def _delete(wanted: JobFilter, actor: str | None) -> Plan[ChangedJobs]:
    if wanted.ids is not None:
        running: list[int] = yield bulk_selection.matching(wanted.within(["running"]))
        if running:
            names = ", ".join(map(str, running))
            raise Refused(f"job {names} is running: cancel it first, nothing was deleted")
    return (yield from _in_batches(wanted.within(DELETABLE), "job.delete", actor, _delete_batch))


def _check_confirmed(wanted: JobFilter, yes: bool, verb: str) -> None:
    """Refuse a change by filter that is not confirmed; a list of ids needs no confirmation."""
    if wanted.ids is None and not yes:
        raise Refused(f"this would {verb} every job that matches ({wanted}): try --dry-run, then confirm with --yes")


Batch = Callable[[Sequence[int], ChangedJobs], Operation[list[int]]]


def _in_batches(wanted: JobFilter, action: str, actor: str | None, change: Batch) -> Plan[ChangedJobs]:
    changed = ChangedJobs()
    after = 0
    while True:
        batch: list[int] = yield _one_batch(wanted, after, action, actor or default_actor(), change, changed)
        if not batch:
            return changed
        after = batch[-1]


def _one_batch(
    wanted: JobFilter, after: int, action: str, actor: str, change: Batch, changed: ChangedJobs
) -> Operation[list[int]]:
    batch = yield from bulk_selection.matching(wanted, after)
    if not batch:
        return batch
    touched = yield from change(batch, changed)
    reached = set(touched)
    changed.left += [job_id for job_id in batch if job_id not in reached]
    if touched:
        one = len(touched) == 1
        detail: dict[str, Any] = {"count": len(touched), "ids": touched, "filter": wanted.as_detail()}
        yield from audit.audit(actor, action, f"job {touched[0]}" if one else f"{len(touched)} jobs", detail)
    return batch


def _retry_batch(spacing: float, batch: Sequence[int], changed: ChangedJobs) -> Operation[list[int]]:
    ids = yield from store.requeue(batch, spacing, start=spacing * len(changed.done))
    changed.done += ids
    changed.conflicts += yield from store.key_conflicts(set(batch) - set(ids))
    return ids


def _cancel_batch(reason: str, batch: Sequence[int], changed: ChangedJobs) -> Operation[list[int]]:
    ended, stopping = yield from store.cancel(batch, reason)
    changed.done += sorted(ended)
    changed.stopping += sorted(stopping)
    return sorted([*ended, *stopping])


def _delete_batch(batch: Sequence[int], changed: ChangedJobs) -> Operation[list[int]]:
    gone = yield from store.delete(batch)
    changed.done += sorted(gone)
    return sorted(gone)


def _last_attempt(row: JobRow) -> list[AttemptRow]:
    """Return the attempt that the job's own row holds: the running one, or the one that finished the job."""
    if row.session_id is None or row.started_at is None:
        return []
    outcome = "running" if row.finished_at is None else row.state
    return [
        AttemptRow(
            row.attempt,
            row.session_id,
            row.started_at,
            row.finished_at,
            outcome,
            row.reason,
            row.error_type,
            row.error_message,
            row.traceback,
        )
    ]
