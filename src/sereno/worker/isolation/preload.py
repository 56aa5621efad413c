"""The fork server of isolated processes: it imports the modules of the tasks first."""

import asyncio
import importlib
import importlib.util
import os
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from types import ModuleType

import msgspec

from sereno.worker.fork_server import (
    LARGEST_MESSAGE,
    ForkedProcess,
    ForkFailed,
    ForkServer,
    StartedProcess,
    control_sockets,
    open_sockets,
    serve_forks,
    why_unfit,
)

# Module name under which the main file of the worker is imported.
MAIN = "__sereno_main__"
# Seconds until a server that does not exit by itself is killed.
TIMEOUT = 2.0


class Preload(msgspec.Struct):
    """The first message to the server: the modules to import (by name, or a main file by path) and the import path."""

    path: list[str]
    environment: dict[str, str]
    modules: list[tuple[str, str | None]]


class PreloadedServer:
    """The worker's handle of its fork server, which is started by the first fork."""

    def __init__(self, preload: Preload, command: Sequence[str]) -> None:
        self._preload = preload
        self._command = command
        self._process: asyncio.subprocess.Process | None = None
        self._server: ForkServer | None = None
        self._starting: asyncio.Task[ForkServer] | None = None

    async def fork(self, descriptor: int) -> StartedProcess:
        """Fork a process that has this descriptor."""
        if self._starting is None:
            self._starting = asyncio.create_task(self._start())
        try:
            server = await asyncio.shield(self._starting)
        except OSError as error:
            raise ForkFailed(str(error)) from error
        return await server.fork([descriptor])

    async def close(self) -> None:
        if self._starting is not None:
            await asyncio.wait([self._starting])
        if self._server is not None:
            self._server.close()
        if self._process is None:
            return
        try:
            async with asyncio.timeout(TIMEOUT):
                await self._process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)
            await self._process.wait()

    async def _start(self) -> ForkServer:
        ours, theirs = control_sockets()
        with theirs:
            self._process = await asyncio.create_subprocess_exec(
                *self._command, str(theirs.fileno()), str(os.getpid()), "server", pass_fds=[theirs.fileno()]
            )
        ours.send(msgspec.json.encode(self._preload))
        self._server = ForkServer(ours)
        return self._server


def import_task_module(name: str, main_file: str | None) -> ModuleType:
    """Import and return the module of a task. A main file gets another name, so that it starts no second worker."""
    if main_file is None:
        return importlib.import_module(name)
    if MAIN not in sys.modules:
        spec = importlib.util.spec_from_file_location(MAIN, main_file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[MAIN] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[MAIN]
            raise
    return sys.modules[MAIN]


def import_and_serve(control: socket.socket) -> ForkedProcess | None:
    """Import what the first message names, then serve; return in each forked process. None: it cannot be forked."""
    preload = msgspec.json.decode(control.recv(LARGEST_MESSAGE), type=Preload)
    sys.path[:] = preload.path
    os.environ |= preload.environment
    sockets = open_sockets()
    for name, main_file in preload.modules:
        # A module that cannot be imported fails the job that needs it, in its own process, with the real error.
        with suppress(Exception):
            import_task_module(name, main_file)
    if why := why_unfit(sockets):
        control.send(f"unfit {why}".encode())
        return None
    return serve_forks(control)
