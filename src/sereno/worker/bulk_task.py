"""Bulk operations in the hands of an ordinary worker: a task of ours walks through what is wanted, batch by batch.

Each batch is a transaction that also says how far it is, so whoever goes on after a crash begins where the last batch
ended. Between two batches it looks whether somebody wants it to stop.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping

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

# It rests no longer at a time, so that it stops within a second of being asked to.
LONGEST_REST = 0.25
# Longer than this until the next batch, and it gives its slot back meanwhile.
LONG_WAIT = 2.0
# After a lock that was not given, or an outage.
AGAIN_AFTER = 0.5
# A batch that is refused so often in a row will be refused again.
MOST_REFUSALS = 20
# Of an error, as much as one reads.
LONGEST_ERROR = 500


def register(registry: Registry, database: Database, others: Mapping[str, bulk.Change] | None = None) -> None:
    """Every worker can carry out operations on jobs, and those `others` that its application brings along.

    Several workers of one process share a registry.
    """
    if registry.get(bulk.TASK) is not None:
        return

    # Inside, so that a job whose process died is not started in one of its own: it is not to blame for that.
    async def carry_out(ctx: Context, operation: int) -> None:
        await _carry_out(database, ctx, operation, others)

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


def give_back(running: Iterable[RunningCall]) -> None:
    """An operation may go on for days: a worker that stops does not wait for it, and another goes on at once."""
    for each in list(running):
        if each.definition.name == bulk.TASK and each.stopped is None and each.task is not None:
            each.stopped = ReleasedAttempt("the worker stopped")
            each.task.cancel()


async def _carry_out(database: Database, ctx: Context, number: int, others: Mapping[str, bulk.Change] | None) -> None:
    refusals = changed = 0
    while True:
        try:
            found = await database.arun(bulk.batch(number, *ctx.fence, others))
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
        if found.wait is None:
            return
        changed += found.changed
        ctx.progress(found.share, f"operation {number}: {changed:,} changed in this attempt")
        if found.wait > LONG_WAIT:
            # So slow a rate needs no slot meanwhile.
            raise Snooze(found.wait)
        await asyncio.sleep(min(found.wait, LONGEST_REST))


async def _fail(database: Database, number: int, error: Exception) -> None:
    words = storable(f"{type(error).__name__}: {error}", LONGEST_ERROR)
    await database.arun(bulk.fail(number, words))
    emit(
        logging.ERROR,
        "operation.failed",
        f"operation {number} ended before its time: {words}",
        operation=number,
        error=error,
    )
