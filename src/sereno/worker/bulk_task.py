"""The built-in task that carries out bulk operations, batch by batch, in an ordinary worker.

Each batch is a transaction that also stores the progress, so the attempt after a crash starts where the last batch
ended. Between two batches the task checks whether the operation is to be stopped.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import cache

import psycopg

from sereno.database.database import Database
from sereno.error_text import storable
from sereno.errors import DatabaseUnavailable, SerenoError
from sereno.jobs import bulk
from sereno.jobs.attempt import ReleasedAttempt, Snooze
from sereno.jobs.retry import Backoff
from sereno.jobs.task import Registry, define
from sereno.telemetry.log_events import emit
from sereno.worker.context import Context
from sereno.worker.running_call import RunningCall

# Seconds between two batches at most, so that an operation stops within a second of the request.
LONGEST_REST = 0.25
# Seconds. If the next batch is due later than this, the job snoozes and frees its slot.
LONG_WAIT = 2.0
# Seconds until a batch is tried again after a lock timeout or an outage.
AGAIN_AFTER = 0.5
# Consecutive failed batches after which the operation fails: another try would fail too.
MOST_REFUSALS = 20
# Characters of an error that are stored.
LONGEST_ERROR = 500


def register(registry: Registry, database: Database, others: Callable[[], Mapping[str, bulk.Change]] = dict) -> None:
    """Register the task. Every worker can carry out operations on jobs; `others`: returns further actions, by name.

    Does nothing if the task is registered already: several workers of one process share a registry.
    """
    if registry.get(bulk.TASK) is not None:
        return

    others_once = cache(others)

    # Nested on purpose: a nested function cannot be isolated. If a worker dies, this job did not cause it.
    async def carry_out(ctx: Context, operation: int) -> None:
        await _carry_out(database, ctx, operation, others_once())

    registry.add(
        define(
            carry_out,
            context=Context,
            name=bulk.TASK,
            queue=bulk.USUAL_QUEUE,
            priority=bulk.PRIORITY,
            retry=Backoff(8),
            timeout=None,
            history=False,
        )
    )


def release(running: Iterable[RunningCall]) -> None:
    """Release running bulk operations when a worker stops: they may take days, and another worker continues at once."""
    for each in list(running):
        if each.definition.name == bulk.TASK and each.stopped is None and each.task is not None:
            each.stopped = ReleasedAttempt("the worker stopped")
            if each.has_begun:
                each.task.cancel()


async def _carry_out(database: Database, ctx: Context, number: int, others: Mapping[str, bulk.Change]) -> None:
    refusals = changed = 0
    while True:
        try:
            batch = await database.arun(bulk.batch(number, *ctx.fence, others))
        except DatabaseUnavailable:
            await asyncio.sleep(AGAIN_AFTER)
            continue
        except (psycopg.Error, SerenoError) as error:
            refusals += 1
            if isinstance(error, psycopg.OperationalError) and refusals < MOST_REFUSALS:
                await asyncio.sleep(AGAIN_AFTER)
                continue
            await _fail(database, number, error)
            return
        refusals = 0
        if batch.wait is None:
            return
        changed += batch.changed
        ctx.progress(batch.share, f"operation {number}: {changed:,} changed in this attempt")
        if batch.wait > LONG_WAIT:
            # The rate is slow: the job frees its slot until the next batch.
            raise Snooze(batch.wait)
        await asyncio.sleep(min(batch.wait, LONGEST_REST))


async def _fail(database: Database, number: int, error: Exception) -> None:
    text = storable(f"{type(error).__name__}: {error}", LONGEST_ERROR)
    await database.arun(bulk.fail(number, text))
    emit(
        logging.ERROR,
        "operation.failed",
        f"bulk operation {number} failed: {text}",
        operation=number,
        error=error,
    )
