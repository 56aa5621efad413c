"""Keeps log lines in the database: whatever a process says, from a level on, a second later in one place for all.

Nobody who says something waits for it. Lines go into a buffer of bounded size, from any thread, and are written in
batches beside everything else. When more is said than can be written, the oldest lines are dropped, and one line says
how many. A database that is away is waited for; trouble of its own is told to the other handlers alone, and seldom.
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

from sereno.database.connect import Line
from sereno.errors import DatabaseUnavailable
from sereno.settings import Settings
from sereno.telemetry import central_log
from sereno.telemetry.log_events import emit, logger
from sereno.telemetry.log_record import as_line
from sereno.telemetry.service import Service
from sereno.worker import sessions
from sereno.worker.maintenance.retention import forget_lines

# What waits to be written: lines, and bytes of them.
MOST_LINES, MOST_BYTES = 10_000, 16 * 1024 * 1024
# What is written at once.
BATCH_LINES, BATCH_BYTES = 500, 1024 * 1024
EVERY, AT_ONCE, AFTER_TROUBLE = 1.0, 0.1, 5.0
# A line that could not be written for so long is dropped; who looks for the past of the log counts on it.
OLDEST = 600.0
COMPLAIN_EVERY = 60.0
# The connection is given back when nothing was said for so long.
IDLE_AFTER = 60.0
# How long the last lines of a process may take.
LAST_WORDS = 2.0
# Whether somebody has forgotten old lines is asked this often, and done so often.
ASK_FIRST, ASK_EVERY, FORGET_EVERY = 60.0, 600.0, 3600.0

UNWRITTEN = "logs.unwritten"
DROPPED = "logs.dropped"
# On a record: for which databases it was kept already.
_KEPT = "_sereno_kept"


class LogBuffer(logging.Handler):
    """Lines that wait to be written. Takes them from any thread, and never makes one wait or fail."""

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
        """Without the lock that other handlers hold while they format."""
        try:
            self.emit(record)
        except TimeoutError:
            # The deadline of a job, which is raised in its thread from outside: not ours to keep.
            raise
        except Exception:  # noqa: BLE001 - who says something must never be hurt by it
            self.drop(1)
        return True

    def emit(self, record: logging.LogRecord) -> None:
        kept_in: tuple[int, ...] = getattr(record, _KEPT, ())
        if not kept_in:
            _tell_nobody_else(record)
        if self._database in kept_in or getattr(record, "event", None) == UNWRITTEN or hasattr(self._busy, "now"):
            return
        setattr(record, _KEPT, (*kept_in, self._database))
        # Whoever says something while a line is made of what they said is not heard.
        self._busy.now = True
        try:
            seen = monotonic()
            line = as_line(record, seen)
        finally:
            del self._busy.now
        self._put(seen, line)

    def take(self) -> list[tuple[float, bytes]]:
        """The oldest, as many as fit into a batch."""
        self.acquire()
        try:
            taken: list[tuple[float, bytes]] = []
            room = BATCH_BYTES
            while self._lines and len(taken) < BATCH_LINES and (not taken or len(self._lines[0][1]) <= room):
                taken.append(self._lines.popleft())
                room -= len(taken[-1][1])
            self._bytes -= BATCH_BYTES - room
            self._is_full = False
            return taken
        finally:
            self.release()

    @property
    def waiting(self) -> int:
        return len(self._lines)

    def drop(self, count: int) -> None:
        """So many are not kept; fewer than none, when that was written."""
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
            tell = len(self._lines) >= BATCH_LINES and not self._is_full
            self._is_full = self._is_full or tell
        finally:
            self.release()
        if tell:
            self._on_full()


class LogWriter(Service):
    """Writes them: `async with LogKeeper(url, settings): …` around what a process does."""

    def __init__(self, url: str, settings: Settings) -> None:
        super().__init__("log keeper")
        self._settings = settings
        self._line = Line(url, settings, "log")
        self._buffer: LogBuffer | None = None
        if settings.keep_logs != "off":
            level = logging.getLevelNamesMapping()[settings.keep_logs.upper()]
            self._buffer = LogBuffer(level, hash((url, settings.schema)), self._on_full)
        self._home: asyncio.AbstractEventLoop | None = None
        self._batch: list[tuple[float, bytes]] = []
        self._complained_at = -math.inf
        self._used_at = -math.inf
        self._ask_at = monotonic() + ASK_FIRST
        self._forgets = False

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def start(self) -> None:
        self._home = asyncio.get_running_loop()
        if self._buffer is not None:
            logger.addHandler(self._buffer)
        super().start()

    async def stop(self) -> None:
        """The last words are written too, if the database answers."""
        await super().stop()
        if self._buffer is not None:
            logger.removeHandler(self._buffer)
        try:
            async with asyncio.timeout(LAST_WORDS):
                while await self._write():
                    pass
        except Exception as error:  # noqa: BLE001 - a process that ends must not fail for its log
            self._complain(error)
        await self._line.close()

    async def run_once(self) -> float:
        try:
            more = await self._write()
            more = await self._forget() or more
        except Exception as error:  # noqa: BLE001 - it must not say so in its own log, over and over
            self._complain(error)
            return AFTER_TROUBLE
        return AT_ONCE if more else EVERY

    async def _write(self) -> bool:
        """One batch; whether there is more."""
        if self._buffer is None:
            return False
        self._batch = self._batch or self._buffer.take()
        now = monotonic()
        young = [(seen, line) for seen, line in self._batch if now - seen < OLDEST]
        self._buffer.drop(len(self._batch) - len(young))
        self._batch = young
        dropped = self._buffer.dropped
        if not young and not dropped:
            return await self._rest_the_line(now)
        lines = [line for _, line in young] + ([_of_dropped(dropped, now)] if dropped else [])
        try:
            await self._line.run(central_log.add(lines, now))
        except DatabaseUnavailable:
            raise
        except Exception:
            # It will not have them: the next ones may be luckier.
            self._batch = []
            self._buffer.drop(len(young))
            raise
        self._batch, self._used_at = [], now
        self._buffer.drop(-dropped)
        return self._buffer.waiting >= (1 if self.stopping else BATCH_LINES)

    async def _rest_the_line(self, now: float) -> bool:
        if now - self._used_at > IDLE_AFTER:
            await self._line.close()
        return False

    async def _forget(self) -> bool:
        """A batch of what is past its retention, where it is our turn; whether there is more."""
        now = monotonic()
        if not self._forgets:
            if now < self._ask_at:
                return False
            self._ask_at, self._used_at = now + ASK_EVERY, now
            self._forgets = bool(await self._line.run(sessions.take_duties({"logs": FORGET_EVERY})))
        if self._forgets:
            self._forgets = await forget_lines(self._line, self._settings)
        return self._forgets

    def _on_full(self) -> None:
        """Called in any thread."""
        with suppress(RuntimeError):
            # The loop may have ended meanwhile.
            if self._home is not None:
                self._home.call_soon_threadsafe(self.wake)

    def _complain(self, error: BaseException) -> None:
        now = monotonic()
        if now - self._complained_at > COMPLAIN_EVERY:
            self._complained_at = now
            first = next(iter(str(error).splitlines()), type(error).__name__)
            emit(logging.WARNING, UNWRITTEN, f"log lines cannot be kept in the database now: {first}")


def _of_dropped(count: int, now: float) -> bytes:
    words = f"lines of the log that were not kept, because more was said than could be written: {count:,}"
    record = logging.makeLogRecord({"levelno": logging.WARNING, "msg": words, "event": DROPPED})
    return as_line(record, now)


def _tell_nobody_else(record: logging.LogRecord) -> None:
    """Where nobody has set up logging, Python writes warnings to stderr; that we listen must not silence them."""
    last = logging.lastResort
    if last is None or record.levelno < last.level:
        return
    at: logging.Logger | None = logging.getLogger(record.name)
    while at is not None:
        if any(not isinstance(handler, LogBuffer) for handler in at.handlers):
            return
        at = at.parent if at.propagate else None
    last.handle(record)
