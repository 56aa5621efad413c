"""Jobs in a process of their own, which can be killed without harming anybody else.

A process is kept for the next isolated job as long as it ends its jobs cleanly. It speaks JSON lines over a socket of
its own, so a handler may print what it likes. The task is found again by module and name, as an import would.
"""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from sereno.domain.attempt import Crashed, Ending, Released, Settlement, Throttle
from sereno.domain.error_text import ErrorText
from sereno.domain.job import ClaimedJob
from sereno.domain.task import TaskDefinition
from sereno.engine.log_keeper import LAST_WORDS
from sereno.errors import ConfigurationError, DatabaseUnavailable
from sereno.store.database import Database

# The handler committed its own settlement with `ctx.transaction()`.
SETTLED_ELSEWHERE = Settlement("succeeded")
LINE_LIMIT = 64 * 1024 * 1024


class Order(msgspec.Struct):
    """What the other process is told: where the task is, and the job."""

    module: str
    qualname: str
    main_file: str | None
    job: ClaimedJob
    session: int


class Answer(msgspec.Struct):
    """What it says in the end: the decision, made where the exception was real."""

    outcome: str
    delay: float = 0.0
    until: datetime | None = None
    reason: str | None = None
    error: ErrorText | None = None
    failed: int = 0
    settled: bool = False
    throttle: Throttle | None = None


class Introduction(msgspec.Struct):
    """The first line to a new process."""

    url: str
    settings: dict[str, Any]
    path: list[str]


class _Process:
    def __init__(
        self, process: asyncio.subprocess.Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.process = process
        self.reader = reader
        self.writer = writer

    async def ask(self, line: bytes, on_ready: Callable[[], None]) -> bytes | None:
        """Its answer; an empty one if it died at work, None if it died before that."""
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

    async def leave(self) -> None:
        """Ended in peace: what its last job said is still on its way to the central log."""
        self.writer.close()
        try:
            async with asyncio.timeout(LAST_WORDS + 1):
                await self.process.wait()
        except TimeoutError:
            await self.kill()

    async def kill(self) -> int:
        # Not process.kill(): it polls first, and would take the exit status away from whoever waits for it.
        with suppress(ProcessLookupError):
            if self.process.returncode is None:
                os.kill(self.process.pid, signal.SIGKILL)
        self.writer.close()
        return await self.process.wait()


class Isolation:
    """The processes of one worker that run one job each.

    `announce` writes down which suspects run alone (job: attempt), before they begin; False when the session is over.
    """

    def __init__(self, database: Database, announce: Callable[[Mapping[int, int]], Awaitable[bool]]) -> None:
        self._database = database
        self._announce = announce
        self._suspects: dict[int, int] = {}
        self._idle: list[_Process] = []
        self._busy: set[_Process] = set()

    @staticmethod
    def can_find(definition: TaskDefinition) -> bool:
        """Whether another process can import the task."""
        return "<locals>" not in definition.function.__qualname__

    async def run(
        self, definition: TaskDefinition, job: ClaimedJob, session: int, on_ready: Callable[[], None]
    ) -> Ending:
        """One job, alone; `on_ready` when its process has started and imported the task. Cancelling kills it."""
        if not self.can_find(definition):
            raise ConfigurationError(
                f"task {definition.name} cannot be isolated: define it at the top level of a module"
            )
        if not job.crashes:
            return await self._run(definition, job, session, on_ready)
        self._suspects[job.id] = job.attempt
        try:
            if not await self._announce(self._suspects):
                return Released("its session is over", started=False)
            return await self._run(definition, job, session, on_ready)
        except DatabaseUnavailable as error:
            return Released(f"it could not be announced as a suspect: {error}", started=False)
        finally:
            del self._suspects[job.id]

    async def _run(
        self, definition: TaskDefinition, job: ClaimedJob, session: int, on_ready: Callable[[], None]
    ) -> Ending:
        order = msgspec.json.encode(_order(definition, job, session))
        while True:
            kept = bool(self._idle)
            process = self._idle.pop() if kept else await self._spawn()
            reply = await self._ask(process, order, on_ready)
            if reply:
                self._idle.append(process)
                return _ending(msgspec.json.decode(reply, type=Answer))
            code = await process.kill()
            # One that was kept may have died while it waited, which says nothing about this job: it had not begun.
            if reply is not None or not kept:
                return Crashed(f"its process died ({_spoken(code)})")

    async def close(self) -> None:
        for process in self._busy:
            await process.kill()
        await asyncio.gather(*(process.leave() for process in self._idle))
        self._idle.clear()

    async def _ask(self, process: _Process, order: bytes, on_ready: Callable[[], None]) -> bytes | None:
        self._busy.add(process)
        try:
            return await process.ask(order, on_ready)
        except BaseException:
            await process.kill()
            raise
        finally:
            self._busy.discard(process)

    async def _spawn(self) -> _Process:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "sereno.engine.isolated",
                str(theirs.fileno()),
                str(os.getpid()),
                pass_fds=[theirs.fileno()],
            )
        finally:
            theirs.close()
        reader, writer = await asyncio.open_connection(sock=ours, limit=LINE_LIMIT)
        introduction = Introduction(
            self._database.url,
            msgspec.to_builtins(self._database.settings),
            [path or str(Path.cwd()) for path in sys.path],
        )
        writer.write(msgspec.json.encode(introduction) + b"\n")
        return _Process(process, reader, writer)


def runs_alone(definition: TaskDefinition, job: ClaimedJob) -> bool:
    """Isolated tasks, and suspects: a process died while they ran in it, so next time only they can be harmed."""
    return definition.isolate or (job.crashes > 0 and Isolation.can_find(definition))


def _order(definition: TaskDefinition, job: ClaimedJob, session: int) -> Order:
    function = definition.function
    main_file = getattr(sys.modules.get("__main__"), "__file__", None) if function.__module__ == "__main__" else None
    return Order(function.__module__, function.__qualname__, main_file, job, session)


def _ending(answer: Answer) -> Settlement:
    if answer.settled:
        return SETTLED_ELSEWHERE
    return Settlement(
        outcome=answer.outcome,  # type: ignore[arg-type]  # it was a Settlement's outcome on the other side
        delay=answer.delay,
        until=answer.until,
        reason=answer.reason,
        error=answer.error,
        failed=answer.failed,
        throttle=answer.throttle,
    )


def _spoken(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
