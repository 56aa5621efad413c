"""The base class of every background loop: settings in the constructor, `start`, `run_once`, `stop`.

`run_once` does one round and returns how many seconds to rest; `wake` ends the rest early. An error never ends a loop:
the round is repeated after growing, jittered pauses. The start and the end of a database outage are logged once.
"""

import asyncio
import logging
import random

from sereno.error_text import storable
from sereno.errors import DatabaseUnavailable
from sereno.telemetry.log_events import emit

# Seconds: the longest pause after a failed round; and how long `stop` waits for the current round.
LONGEST_PAUSE = 5.0
STOP_TIMEOUT = 3.0


class Service:
    """One background loop of a process."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._awake = asyncio.Event()
        self._loop_task: asyncio.Task[None] | None = None
        self._failures = 0
        self.rounds = 0
        self.stopping = False

    @property
    def is_healthy(self) -> bool:
        """Return whether it runs, and its last round succeeded."""
        return self.rounds > 0 and self._failures == 0 and not self.stopping

    async def run_once(self) -> float:
        """Do one round; return the seconds to rest."""
        raise AssertionError(f"{type(self).__name__} does not implement run_once")

    def start(self) -> None:
        self._loop_task = asyncio.create_task(self._loop(), name=f"sereno {self.name}")

    def wake(self) -> None:
        self._awake.set()

    async def stop(self) -> None:
        """Wait for the current round, so that no reply of the database is lost; cancel it if it takes too long."""
        task, self._loop_task = self._loop_task, None
        if task is None:
            return
        self.stopping = True
        self.wake()
        _, unfinished = await asyncio.wait([task], timeout=STOP_TIMEOUT)
        if unfinished:
            task.cancel()
            await asyncio.wait([task])

    async def _loop(self) -> None:
        while not self.stopping:
            self._awake.clear()
            rest = await self._round()
            self.rounds += 1
            await self._rest(rest)

    async def _round(self) -> float:
        try:
            rest = await self.run_once()
        except DatabaseUnavailable as error:
            return self._pause(f"{self.name}: {error}", "database.unavailable", None)
        except Exception as error:  # noqa: BLE001 - a loop that dies silently is worse than any error
            return self._pause(f"{self.name} failed: {storable(error)}", "service.failed", error)
        if self._failures:
            emit(logging.INFO, "service.recovered", f"{self.name} works again after {self._failures} failed rounds")
            self._failures = 0
        return rest

    def _pause(self, message: str, event: str, error: BaseException | None) -> float:
        self._failures += 1
        if self._failures == 1 or error is not None:
            emit(logging.WARNING, event, message, error=error)
        return float(min(LONGEST_PAUSE, 0.1 * 2**self._failures)) * random.uniform(0.5, 1.0)  # noqa: S311 - jitter

    async def _rest(self, seconds: float) -> None:
        if seconds <= 0 or self.stopping:
            await asyncio.sleep(0)
            return
        try:
            async with asyncio.timeout(seconds):
                await self._awake.wait()
        except TimeoutError:
            pass
