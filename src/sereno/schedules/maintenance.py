"""Maintenance that the leading scheduler does: partitions and retention of fires, retention of bulk operations."""

import logging

from sereno.database import partitions
from sereno.database.connect import ServiceConnection
from sereno.errors import DatabaseUnavailable
from sereno.jobs import bulk
from sereno.schedules import fires
from sereno.settings import Settings
from sereno.telemetry.log_events import emit
from sereno.worker.maintenance.duties import MaintenanceDuty, MaintenanceStep, run_page
from sereno.worker.maintenance.retention import HOUSEKEEPING_EVERY, drop_days

# Days for which bulk operations are retained, so that large changes can be traced to their author.
KEEP_OPERATIONS_DAYS = 90


def fires_duty(settings: Settings) -> MaintenanceDuty:
    """Return the duty that creates partitions of fires, and deletes old fires and bulk operations."""

    async def make_partitions(connection: ServiceConnection) -> bool:
        try:
            await run_page(connection, partitions.make_partitions("fires"))
        except DatabaseUnavailable as error:
            # Another session locks the table. There are partitions for a week, and the default one takes the rest.
            emit(logging.WARNING, "fires.unprepared", f"the next partitions of fires could not be created now: {error}")
        return False

    async def drop_old(connection: ServiceConnection) -> bool:
        await drop_days(connection, "fires", settings.keep_fires_days)
        return False

    async def forget_strays(connection: ServiceConnection) -> bool:
        return await run_page(connection, fires.forget_fires(settings.keep_fires_days)) >= fires.FORGOTTEN

    async def forget_operations(connection: ServiceConnection) -> bool:
        await run_page(connection, bulk.forget(KEEP_OPERATIONS_DAYS))
        return False

    steps = [MaintenanceStep("partitions of fires", make_partitions)]
    if not settings.archives("fires"):
        steps += [
            MaintenanceStep("retention of fires", drop_old),
            MaintenanceStep("fires outside of their days", forget_strays),
        ]
    steps.append(MaintenanceStep("retention of bulk operations", forget_operations))
    return MaintenanceDuty("fires", HOUSEKEEPING_EVERY, steps)
