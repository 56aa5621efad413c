"""Renews the lease of a session from outside the event loop that runs handlers.

A supervisor renews the leases of its children. Without a supervisor, a thread with its own connection renews the lease,
so that a handler that blocks the loop does not lose it for all jobs of the session.
"""

import logging
import threading
import time
from typing import Protocol

import psycopg

from sereno.database.connect import BROKEN, connect
from sereno.database.statement import run
from sereno.errors import DatabaseUnavailable
from sereno.settings import Settings
from sereno.telemetry.log_events import emit
from sereno.worker.sessions import keep


def lease_end(sent: float, lease: float) -> float:
    """Return when the worker must stop, by the boot clock; the lease counts from the request, not from its reply."""
    return sent + lease - min(max(1.0, lease / 10), lease / 2)


def boot_clock() -> float:
    """Return seconds of a clock that also runs while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class LeaseHolder(Protocol):
    """Renews the lease of a session: a thread of this process, or the supervisor."""

    lost: bool
    lease_end: float

    def start(self) -> None: ...
    def stop(self) -> None: ...


class Heartbeat:
    """Renews the lease of one session in a thread. `registered_at`: when registration was sent, by the boot clock."""

    def __init__(self, url: str, settings: Settings, session: int, registered_at: float) -> None:
        self._url = url
        self._settings = settings
        self._session = session
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sereno heartbeat", daemon=True)
        self.lost = False
        self.lease_end = lease_end(registered_at, settings.lease)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5)

    def _run(self) -> None:
        while not self._stop.is_set() and not self.lost:
            try:
                with connect(self._url, self._settings, "heartbeat") as connection:
                    self._beat_on(connection)
            except (DatabaseUnavailable, *BROKEN) as error:
                emit(logging.WARNING, "heartbeat.failed", f"heartbeat: {error}", session=self._session)
                self._stop.wait(1.0)

    def _beat_on(self, connection: psycopg.Connection) -> None:
        while not self._stop.wait(self._settings.heartbeat):
            sent = boot_clock()
            alive = run(connection, keep([self._session], self._settings.lease), self._settings.schema)
            if self._session not in alive:
                self.lost = True
                return
            self.lease_end = lease_end(sent, self._settings.lease)
