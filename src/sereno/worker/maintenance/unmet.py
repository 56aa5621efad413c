"""The duty that makes dead letters of jobs that no worker could run within `release_grace`."""

import logging

from sereno.database.connect import ServiceConnection
from sereno.jobs import requirements
from sereno.settings import Settings
from sereno.telemetry.log_events import emit
from sereno.worker.maintenance.duties import MAINTENANCE_TIMEOUT, MaintenanceDuty, MaintenanceStep

# Seconds between two searches for such jobs.
UNMET_EVERY = 60.0


def duty(settings: Settings) -> MaintenanceDuty:
    """Return the duty, for the grace of these settings."""

    async def page(connection: ServiceConnection) -> bool:
        operation = requirements.bury_unmet(settings.release_grace)
        buried = await connection.run(operation, MAINTENANCE_TIMEOUT, atomic=True)
        for job_id, reason in buried:
            emit(logging.ERROR, "job.dead", f"job {job_id}: dead: {reason}", job_id=job_id)
        return len(buried) >= requirements.PAGE

    return MaintenanceDuty("unmet_requirements", UNMET_EVERY, [MaintenanceStep("unmet requirements", page)])
