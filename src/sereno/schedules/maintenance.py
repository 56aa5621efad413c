"""Maintenance that the leading scheduler does: partitions and retention of fires, retention of bulk operations."""

import logging

from sereno.database import partitions
from sereno.database.connect import Line
from sereno.errors import DatabaseUnavailable
from sereno.jobs import bulk
from sereno.schedules import fires
from sereno.settings import Settings
from sereno.telemetry.log_events import emit
from sereno.worker.maintenance.duties import Duty, Step, run_page
from sereno.worker.maintenance.retention import HOUSEKEEPING_EVERY, drop_days

# Days for which bulk operations are retained, so that large changes can be traced to their author.
KEEP_OPERATIONS_DAYS = 90


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
