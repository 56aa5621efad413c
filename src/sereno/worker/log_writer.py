"""Writes the log lines of a process, from the level `keep_logs` on, to the central log in the database.

Logging never waits for the database. Lines of any thread go into a buffer of bounded size, and a background service
writes them in batches. If more lines arrive than can be written, the oldest are dropped, and one line reports how many.
While the database is unreachable, lines wait in the buffer. Errors of the writer itself are logged to the other
handlers only, at most once a minute.
"""

import asyncio
import logging
import math
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from types import TracebackType
from typing import Self

from sereno.database.connect import ServiceConnection
from sereno.errors import DatabaseUnavailable
from sereno.settings import Settings
from sereno.telemetry import central_log
from sereno.telemetry.log_events import emit, logger
from sereno.telemetry.log_record import as_line
from sereno.telemetry.service import Service
from sereno.worker import sessions
from sereno.worker.maintenance.retention import forget_lines

# Lines and bytes that may wait to be written; beyond them the oldest lines are dropped.
MOST_LINES, MOST_BYTES = 10_000, 16 * 1024 * 1024
# Lines and bytes of one batch.
BATCH_LINES, BATCH_BYTES = 500, 1024 * 1024
# Seconds between two writes: ordinary, while more lines wait, and after an error.
EVERY, AT_ONCE, AFTER_ERROR = 1.0, 0.1, 5.0
# Seconds after which an unwritten line is dropped; readers of past log lines rely on this bound.
OLDEST = 600.0
# Seconds between two warnings that lines cannot be written.
WARN_EVERY = 60.0
# Seconds without log lines after which the connection is closed.
IDLE_AFTER = 60.0
# Seconds that a process may spend on its last lines when it stops.
LAST_WRITE_TIMEOUT = 2.0
# Seconds until the first check whether old lines are due for deletion, between two checks, and between two deletions.
FIRST_CHECK, CHECK_EVERY, DELETE_EVERY = 60.0, 600.0, 3600.0

UNWRITTEN = "logs.unwritten"
DROPPED = "logs.dropped"
# Attribute of a log record: the databases for which it is buffered already.
_BUFFERED = "_sereno_buffered"


class LogBuffer(logging.Handler):
    """Buffers lines that wait to be written. Accepts them from any thread without blocking or raising."""

    def __init__(self, level: int, database: int, on_full: Callable[[], None]) -> None:
        super().__init__(level)
        self._database = database
        self._on_full = on_full
        self._lines: deque[tuple[float, bytes]] = deque()
        self._bytes = 0
        self._is_full = False
        self._busy = threading.local()
        self.dropped = 0

    def handle(self, record: logging.LogRecord) -> bool:
        """Handle a record without the lock that other handlers hold while they format."""
        try:
            self.emit(record)
        except TimeoutError:
            # The deadline of a job, raised in its thread from outside; it must reach the handler of the job.
            raise
        except Exception:  # noqa: BLE001 - logging must never fail its caller
            self.drop(1)
        return True

    def emit(self, record: logging.LogRecord) -> None:
        buffered_for: tuple[int, ...] = getattr(record, _BUFFERED, ())
        if not buffered_for:
            _use_last_resort(record)
        if self._database in buffered_for or getattr(record, "event", None) == UNWRITTEN or hasattr(self._busy, "now"):
            return
        setattr(record, _BUFFERED, (*buffered_for, self._database))
        # Records that are logged while this one is formatted are ignored: they would recurse.
        self._busy.now = True
        try:
            seen = monotonic()
            line = as_line(record, seen)
        finally:
            del self._busy.now
        self._put(seen, line)

    def take(self) -> list[tuple[float, bytes]]:
        """Remove and return the oldest lines, as many as fit into a batch."""
        self.acquire()
        try:
            batch: list[tuple[float, bytes]] = []
            free = BATCH_BYTES
            while self._lines and len(batch) < BATCH_LINES and (not batch or len(self._lines[0][1]) <= free):
                batch.append(self._lines.popleft())
                free -= len(batch[-1][1])
            self._bytes -= BATCH_BYTES - free
            self._is_full = False
            return batch
        finally:
            self.release()

    @property
    def waiting(self) -> int:
        return len(self._lines)

    def drop(self, count: int) -> None:
        """Count dropped lines; a negative count when their number has been reported."""
        self.acquire()
        try:
            self.dropped += count
        finally:
            self.release()

    def _put(self, seen: float, line: bytes) -> None:
        self.acquire()
        try:
            self._lines.append((seen, line))
            self._bytes += len(line)
            while len(self._lines) > MOST_LINES or self._bytes > MOST_BYTES:
                self._bytes -= len(self._lines.popleft()[1])
                self.dropped += 1
            became_full = len(self._lines) >= BATCH_LINES and not self._is_full
            self._is_full = self._is_full or became_full
        finally:
            self.release()
        if became_full:
            self._on_full()


class LogWriter(Service):
    """Writes buffered log lines: `async with LogWriter(url, settings): …` around the work of a process."""

    def __init__(self, url: str, settings: Settings) -> None:
        super().__init__("log writer")
        self._settings = settings
        self._connection = ServiceConnection(url, settings, "log")
        self._buffer: LogBuffer | None = None
        if settings.keep_logs != "off":
            level = logging.getLevelNamesMapping()[settings.keep_logs.upper()]
            self._buffer = LogBuffer(level, hash((url, settings.schema)), self._on_full)
        self._event_loop: asyncio.AbstractEventLoop | None = None
        self._batch: list[tuple[float, bytes]] = []
        self._warned_at = -math.inf
        self._used_at = -math.inf
        self._check_at = monotonic() + FIRST_CHECK
        self._is_deleting = False

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def start(self) -> None:
        self._event_loop = asyncio.get_running_loop()
        if self._buffer is not None:
            logger.addHandler(self._buffer)
        super().start()

    async def stop(self) -> None:
        """Stop, and write the remaining lines if the database responds in time."""
        await super().stop()
        if self._buffer is not None:
            logger.removeHandler(self._buffer)
        try:
            async with asyncio.timeout(LAST_WRITE_TIMEOUT):
                while await self._write():
                    pass
        except Exception as error:  # noqa: BLE001 - a process that exits must not fail because of its log
            self._warn(error)
        await self._connection.close()

    async def run_once(self) -> float:
        try:
            more = await self._write()
            more = await self._delete_old() or more
        except Exception as error:  # noqa: BLE001 - Service would log every failure, into the log that cannot be written
            self._warn(error)
            return AFTER_ERROR
        return AT_ONCE if more else EVERY

    async def _write(self) -> bool:
        """Write one batch; return whether there is more."""
        if self._buffer is None:
            return False
        self._batch = self._batch or self._buffer.take()
        now = monotonic()
        young = [(seen, line) for seen, line in self._batch if now - seen < OLDEST]
        self._buffer.drop(len(self._batch) - len(young))
        self._batch = young
        dropped = self._buffer.dropped
        if not young and not dropped:
            return await self._close_if_idle(now)
        lines = [line for _, line in young] + ([_of_dropped(dropped, now)] if dropped else [])
        try:
            await self._connection.run(central_log.add(lines, now))
        except DatabaseUnavailable:
            raise
        except Exception:
            # The database refuses these lines: drop them and try the next ones.
            self._batch = []
            self._buffer.drop(len(young))
            raise
        self._batch, self._used_at = [], now
        self._buffer.drop(-dropped)
        return self._buffer.waiting >= (1 if self.stopping else BATCH_LINES)

    async def _close_if_idle(self, now: float) -> bool:
        if now - self._used_at > IDLE_AFTER:
            await self._connection.close()
        return False

    async def _delete_old(self) -> bool:
        """Delete a batch of lines past their retention, if this process has the duty; return whether there is more."""
        now = monotonic()
        if not self._is_deleting:
            if now < self._check_at:
                return False
            self._check_at, self._used_at = now + CHECK_EVERY, now
            self._is_deleting = bool(await self._connection.run(sessions.take_duties({"logs": DELETE_EVERY})))
        if self._is_deleting:
            self._is_deleting = await forget_lines(self._connection, self._settings)
        return self._is_deleting

    def _on_full(self) -> None:
        """Wake the writer; called from any thread."""
        with suppress(RuntimeError):
            # The loop may be closed by now.
            if self._event_loop is not None:
                self._event_loop.call_soon_threadsafe(self.wake)

    def _warn(self, error: BaseException) -> None:
        now = monotonic()
        if now - self._warned_at > WARN_EVERY:
            self._warned_at = now
            first = next(iter(str(error).splitlines()), type(error).__name__)
            emit(logging.WARNING, UNWRITTEN, f"log lines cannot be written to the database now: {first}")


def _of_dropped(count: int, now: float) -> bytes:
    message = f"log lines dropped because they could not be written in time: {count:,}"
    record = logging.makeLogRecord({"levelno": logging.WARNING, "msg": message, "event": DROPPED})
    return as_line(record, now)


def _use_last_resort(record: logging.LogRecord) -> None:
    """Write a warning to stderr if no other handler is configured, as Python does without our handler."""
    last = logging.lastResort
    if last is None or record.levelno < last.level:
        return
    at: logging.Logger | None = logging.getLogger(record.name)
    while at is not None:
        if any(not isinstance(handler, LogBuffer) for handler in at.handlers):
            return
        at = at.parent if at.propagate else None
    last.handle(record)
