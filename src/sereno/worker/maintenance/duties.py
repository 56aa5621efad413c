"""Periodic maintenance duties, each done by one worker of many, on a connection that nothing else uses.

A duty is a list of steps. A step does one page of its work, bounded in rows and in time, and returns whether there is
more. So a timeout never discards more than a page, the next round continues where this one stopped, and a step that
fails does not block the others.
"""

import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import TypeAlias, TypeVar

from sereno.database.connect import ServiceConnection
from sereno.database.statement import Operation
from sereno.errors import first_line
from sereno.settings import Settings
from sereno.telemetry.log_events import emit
from sereno.telemetry.service import Service
from sereno.worker import sessions

_T = TypeVar("_T")

# Seconds between two checks whether a duty is due: the interval of the most frequent duty. Each check costs a
# connection and a statement, and an idle worker should run about one query a second in total.
CHECK_EVERY = 60.0
# Seconds that a page may take, for the client and for the server. The server cancels it first, so that no statement
# continues without its client.
MAINTENANCE_TIMEOUT = 60.0
STATEMENT_TIMEOUT = 50.0

Page: TypeAlias = Callable[[ServiceConnection], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class MaintenanceStep:
    """Part of a duty. `page` does a bounded part of the work and returns whether there is more."""

    name: str
    page: Page


@dataclass(frozen=True, slots=True)
class MaintenanceDuty:
    """Work that one worker of many does every `every` seconds."""

    name: str
    every: float
    steps: Sequence[MaintenanceStep]


class Maintenance(Service):
    """Does the due duties page by page, their steps in turn. Its connection is open only while there is work."""

    def __init__(self, name: str, connection: ServiceConnection, duties: Sequence[MaintenanceDuty]) -> None:
        super().__init__(name)
        self._connection = connection
        self._duties = {duty.name: duty for duty in duties}
        self._every = {duty.name: duty.every for duty in duties}
        self._left: deque[MaintenanceStep] = deque()
        self._checked_at = float("-inf")

    async def run_once(self) -> float:
        if not self._left or monotonic() > self._checked_at + CHECK_EVERY:
            await self._take_due()
        if not self._left:
            await self._connection.close()
            return CHECK_EVERY * random.uniform(1.0, 1.1)  # noqa: S311 - jitter
        await self._next_page()
        return 0.0

    async def stop(self) -> None:
        await super().stop()
        await self._connection.close()

    async def _take_due(self) -> None:
        self._checked_at = monotonic()
        for name in sorted(await self._connection.run(sessions.take_duties(self._every))):
            self._left.extend(step for step in self._duties[name].steps if step not in self._left)

    async def _next_page(self) -> None:
        step = self._left.popleft()
        try:
            more = await step.page(self._connection)
        except Exception as error:  # noqa: BLE001 - one failing step must not stop the others
            message = f"{self.name}: {step.name} failed and continues the next time: {first_line(error)}"
            emit(logging.WARNING, "maintenance.stopped", message, step=step.name)
        else:
            if more:
                self._left.append(step)


def maintenance_connection(url: str, settings: Settings, role: str) -> ServiceConnection:
    """Return a connection with a statement timeout on the server."""
    return ServiceConnection(url, settings, role, statement_timeout=STATEMENT_TIMEOUT)


async def run_page(connection: ServiceConnection, operation: Operation[_T]) -> _T:
    """Run one page. Each statement commits by itself, so no lock is held while this process is busy elsewhere."""
    return await connection.run(operation, MAINTENANCE_TIMEOUT)
