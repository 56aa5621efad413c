"""A process that has imported the application and forks isolated processes on request.

A forked process starts within milliseconds and shares the memory of the imported modules. The server runs nothing else:
it has one thread, no event loop and no connection, so a fork cannot lose or share anything by accident. An application
that starts threads or opens connections when it is imported cannot be forked safely; the server then reports why and
exits.
"""

import asyncio
import gc
import importlib
import importlib.util
import os
import select
import signal
import socket
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import msgspec

# Module name under which the main file of the worker is imported.
MAIN = "__sereno_main__"
# Bytes of one message.
LARGEST_MESSAGE = 1 << 20
# Seconds until a server that does not exit by itself is killed.
TIMEOUT = 2.0


class Preload(msgspec.Struct):
    """The first message to the server: the modules to import (by name, or a main file by path) and the import path."""

    path: list[str]
    environment: dict[str, str]
    modules: list[tuple[str, str | None]]


class ForkFailed(Exception):  # noqa: N818 - not an error: a fresh process is started instead
    """There is no server, or it cannot fork: start a fresh process instead."""


class ForkServer:
    """The worker's handle of the fork server."""

    def __init__(self, preload: Preload, command: Sequence[str]) -> None:
        self._preload = preload
        self._command = command
        self._process: asyncio.subprocess.Process | None = None
        self._control: socket.socket | None = None
        self._starting: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._requests: deque[asyncio.Future[tuple[int, asyncio.Future[int]]]] = deque()
        self._ended: dict[int, asyncio.Future[int]] = {}

    async def fork(self, descriptor: int) -> tuple[int, "asyncio.Future[int]"]:
        """Fork a process that has this descriptor; return its pid and a future of its exit code."""
        if self._starting is None:
            self._starting = asyncio.create_task(self._start())
        try:
            await asyncio.shield(self._starting)
            await asyncio.shield(self._ready)
            if self._control is None:
                raise ForkFailed("the fork server ended")
            socket.send_fds(self._control, [b"fork"], [descriptor])
        except OSError as error:
            raise ForkFailed(str(error)) from error
        request: asyncio.Future[tuple[int, asyncio.Future[int]]] = asyncio.get_running_loop().create_future()
        self._requests.append(request)
        return await request

    async def close(self) -> None:
        if self._starting is not None:
            await asyncio.wait([self._starting])
        self._fail("the fork server was closed")
        if self._process is None:
            return
        try:
            async with asyncio.timeout(TIMEOUT):
                await self._process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)
            await self._process.wait()

    async def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        with theirs:
            self._process = await asyncio.create_subprocess_exec(
                *self._command, str(theirs.fileno()), str(os.getpid()), "server", pass_fds=[theirs.fileno()]
            )
        self._control = ours
        asyncio.get_running_loop().add_reader(ours.fileno(), self._receive)
        ours.send(msgspec.json.encode(self._preload))

    def _receive(self) -> None:
        assert self._control is not None
        try:
            message = self._control.recv(LARGEST_MESSAGE).decode()
        except BlockingIOError:
            return
        except OSError:
            message = ""
        match message.split():
            case ["ready"]:
                self._ready.set_result(None)
            case ["forked", pid]:
                ended = self._ended[int(pid)] = asyncio.get_running_loop().create_future()
                request = self._requests.popleft()
                if not request.done():
                    request.set_result((int(pid), ended))
            case ["ended", pid, code]:
                self._ended.pop(int(pid)).set_result(int(code))
            case ["unfit", *why]:
                self._fail(" ".join(why))
            case _:
                self._fail("the fork server ended")

    def _fail(self, why: str) -> None:
        if self._control is None:
            return
        asyncio.get_running_loop().remove_reader(self._control.fileno())
        self._control.close()
        self._control = None
        pending: list[asyncio.Future[Any]] = [self._ready, *self._requests]
        for waiting in pending:
            if not waiting.done():
                waiting.set_exception(ForkFailed(why))
                # Mark the exception as retrieved: it is possible that no task awaits this future.
                waiting.exception()
        # The forked processes end together with their server.
        for ended in self._ended.values():
            ended.set_result(-signal.SIGKILL)
        self._ended.clear()


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


def serve_forks(control: socket.socket, run: Callable[[int, int], None]) -> None:
    """Run the fork server. `run` is the main function of a forked process; it gets a descriptor and the parent pid."""
    preload = msgspec.json.decode(control.recv(LARGEST_MESSAGE), type=Preload)
    sys.path[:] = preload.path
    os.environ |= preload.environment
    sockets = _open_sockets()
    for name, main_file in preload.modules:
        # A module that cannot be imported fails the job that needs it, in its own process, with the real error.
        with suppress(Exception):
            import_task_module(name, main_file)
    if why := _unfit(sockets):
        control.send(f"unfit {why}".encode())
        return
    # Imported objects are shared with the forked processes; a garbage collection there would write to all of them.
    gc.collect()
    gc.freeze()
    wakeup_reader, wakeup_writer = socket.socketpair()
    wakeup_writer.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakeup_writer.fileno(), warn_on_full_buffer=False)
    control.send(b"ready")
    while True:
        found, _, _ = select.select([control, wakeup_reader], [], [])
        if wakeup_reader in found:
            wakeup_reader.recv(4096)
            _report_ended(control)
        if control in found:
            message, descriptors, _, _ = socket.recv_fds(control, LARGEST_MESSAGE, 1)
            if not message:
                return
            _fork(control, (wakeup_reader, wakeup_writer), descriptors[0], run)


def _fork(
    control: socket.socket, others: Sequence[socket.socket], descriptor: int, run: Callable[[int, int], None]
) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    server = os.getpid()
    pid = os.fork()
    if pid == 0:
        _be_child(control, others, descriptor, server, run)
    os.close(descriptor)
    control.send(f"forked {pid}".encode())


def _be_child(
    control: socket.socket,
    others: Sequence[socket.socket],
    descriptor: int,
    server: int,
    run: Callable[[int, int], None],
) -> NoReturn:
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for each in (control, *others):
            each.close()
        run(descriptor, server)
        os._exit(0)
    except BaseException:  # noqa: BLE001 - whatever it is, this process must not continue as a second server
        traceback.print_exc()
    finally:
        os._exit(1)


def _report_ended(control: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        control.send(f"ended {pid} {os.waitstatus_to_exitcode(status)}".encode())


def _unfit(sockets: int) -> str | None:
    """Return why the imported application cannot be forked; None if it can."""
    threads = max(threading.active_count(), len(list(Path("/proc/self/task").iterdir())))
    if threads > 1:
        return f"the application starts {threads - 1} threads when it is imported"
    if _open_sockets() > sockets:
        return "the application opens connections when it is imported"
    return None


def _open_sockets() -> int:
    count = 0
    for name in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            count += str(name.readlink()).startswith("socket:")
    return count
