"""Detects a child whose event loop is blocked, through a page of shared memory.

A thread of the child writes when the loop last ran and when the first deadline of the running jobs is due. A handler
that blocks the loop does not block the thread. A handler that holds the interpreter lock blocks both, and then the page
is no longer updated. Times are of the monotonic clock, which all processes of a machine share.
"""

import asyncio
import math
import mmap
import os
import struct
import tempfile
import threading
import time
from collections.abc import Callable

_PAGE = struct.Struct("dd")
# Seconds between two writes.
WRITE_EVERY = 0.25
# Seconds without a turn of the loop after which it counts as blocked.
BLOCKED_AFTER = 2.0


class WatchdogPage:
    """The shared page, used by the child to write and by the supervisor to read."""

    def __init__(self, descriptor: int | None = None) -> None:
        self.descriptor = _nameless_file() if descriptor is None else descriptor
        os.ftruncate(self.descriptor, mmap.PAGESIZE)
        self._page = mmap.mmap(self.descriptor, mmap.PAGESIZE)

    def write(self, last_turn: float, deadline: float | None) -> None:
        _PAGE.pack_into(self._page, 0, last_turn, math.inf if deadline is None else deadline)

    def is_blocked(self, now: float, stall_limit: float) -> bool:
        """Return whether the loop is blocked past the deadline of a job, or longer than `stall_limit` without one."""
        last_turn, deadline = _PAGE.unpack_from(self._page, 0)
        if last_turn == 0 or now - last_turn < BLOCKED_AFTER:
            return False
        return bool(now > deadline + 1.0 if deadline != math.inf else now - last_turn > stall_limit)

    def close(self) -> None:
        self._page.close()
        os.close(self.descriptor)


def _nameless_file() -> int:
    """Return the descriptor of an unlinked file, which only processes that inherit it can open."""
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


class WatchdogThread:
    """Writes the page from a thread of the child."""

    def __init__(self, page: WatchdogPage, deadline: Callable[[], float | None]) -> None:
        self._page = page
        self._deadline = deadline
        self._last_turn = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sereno watchdog", daemon=True)

    def start(self) -> None:
        self._write()
        self._thread.start()

    async def turn(self) -> None:
        """Record that the loop is running; runs as a task in the loop."""
        while True:
            self._last_turn = time.monotonic()
            await asyncio.sleep(WRITE_EVERY)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(timeout=1)

    def _run(self) -> None:
        while not self._stop.wait(WRITE_EVERY):
            self._write()

    def _write(self) -> None:
        due_in = self._deadline()
        self._page.write(self._last_turn, None if due_in is None else time.monotonic() + due_in)
