"""`ctx.call` and `ctx.all`: jobs that a job calls, and whose results it waits for without a slot.

The calls are enqueued in the transaction that stores the step with their ids, so that they are enqueued once. The
attempt then ends like a snooze, and the job waits for them. It runs again from the top when they have ended.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from sereno.database.statement import Operation
from sereno.errors import InvalidArguments
from sereno.jobs import transitions
from sereno.jobs.attempt import WaitForJobs
from sereno.jobs.finish_listener import FinishedJob, finished_jobs
from sereno.jobs.handle import result_of
from sereno.jobs.job import ClaimedJob, NewJob
from sereno.jobs.settlement import keep_step
from sereno.telemetry import tracing

# Jobs that one call may enqueue; a group has no limit.
MOST_CALLS = 1000


def enqueue_calls(
    parent: ClaimedJob, session: int, name: str, jobs: Sequence[NewJob], position: int | None, pending: Sequence[str]
) -> Operation[list[int]]:
    """Enqueue the calls and store their ids as a step, in one transaction, or raise LeaseLost."""
    made = yield from transitions.enqueue([_of_parent(parent, job) for job in jobs])
    ids = [job.id for job in made]
    raw = msgspec.json.encode(ids)
    yield from keep_step(session, parent.id, parent.attempt, name, raw, position=position, pending=pending)
    return ids


def results_of_calls(ids: Sequence[int], jobs: Sequence[NewJob]) -> Operation[list[Any]]:
    """Return the results of the calls; raise WaitForJobs if some have not ended, or the error of one that failed."""
    ended = {job.id: job for job in (yield from finished_jobs(ids))}
    if open_ids := [job_id for job_id in ids if job_id not in ended]:
        raise WaitForJobs(open_ids)
    return [_result(ended[job_id], job) for job_id, job in zip(ids, jobs, strict=True)]


def check_calls(jobs: Sequence[NewJob]) -> None:
    if len(jobs) > MOST_CALLS:
        raise InvalidArguments(f"ctx.all: {len(jobs):,} jobs are too many: at most {MOST_CALLS:,}; use app.group")
    if any(job.options.unique_key is not None for job in jobs):
        raise InvalidArguments("ctx.call: a job with a unique key may exist already, and cannot be called")


def _of_parent(parent: ClaimedJob, job: NewJob) -> NewJob:
    """Return the job with the tenant and the trace of its parent, unless it has its own."""
    options = job.options
    tenant, trace = options.tenant or parent.tenant, options.trace
    if trace is None:
        # The span of this attempt; without one, the span of what has enqueued the parent.
        trace = tracing.current() or parent.trace
    if (tenant, trace) == (options.tenant, options.trace):
        return job
    return msgspec.structs.replace(job, options=msgspec.structs.replace(options, tenant=tenant, trace=trace))


def _result(ended: FinishedJob, job: NewJob) -> Any:
    if not ended.state:
        # Its task keeps no history, so it succeeded, or it was deleted.
        return None
    return result_of(ended, job.result_type)
