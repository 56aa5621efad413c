"""Drops daily partitions that are past their retention, without blocking writers.

Archived tables are left to the archiver, which deletes nothing before its file was read back and verified.
"""

import logging

from sereno.database import partitions
from sereno.database.connect import ServiceConnection
from sereno.errors import DatabaseUnavailable
from sereno.jobs import attempt_partitions
from sereno.settings import Settings
from sereno.telemetry import central_log
from sereno.telemetry.log_events import emit
from sereno.worker.maintenance.duties import MAINTENANCE_TIMEOUT, run_page

# Seconds.
HOUSEKEEPING_EVERY = 3600.0


async def drop_days(connection: ServiceConnection, table: partitions.PartitionedTable, retention: int) -> None:
    """Drop partitions older than `retention` days; a partition that is being read is tried again later."""
    for name in await run_page(connection, partitions.old_partitions(table, retention)):
        await _drop_day(connection, table, name)


async def drop_attempt_day(connection: ServiceConnection, retention: int) -> bool:
    """Process a page of the oldest day of attempts past its retention; return whether there is more.

    Days are processed one after the other, because rows that are carried over from a day may land in the next one.
    """
    names = await run_page(connection, partitions.old_partitions("attempts", retention))
    if not names:
        return False
    if await run_page(connection, attempt_partitions.carry_attempts(names[0])):
        return True
    return await _drop_day(connection, "attempts", names[0]) and len(names) > 1


async def _drop_day(connection: ServiceConnection, table: partitions.PartitionedTable, name: str) -> bool:
    try:
        await run_page(connection, partitions.drop_partition(table, name))
    except DatabaseUnavailable as error:
        # A query reads the partition. Waiting for its lock would block other sessions, so try again in an hour.
        emit(logging.WARNING, "history.drop_failed", f"partition {name} could not be dropped now: {error}")
        return False
    emit(logging.INFO, "history.dropped", f"partition {name} was dropped: it is past its retention")
    return True


async def forget_lines(connection: ServiceConnection, settings: Settings) -> bool:
    """Delete a batch of log lines past their retention, unless they are archived; return whether there may be more."""
    if settings.archives("logs"):
        return False
    return await connection.run(central_log.forget(settings.log_retention), MAINTENANCE_TIMEOUT)
