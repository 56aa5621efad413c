"""Drops daily partitions that are past their retention, without blocking writers.

Archived tables are left to the archiver, which deletes nothing before its file was read back and verified.
"""

import logging

from sereno.bulk import store as bulk
from sereno.database import partitions
from sereno.database.connect import Line
from sereno.errors import DatabaseUnavailable
from sereno.jobs import attempt_partitions
from sereno.schedules import fires
from sereno.settings import Settings
from sereno.telemetry import central_log
from sereno.telemetry.log_events import emit
from sereno.worker.maintenance.duties import MAINTENANCE_TIMEOUT, Duty, Step, run_page

HOUSEKEEPING_EVERY = 3600.0
# Days for which bulk operations are retained, so that large changes can be traced to their author.
KEEP_OPERATIONS_DAYS = 90


async def drop_days(line: Line, table: partitions.PartitionedTable, retention: int) -> None:
    """Drop partitions older than `retention` days; a partition that is being read is tried again later."""
    for name in await run_page(line, partitions.old_partitions(table, retention)):
        await _drop_day(line, table, name)


async def drop_attempt_day(line: Line, retention: int) -> bool:
    """Process a page of the oldest day of attempts past its retention; return whether there is more.

    Days are processed one after the other, because rows that are carried over from a day may land in the next one.
    """
    names = await run_page(line, partitions.old_partitions("attempts", retention))
    if not names:
        return False
    if await run_page(line, attempt_partitions.carry_attempts(names[0])):
        return True
    return await _drop_day(line, "attempts", names[0]) and len(names) > 1


async def _drop_day(line: Line, table: partitions.PartitionedTable, name: str) -> bool:
    try:
        await run_page(line, partitions.drop_partition(table, name))
    except DatabaseUnavailable as error:
        # A query reads the partition. Waiting for its lock would block other sessions, so try again in an hour.
        emit(logging.WARNING, "history.kept", f"partition {name} could not be dropped now: {error}")
        return False
    emit(logging.INFO, "history.dropped", f"partition {name} was dropped: it is past its retention")
    return True


def fires_duty(settings: Settings) -> Duty:
    """Return the duty that creates partitions of fires, and deletes old fires and bulk operations."""

    async def make_partitions(line: Line) -> bool:
        try:
            await run_page(line, partitions.make_partitions("fires"))
        except DatabaseUnavailable as error:
            # Another session locks the table. There are partitions for a week, and the default one takes the rest.
            emit(logging.WARNING, "fires.unprepared", f"the next partitions of fires could not be created now: {error}")
        return False

    async def drop_old(line: Line) -> bool:
        await drop_days(line, "fires", settings.keep_fires_days)
        return False

    async def forget_strays(line: Line) -> bool:
        return await run_page(line, fires.forget_fires(settings.keep_fires_days)) >= fires.FORGOTTEN

    async def forget_operations(line: Line) -> bool:
        await run_page(line, bulk.forget(KEEP_OPERATIONS_DAYS))
        return False

    steps = [Step("partitions of fires", make_partitions)]
    if not settings.archives("fires"):
        steps += [Step("retention of fires", drop_old), Step("fires outside of their days", forget_strays)]
    steps.append(Step("retention of bulk operations", forget_operations))
    return Duty("fires", HOUSEKEEPING_EVERY, steps)


async def forget_lines(line: Line, settings: Settings) -> bool:
    """Delete a batch of log lines past their retention, unless they are archived; return whether there may be more."""
    if settings.archives("logs"):
        return False
    return await line.run(central_log.forget(settings.log_retention), MAINTENANCE_TIMEOUT)
