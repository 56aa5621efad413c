"""Days that are past their retention: dropped whole, and never at the price of those who write.

What goes to the archive is left to it: nothing is deleted before its file was read back and verified.
"""

import logging

from sereno.database import partitions
from sereno.database.connect import Line
from sereno.errors import DatabaseUnavailable
from sereno.jobs import attempt_partitions
from sereno.settings import Settings
from sereno.telemetry import central_log
from sereno.telemetry.log_events import emit
from sereno.worker.maintenance.duties import MAINTENANCE_TIMEOUT, run_page

HOUSEKEEPING_EVERY = 3600.0


async def drop_days(line: Line, kept: partitions.PartitionedTable, retention: int) -> None:
    """Drop partitions older than so many days; those that somebody reads, later."""
    for name in await run_page(line, partitions.old_partitions(kept, retention)):
        await _drop_day(line, kept, name)


async def drop_attempt_day(line: Line, retention: int) -> bool:
    """Do a page of the oldest day of attempts that is past its retention; return whether there is more.

    One after the other: what is carried over from a day may land in the next one.
    """
    names = await run_page(line, partitions.old_partitions("attempts", retention))
    if not names:
        return False
    if await run_page(line, attempt_partitions.carry_attempts(names[0])):
        return True
    return await _drop_day(line, "attempts", names[0]) and len(names) > 1


async def _drop_day(line: Line, kept: partitions.PartitionedTable, name: str) -> bool:
    try:
        await run_page(line, partitions.drop_partition(kept, name))
    except DatabaseUnavailable as error:
        # Somebody reads it: it must not make others queue behind its lock. The next hour is early enough.
        emit(logging.WARNING, "history.kept", f"partition {name} could not be dropped now: {error}")
        return False
    emit(logging.INFO, "history.dropped", f"partition {name} is past its retention: dropped")
    return True


async def forget_lines(line: Line, settings: Settings) -> bool:
    """A batch of log lines that are past their retention; whether there may be more. An archive takes its own."""
    if settings.archives("logs"):
        return False
    return await line.run(central_log.forget(settings.log_retention), MAINTENANCE_TIMEOUT)
