"""Days that are past their retention: dropped whole, and never at the price of those who write.

What goes to the archive is left to it: nothing is deleted before its file was read back and verified.
"""

import logging

from sereno.errors import DatabaseUnavailable
from sereno.settings import Settings
from sereno.store import bulk, days, fires, logs
from sereno.store.connect import Line
from sereno.telemetry.logs import emit

# A batch takes this long at most; more waits for the next round.
MAINTENANCE_TIMEOUT = 60.0
# As long as anybody asks who changed so many things.
KEEP_OPERATIONS_DAYS = 90


async def drop_days(line: Line, kept: days.Kept, retention: int) -> None:
    """Drop partitions older than so many days; those that somebody reads, later."""
    for name in await line.run(days.old_partitions(kept, retention), MAINTENANCE_TIMEOUT):
        try:
            await line.run(days.drop_partition(kept, name), MAINTENANCE_TIMEOUT)
        except DatabaseUnavailable as error:
            # Somebody reads it: it must not make others queue behind its lock. The next hour is early enough.
            emit(logging.WARNING, "history.kept", f"partition {name} could not be dropped now: {error}")
        else:
            emit(logging.INFO, "history.dropped", f"partition {name} is past its retention: dropped")


async def keep_fires(line: Line, settings: Settings) -> None:
    """Partitions of fires ahead of time, and none behind their retention; nor bulk operations that ended long ago."""
    try:
        await line.run(days.make_partitions("fires"), MAINTENANCE_TIMEOUT)
    except DatabaseUnavailable as error:
        # Somebody holds the table; there are partitions for a week, and the default one takes what has none.
        emit(logging.WARNING, "fires.unprepared", f"no partition of fires could be made now: {error}")
    if not settings.archives("fires"):
        await drop_days(line, "fires", settings.keep_fires_days)
        # One batch an hour: more would hold up the scheduler.
        await line.run(fires.forget_fires(settings.keep_fires_days), MAINTENANCE_TIMEOUT)
    await line.run(bulk.forget(KEEP_OPERATIONS_DAYS), MAINTENANCE_TIMEOUT)


async def forget_lines(line: Line, settings: Settings) -> bool:
    """A batch of log lines that are past their retention; whether there may be more. An archive takes its own."""
    if settings.archives("logs"):
        return False
    return await line.run(logs.forget(settings.log_retention), MAINTENANCE_TIMEOUT)
