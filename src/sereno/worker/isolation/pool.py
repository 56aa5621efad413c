"""Runs jobs in separate processes, which can be killed without affecting other jobs.

A process that finishes its job cleanly is reused for the next isolated job, and ends after a minute without one. On
Linux it is forked from a server that has already imported the application (see preload); elsewhere, or if that is not
possible, it is started fresh. It exchanges JSON lines over its own socket, so a handler may print to stdout. The
task is found by module and name, as with an import.
"""

import asyncio
import inspect
import logging
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec

from sereno.database.database import Database
from sereno.error_text import ErrorText
from sereno.errors import ConfigurationError, DatabaseUnavailable
from sereno.jobs.attempt import CrashedAttempt, Ending, ReleasedAttempt, Settlement, Throttle
from sereno.jobs.chunks import ChunkBatch
from sereno.jobs.job import ClaimedJob
from sereno.jobs.task import Registry, TaskDefinition
from sereno.settings import Settings
from sereno.telemetry import log_events
from sereno.telemetry.log_events import emit
from sereno.worker.fork_server import ForkFailed, StartedProcess
from sereno.worker.isolation.preload import Preload, PreloadedServer
from sereno.worker.log_writer import LAST_WRITE_TIMEOUT

# The handler committed its own settlement with `ctx.transaction()`.
SETTLED_ELSEWHERE = Settlement("succeeded")
# Bytes of one message.
LINE_LIMIT = 64 * 1024 * 1024
COMMAND = (sys.executable, "-m", "sereno.worker.isolation.process")
# Seconds without a job after which a process ends, and after which the fork server ends.
IDLE_SECONDS = 60.0
SERVER_IDLE_SECONDS = 600.0


class JobRequest(msgspec.Struct):
    """The request to a process: where to find the task, and the job."""

    module: str
    qualname: str
    main_file: str | None
    job: ClaimedJob
    session: int


class CallReply(msgspec.Struct):
    """The response of a process: the settlement, decided there because the exception object exists only there."""

    outcome: str
    delay: float = 0.0
    until: datetime | None = None
    reason: str | None = None
    error: ErrorText | None = None
    failed: int = 0
    settled: bool = False
    throttle: Throttle | None = None
    # As JSON text.
    result: str | None = None
    wait_for: tuple[int, ...] = ()
    signal: str | None = None
    chunks: list[ChunkBatch] = []


class ProcessSettings(msgspec.Struct):
    """The first line to a new process: its database, settings and import path.

    `writes_lines`: the worker is a process of sereno, which configures logging, and not one of the application.
    """

    url: str
    settings: dict[str, Any]
    path: list[str]
    writes_lines: bool


class _IsolatedProcess:
    """An isolated process and the connection to it."""

    def __init__(self, process: StartedProcess, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.pid, self.ended = process
        self.reader = reader
        self.writer = writer
        self.idle_since = 0.0

    async def send(self, line: bytes, on_ready: Callable[[], None]) -> bytes | None:
        """Return the process's reply; empty if it died during the job, None if it died before the job started."""
        self.writer.write(line + b"\n")
        try:
            await self.writer.drain()
            ready = await self.reader.readline()
        except OSError:
            return None
        if not ready:
            return None
        on_ready()
        try:
            return await self.reader.readline()
        except OSError:
            return b""

    async def exit(self) -> None:
        """Let the process exit by itself, so that the last log lines of its job reach the central log."""
        self.writer.close()
        try:
            async with asyncio.timeout(LAST_WRITE_TIMEOUT + 1):
                await asyncio.shield(self.ended)
        except TimeoutError:
            await self.kill()

    async def kill(self) -> int | None:
        # By pid: Process.kill() polls first, and would consume the exit status that another task awaits.
        with suppress(ProcessLookupError):
            if not self.ended.done():
                os.kill(self.pid, signal.SIGKILL)
        self.writer.close()
        return await asyncio.shield(self.ended)


class IsolationPool:
    """The isolated processes of one worker, each with one job at a time.

    `announce` stores which suspects run alone (job: attempt) before they start; it returns False if the session ended.
    """

    def __init__(
        self, database: Database, registry: Registry, announce: Callable[[Mapping[int, int]], Awaitable[bool]]
    ) -> None:
        self._database = database
        self._registry = registry
        self._announce = announce
        self._suspects: dict[int, int] = {}
        self._server: PreloadedServer | None = None
        self._forks = sys.platform == "linux"
        self._ending: set[asyncio.Task[None]] = set()
        self._used_at = 0.0
        self._idle: list[_IsolatedProcess] = []
        self._busy: set[_IsolatedProcess] = set()

    @staticmethod
    def can_find(definition: TaskDefinition) -> bool:
        """Return whether another process can import the task. It cannot import closures and methods of objects."""
        return "<locals>" not in definition.function.__qualname__ and not inspect.ismethod(definition.function)

    async def run(
        self, definition: TaskDefinition, job: ClaimedJob, session: int, on_ready: Callable[[], None]
    ) -> Ending:
        """Run one job in a process. `on_ready` is called once the task is imported. Cancelling kills the process."""
        if not self.can_find(definition):
            raise ConfigurationError(
                f"task {definition.name} cannot be isolated: define it at the top level of a module"
            )
        if not job.crashes:
            return await self._run(definition, job, session, on_ready)
        self._suspects[job.id] = job.attempt
        try:
            if not await self._announce(self._suspects):
                return ReleasedAttempt("the session ended before the job started", started=False)
            return await self._run(definition, job, session, on_ready)
        except DatabaseUnavailable as error:
            return ReleasedAttempt(f"the job could not be announced as a suspect: {error}", started=False)
        finally:
            del self._suspects[job.id]

    async def _run(
        self, definition: TaskDefinition, job: ClaimedJob, session: int, on_ready: Callable[[], None]
    ) -> Ending:
        request = msgspec.json.encode(_request(definition, job, session))
        while True:
            is_reused = bool(self._idle)
            process = self._idle.pop() if is_reused else await self._spawn()
            reply = await self._send(process, request, on_ready)
            if reply:
                self._used_at = process.idle_since = monotonic()
                self._idle.append(process)
                return _settlement(msgspec.json.decode(reply, type=CallReply))
            code = await process.kill()
            # A reused process may have died while it was idle. The job had not started then, so try another process.
            if reply is not None or not is_reused:
                return CrashedAttempt(f"its process died ({_exit_text(code)})")

    def trim(self) -> None:
        """End processes that have been idle for a while. The worker calls this a few times a second."""
        now = monotonic()
        while self._idle and now > self._idle[0].idle_since + IDLE_SECONDS:
            self._end_in_background(self._idle.pop(0).exit())
        if self._server is not None and not self._busy and not self._idle and now > self._used_at + SERVER_IDLE_SECONDS:
            server, self._server = self._server, None
            self._end_in_background(server.close())

    def _end_in_background(self, ending: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(ending)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        for process in list(self._busy):
            await process.kill()
        await asyncio.gather(*(process.exit() for process in self._idle), *self._ending)
        self._idle.clear()
        # The forked processes end together with the server.
        if self._server is not None:
            await self._server.close()

    async def _send(self, process: _IsolatedProcess, request: bytes, on_ready: Callable[[], None]) -> bytes | None:
        self._busy.add(process)
        try:
            return await process.send(request, on_ready)
        except BaseException:
            await process.kill()
            raise
        finally:
            self._busy.discard(process)

    async def _spawn(self) -> _IsolatedProcess:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        try:
            with theirs:
                process = await self._start(theirs.fileno())
        except BaseException:
            ours.close()
            raise
        reader, writer = await asyncio.open_connection(sock=ours, limit=LINE_LIMIT)
        settings = msgspec.to_builtins(self._database.settings)
        first = ProcessSettings(self._database.url, settings, _path(), log_events.configured)
        writer.write(msgspec.json.encode(first) + b"\n")
        return _IsolatedProcess(process, reader, writer)

    async def _start(self, descriptor: int) -> StartedProcess:
        """Start a process with this descriptor, forked if possible."""
        self._used_at = monotonic()
        if self._forks:
            if self._server is None:
                self._server = PreloadedServer(self._preload(), COMMAND)
            server = self._server
            try:
                return await server.fork(descriptor)
            except ForkFailed as error:
                self._forks = self._server is not server
                emit(logging.INFO, "isolation.fresh", f"isolated processes are started fresh, not forked: {error}")
        process = await asyncio.create_subprocess_exec(
            *COMMAND, str(descriptor), str(os.getpid()), pass_fds=[descriptor]
        )
        return StartedProcess(process.pid, asyncio.ensure_future(process.wait()))

    def _preload(self) -> Preload:
        modules = {_module(definition) for definition in self._registry if self.can_find(definition)}
        return Preload(_path(), environment(self._database.url, self._database.settings), list(modules))


def runs_alone(definition: TaskDefinition, job: ClaimedJob) -> bool:
    """Return whether a job needs its own process: an isolated task, or a suspect, whose last process died with it."""
    return definition.isolate or (job.crashes > 0 and IsolationPool.can_find(definition))


def environment(url: str, settings: Settings) -> dict[str, str]:
    """Return the variables that make the application, when it is imported again, use the database of its worker."""
    return {"SERENO_DATABASE_URL": url, "SERENO_SCHEMA": settings.schema}


def _path() -> list[str]:
    return [path or str(Path.cwd()) for path in sys.path]


def _module(definition: TaskDefinition) -> tuple[str, str | None]:
    """Return the module of the task, and its file if that is the main module."""
    name = definition.function.__module__
    return name, getattr(sys.modules.get("__main__"), "__file__", None) if name == "__main__" else None


def _request(definition: TaskDefinition, job: ClaimedJob, session: int) -> JobRequest:
    module, main_file = _module(definition)
    return JobRequest(module, definition.function.__qualname__, main_file, job, session)


def _settlement(response: CallReply) -> Settlement:
    if response.settled:
        return SETTLED_ELSEWHERE
    return Settlement(
        outcome=response.outcome,  # type: ignore[arg-type]  # the outcome of a Settlement in the other process
        delay=response.delay,
        until=response.until,
        reason=response.reason,
        error=response.error,
        failed=response.failed,
        throttle=response.throttle,
        result=None if response.result is None else response.result.encode(),
        wait_for=response.wait_for,
        signal=response.signal,
        chunks=response.chunks,
    )


def _exit_text(code: int | None) -> str:
    if code is None:
        return "with its fork server"
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
