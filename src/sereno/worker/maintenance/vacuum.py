"""Vacuums the tables that jobs pass through, sooner than autovacuum does.

Autovacuum looks once a minute (`autovacuum_naptime`), whatever the parameters of a table say, and every settled job
leaves two dead rows: at 15,000 jobs/s the table has hundreds of megabytes by then. So a worker that has settled many
jobs looks at the server's own figures, and vacuums what has too many dead rows. One worker of all does it, and for a
small share of the time: while an old transaction pins a snapshot, a vacuum reads the table and cleans nothing.
"""

import logging
from time import monotonic

from sereno.database.connect import Line
from sereno.database.vacuum import littered, vacuum
from sereno.errors import first_line
from sereno.settings import Settings
from sereno.telemetry.log_events import emit
from sereno.telemetry.service import Service
from sereno.worker import sessions
from sereno.worker.maintenance.duties import MAINTENANCE_TIMEOUT

# Seconds between two looks.
LOOK_EVERY = 5.0
# Jobs that this worker has settled since its last look, before it looks again.
ENOUGH = 5_000
# The share of the time that vacuums of a table may take.
SHARE = 0.1


class Vacuum(Service):
    """Looks after this worker has settled many jobs. Its connection is open only while it works."""

    def __init__(self, line: Line, settings: Settings) -> None:
        super().__init__("vacuum")
        self._line = line
        # A vacuum cannot run inside of a transaction, and behind a pooler everything is in one.
        self._is_able = not settings.transaction_pooler
        self._settled = 0

    def settled(self, jobs: int) -> None:
        self._settled += jobs

    async def run_once(self) -> float:
        if self._settled >= ENOUGH and self._is_able:
            self._settled = 0
            for table in await self._line.run(littered()):
                await self._vacuum(table)
        elif not self._settled:
            await self._line.close()
        return LOOK_EVERY

    async def stop(self) -> None:
        await super().stop()
        await self._line.close()

    async def _vacuum(self, table: str) -> None:
        duty = f"vacuum {table}"
        if not await self._line.run(sessions.take_duties({duty: LOOK_EVERY})):
            return
        began = monotonic()
        try:
            await self._line.run(vacuum(table), MAINTENANCE_TIMEOUT)
        except Exception as error:  # noqa: BLE001 - autovacuum does it later
            emit(logging.WARNING, "maintenance.stopped", f"table {table} was not vacuumed: {first_line(error)}")
        await self._line.run(sessions.put_off_duty(duty, (monotonic() - began) / SHARE))
