"""A process that has imported the application, and forks isolated processes from it when it is told to.

Such a process starts within milliseconds and shares the memory of what was imported. The server runs nothing else: it
has one thread, no event loop and no connection, so nothing can be lost or shared by accident in a fork. An application
that starts threads or opens connections when it is imported cannot be forked safely; the server says so and ends.
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

# How a task's module is called that was the main file of the worker.
MAIN = "__sereno_main__"
LARGEST_MESSAGE = 1 << 20
# Seconds until a server that does not end by itself is killed.
PATIENCE = 2.0


class Preload(msgspec.Struct):
    """The first message to the server: what to import (a module, or the path of a main file), and where."""

    path: list[str]
    environment: dict[str, str]
    modules: list[tuple[str, str | None]]


class ForkFailed(Exception):  # noqa: N818 - an answer, and no error: another way is taken
    """There is no server, or it cannot fork: start a fresh process instead."""


class ForkServer:
    """The server as the worker sees it."""

    def __init__(self, preload: Preload, command: Sequence[str]) -> None:
        self._preload = preload
        self._command = command
        self._process: asyncio.subprocess.Process | None = None
        self._control: socket.socket | None = None
        self._starting: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._asked: deque[asyncio.Future[tuple[int, asyncio.Future[int]]]] = deque()
        self._ended: dict[int, asyncio.Future[int]] = {}

    async def fork(self, descriptor: int) -> tuple[int, "asyncio.Future[int]"]:
        """A process that has this descriptor: its number, and its exit code when it ends."""
        if self._starting is None:
            self._starting = asyncio.create_task(self._start())
        try:
            await asyncio.shield(self._starting)
            await asyncio.shield(self._ready)
            if self._control is None:
                raise ForkFailed("it ended")
            socket.send_fds(self._control, [b"fork"], [descriptor])
        except OSError as error:
            raise ForkFailed(str(error)) from error
        asked: asyncio.Future[tuple[int, asyncio.Future[int]]] = asyncio.get_running_loop().create_future()
        self._asked.append(asked)
        return await asked

    async def close(self) -> None:
        if self._starting is not None:
            await asyncio.wait([self._starting])
        self._fail("it was closed")
        if self._process is None:
            return
        try:
            async with asyncio.timeout(PATIENCE):
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
        asyncio.get_running_loop().add_reader(ours.fileno(), self._hear)
        ours.send(msgspec.json.encode(self._preload))

    def _hear(self) -> None:
        assert self._control is not None
        try:
            said = self._control.recv(LARGEST_MESSAGE).decode()
        except BlockingIOError:
            return
        except OSError:
            said = ""
        match said.split():
            case ["ready"]:
                self._ready.set_result(None)
            case ["forked", pid]:
                ended = self._ended[int(pid)] = asyncio.get_running_loop().create_future()
                asked = self._asked.popleft()
                if not asked.done():
                    asked.set_result((int(pid), ended))
            case ["ended", pid, code]:
                self._ended.pop(int(pid)).set_result(int(code))
            case ["unfit", *why]:
                self._fail(" ".join(why))
            case _:
                self._fail("it ended")

    def _fail(self, why: str) -> None:
        if self._control is None:
            return
        asyncio.get_running_loop().remove_reader(self._control.fileno())
        self._control.close()
        self._control = None
        unanswered: list[asyncio.Future[Any]] = [self._ready, *self._asked]
        for waiting in unanswered:
            if not waiting.done():
                waiting.set_exception(ForkFailed(why))
                # Somebody may wait for it or not.
                waiting.exception()
        # They ended with their server.
        for ended in self._ended.values():
            ended.set_result(-signal.SIGKILL)
        self._ended.clear()


def import_task_module(name: str, main_file: str | None) -> ModuleType:
    """The module of a task. A main file is imported under another name, so that it does not start a second worker."""
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
    """The main function of the server. `run` is that of a forked process: its descriptor, its parent's number."""
    preload = msgspec.json.decode(control.recv(LARGEST_MESSAGE), type=Preload)
    sys.path[:] = preload.path
    os.environ |= preload.environment
    sockets = _open_sockets()
    for name, main_file in preload.modules:
        # What cannot be imported is told by the job that needs it, in a process of its own.
        with suppress(Exception):
            import_task_module(name, main_file)
    if why := _unfit(sockets):
        control.send(f"unfit {why}".encode())
        return
    # What was imported is shared with the forked processes; a collection there would write to all of it.
    gc.collect()
    gc.freeze()
    news, tells = socket.socketpair()
    tells.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(tells.fileno(), warn_on_full_buffer=False)
    control.send(b"ready")
    while True:
        found, _, _ = select.select([control, news], [], [])
        if news in found:
            news.recv(4096)
            _tell_ended(control)
        if control in found:
            message, descriptors, _, _ = socket.recv_fds(control, LARGEST_MESSAGE, 1)
            if not message:
                return
            _fork(control, (news, tells), descriptors[0], run)


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
    except BaseException:  # noqa: BLE001 - whatever it is, this process must not go on as a second server
        traceback.print_exc()
    finally:
        os._exit(1)


def _tell_ended(control: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        control.send(f"ended {pid} {os.waitstatus_to_exitcode(status)}".encode())


def _unfit(sockets: int) -> str | None:
    """Why what was imported cannot be forked; None when it can."""
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
