"""Reads the gauges of the database every few seconds, in the process whose scheduler leads: once for all workers."""

import random

from sereno.database.connect import ServiceConnection
from sereno.database.statement import Operation
from sereno.database.transaction import begin_read
from sereno.monitoring.gauges.queries import database_gauges, with_standby
from sereno.schedules.scheduler import Scheduler
from sereno.settings import Settings
from sereno.telemetry.database_gauges import DatabaseGauges
from sereno.telemetry.service import Service

# Timeouts in seconds: of a statement, and of all of them together.
STATEMENT_TIMEOUT, READ_TIMEOUT = 5.0, 10.0


class GaugeReader(Service):
    """Gives the gauges to the figures of a scheduler while it leads. Its connection is open only while it reads."""

    def __init__(self, url: str, settings: Settings, scheduler: Scheduler) -> None:
        super().__init__("gauges")
        self._settings = settings
        self._connection = ServiceConnection(url, settings, "gauges", statement_timeout=STATEMENT_TIMEOUT)
        self._scheduler = scheduler

    async def run_once(self) -> float:
        """Read the gauges if this scheduler leads."""
        figures, interval = self._scheduler.figures, self._settings.gauge_interval
        if figures.database is not None and not (self._scheduler.leads and figures.database.is_current(interval)):
            figures.database = None
        if self._scheduler.leads:
            figures.database = await self._read()
        return interval * random.uniform(0.9, 1.0)  # noqa: S311 - jitter

    async def stop(self) -> None:
        await super().stop()
        await self._connection.close()

    async def _read(self) -> DatabaseGauges:
        try:
            found = await self._connection.run(_reading(self._settings), READ_TIMEOUT, atomic=True)
        finally:
            await self._connection.close()
        return await with_standby(found, self._settings)


def _reading(settings: Settings) -> Operation[DatabaseGauges]:
    yield from begin_read(STATEMENT_TIMEOUT)
    return (yield from database_gauges(settings))
