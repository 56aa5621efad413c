"""The cycle of the job runner: enqueues follow-ups, counts the jobs that ended, and logs one line."""

import logging
from time import monotonic
from typing import Any, TypedDict

from separate_worker.leads import enqueue_follow_ups
from separate_worker.queues import CYCLE_QUEUE, app, connect, settings
from sereno import Context, Every, LeaseLost

CYCLE = "separate_worker.follow_ups"
COMPLETE = "job_runner_cycle_complete"
# Characters of an error in the log line; the history of the job has all of it.
LONGEST_ERROR = 500
# Skipped cycles that a run logs.
MOST_SKIPPED = 1000


class CycleCounts(TypedDict):
    """The result of a run: jobs that ended since the run before, and follow-ups that it enqueued."""

    job_count: int
    follow_ups: int


@app.cycle(Every(settings.interval), key=CYCLE)
@app.task(name=CYCLE, queue=CYCLE_QUEUE, retry=0)
async def follow_ups(ctx: Context) -> CycleCounts:
    """Take the leads that are due and enqueue a job for each, in one transaction.

    A failed run is not retried: the next one finds the same leads, and counts the same jobs.
    """
    began = monotonic()
    try:
        await _log_skipped(ctx)
        counts = await _run(ctx)
    except BaseException as error:
        text = f"{type(error).__name__}: {error}"[:LONGEST_ERROR]
        # Without its lease this worker has changed nothing; another one has the lock.
        _log(ctx, logging.ERROR, is_locked=not isinstance(error, LeaseLost), began=began, error=text)
        raise
    _log(ctx, logging.INFO, is_locked=True, began=began, jobs=counts["job_count"], followUps=counts["follow_ups"])
    return counts


async def _run(ctx: Context) -> CycleCounts:
    async with ctx.transaction() as connection:
        # A job is noted when it is enqueued, and deleted when it is counted: it counts once, whenever it commits.
        ended = await connection.execute(
            "delete from separate_worker.uncounted_jobs where job_id in (select job_id from separate_worker.ended_jobs)"
        )
        counts = CycleCounts(job_count=ended.rowcount, follow_ups=await enqueue_follow_ups(connection, ctx.job_id))
        ctx.set_result(counts)
    return counts


async def _log_skipped(ctx: Context) -> None:
    """Log the cycles between the previous run and this one that no worker ran: the scheduler has stored why."""
    async with await connect() as connection:
        skipped = await connection.execute(
            "select reason, stands_for from separate_worker.skipped_cycles "
            "where planned_at < coalesce(%s, now()) order by planned_at limit %s",
            [ctx.fire and ctx.fire.at, MOST_SKIPPED],
        )
        async for reason, number in skipped:
            _log(ctx, logging.INFO, is_locked=False, skipped=reason, cycles=number)


def _log(
    ctx: Context,
    level: int,
    *,
    is_locked: bool,
    began: float | None = None,
    jobs: int = 0,
    error: str | None = None,
    **more: Any,
) -> None:
    """Write the line of the original design. `began`: None for a cycle that did not run."""
    fields = {
        "event": COMPLETE,
        "lockAcquired": is_locked,
        "durationMs": 0 if began is None else round((monotonic() - began) * 1000),
        "jobCount": jobs,
        "error": error,
        **more,
    }
    state = "was skipped" if began is None else "failed" if error else "is complete"
    ctx.log.log(level, "the cycle %s", state, extra=fields)
