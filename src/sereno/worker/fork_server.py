"""A process that has imported the application and forks processes on request.

A forked process starts within milliseconds and shares the memory of the imported modules. The server runs nothing else:
it has one thread, no event loop and no connection, so a fork cannot lose or share anything by accident. An application
that starts threads or opens connections when it is imported cannot be forked safely (see `why_unfit`).
"""

import asyncio
import gc
import os
import select
import signal
import socket
import sys
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

# Bytes of one message, and descriptors of one process.
LARGEST_MESSAGE = 1 << 20
MOST_DESCRIPTORS = 4


class ForkFailed(Exception):  # noqa: N818 - not an error: a fresh process is started instead
    """There is no server, or it cannot fork: start a fresh process instead."""


class StartedProcess(NamedTuple):
    """`ended`: its exit code, once it has ended; None if it is unknown, because the fork server ended first."""

    pid: int
    ended: "asyncio.Future[int | None]"


class ForkedProcess(NamedTuple):
    """What a forked process gets: the descriptors of the request, and the pid of the server, which is its parent."""

    descriptors: list[int]
    server: int


class ForkServer:
    """The handle of a fork server. `control`: the socket that connects it to the server."""

    def __init__(self, control: socket.socket) -> None:
        self._loop = asyncio.get_running_loop()
        self._control: socket.socket | None = control
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._requests: deque[asyncio.Future[StartedProcess]] = deque()
        self._ended: dict[int, asyncio.Future[int | None]] = {}
        control.setblocking(False)
        self._loop.add_reader(control.fileno(), self._receive)

    async def fork(self, descriptors: Sequence[int]) -> StartedProcess:
        """Fork a process that has these descriptors."""
        try:
            await asyncio.shield(self._ready)
            if self._control is None:
                raise ForkFailed("the fork server ended")
            socket.send_fds(self._control, [b"fork"], list(descriptors))
        except OSError as error:
            raise ForkFailed(str(error)) from error
        request: asyncio.Future[StartedProcess] = self._loop.create_future()
        self._requests.append(request)
        return await request

    def close(self, why: str = "the fork server was closed") -> None:
        """Let the server exit."""
        if self._control is None:
            return
        self._loop.remove_reader(self._control.fileno())
        self._control.close()
        self._control = None
        pending: list[asyncio.Future[Any]] = [self._ready, *self._requests]
        for waiting in pending:
            if not waiting.done():
                waiting.set_exception(ForkFailed(why))
                # Mark the exception as retrieved: it is possible that no task awaits this future.
                waiting.exception()
        for ended in self._ended.values():
            ended.set_result(None)
        self._ended.clear()

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
                ended = self._ended[int(pid)] = self._loop.create_future()
                request = self._requests.popleft()
                if not request.done():
                    request.set_result(StartedProcess(int(pid), ended))
            case ["ended", pid, code]:
                self._ended.pop(int(pid)).set_result(int(code))
            case ["unfit", *why]:
                self.close(" ".join(why))
            case _:
                self.close("the fork server ended")


def control_sockets() -> tuple[socket.socket, socket.socket]:
    """Return the two ends of the connection between a handle and its server."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def fork_server() -> socket.socket | ForkedProcess:
    """Fork a server from this process; return its control socket, and in the processes that it forks what they get."""
    ours, theirs = control_sockets()
    sys.stdout.flush()
    sys.stderr.flush()
    if os.fork() != 0:
        theirs.close()
        return ours
    ours.close()
    # Signals of a terminal or a service manager are for the supervisor; the server ends after it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    forked = serve_forks(theirs)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    return forked


def serve_forks(control: socket.socket) -> ForkedProcess:
    """Fork this process for each request; return in each forked process. Exit when the other end is closed."""
    # Imported objects are shared with the forked processes; a garbage collection there would write to all of them.
    gc.collect()
    gc.freeze()
    wakeup_reader, wakeup_writer = socket.socketpair()
    wakeup_writer.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakeup_writer.fileno(), warn_on_full_buffer=False)
    server = os.getpid()
    with suppress(BrokenPipeError):
        control.send(b"ready")
    while True:
        found, _, _ = select.select([control, wakeup_reader], [], [])
        if wakeup_reader in found:
            wakeup_reader.recv(4096)
            _report_ended(control)
        if control in found:
            message, descriptors = _request(control)
            if not message:
                os._exit(0)
            if _fork(control, descriptors) == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for each in (control, wakeup_reader, wakeup_writer):
                    each.close()
                return ForkedProcess(descriptors, server)


def _request(control: socket.socket) -> tuple[bytes, list[int]]:
    """Return the next request and its descriptors; an empty one when the other process has ended."""
    try:
        message, descriptors, _, _ = socket.recv_fds(control, LARGEST_MESSAGE, MOST_DESCRIPTORS)
    except ConnectionResetError:
        # It ended before it had read all messages.
        return b"", []
    return message, descriptors


def _fork(control: socket.socket, descriptors: Sequence[int]) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid != 0:
        for descriptor in descriptors:
            os.close(descriptor)
        _report(control, f"forked {pid}")
    return pid


def _report_ended(control: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        _report(control, f"ended {pid} {os.waitstatus_to_exitcode(status)}")


def _report(control: socket.socket, message: str) -> None:
    # If the other process has ended, the next read tells so.
    with suppress(OSError):
        control.send(message.encode())


def why_unfit(sockets: int) -> str | None:
    """Return why this process cannot be forked safely, given its sockets before the imports; None if it can."""
    threads = max(threading.active_count(), len(list(Path("/proc/self/task").iterdir())))
    if threads > 1:
        return f"the application starts {threads - 1} threads when it is imported"
    if open_sockets() > sockets:
        return "the application opens connections when it is imported"
    return None


def open_sockets() -> int:
    """Return the number of sockets that this process has; 0 on systems that cannot tell, where nothing is forked."""
    count = 0
    directory = Path("/proc/self/fd")
    for name in directory.iterdir() if directory.is_dir() else ():
        with suppress(OSError):
            count += str(name.readlink()).startswith("socket:")
    return count
