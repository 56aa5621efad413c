"""Vacuums the job tables sooner than autovacuum does.

Autovacuum checks once a minute (`autovacuum_naptime`), whatever the parameters of a table, and every settled job leaves
two dead rows: at 15,000 jobs/s the table has grown by hundreds of megabytes until then. So a worker that has settled
many jobs reads the server's statistics and vacuums tables with too many dead rows. Only one worker at a time does this,
for a small share of the time: while an old transaction pins a snapshot, a vacuum reads the table and removes nothing.
"""

import logging
from time import monotonic

from sereno.database.connect import ServiceConnection
from sereno.database.vacuum import tables_to_vacuum, vacuum
from sereno.errors import first_line
from sereno.settings import Settings
from sereno.telemetry.log_events import emit
from sereno.telemetry.service import Service
from sereno.worker import sessions
from sereno.worker.maintenance.duties import MAINTENANCE_TIMEOUT

# Seconds between two checks.
POLL_INTERVAL = 5.0
# Jobs that this worker must have settled since the last check before it checks again.
ENOUGH = 5_000
# Share of the time that vacuums of a table may take.
SHARE = 0.1


class Vacuum(Service):
    """Checks the tables after this worker has settled many jobs. Its connection is open only while it works."""

    def __init__(self, connection: ServiceConnection, settings: Settings) -> None:
        super().__init__("vacuum")
        self._connection = connection
        # VACUUM cannot run inside a transaction, and behind a transaction pooler every statement is in one.
        self._is_able = not settings.transaction_pooler
        self._settled = 0

    def settled(self, jobs: int) -> None:
        self._settled += jobs

    async def run_once(self) -> float:
        if self._settled >= ENOUGH and self._is_able:
            self._settled = 0
            for table in await self._connection.run(tables_to_vacuum()):
                await self._vacuum(table)
        elif not self._settled:
            await self._connection.close()
        return POLL_INTERVAL

    async def stop(self) -> None:
        await super().stop()
        await self._connection.close()

    async def _vacuum(self, table: str) -> None:
        duty = f"vacuum {table}"
        if not await self._connection.run(sessions.take_duties({duty: POLL_INTERVAL})):
            return
        began = monotonic()
        try:
            await self._connection.run(vacuum(table), MAINTENANCE_TIMEOUT)
        except Exception as error:  # noqa: BLE001 - autovacuum does it later
            emit(logging.WARNING, "maintenance.stopped", f"table {table} was not vacuumed: {first_line(error)}")
        await self._connection.run(sessions.put_off_duty(duty, (monotonic() - began) / SHARE))
