"""Connections of `sereno server`: each request has a deadline, their number has a limit, and log lines have a rate.

uvicorn waits for the rest of a request as long as the client likes, and accepts connections until the process runs out
of file descriptors. A client that sends half a request on a few hundred connections would make the server unreachable.
"""

import asyncio
import logging
from typing import Any

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol

from sereno.server.shared.log_rate import LogRate
from sereno.settings import Settings
from sereno.telemetry.log_events import emit

try:
    import resource
except ImportError:  # Windows has no such limit
    resource = None  # type: ignore[assignment]

# Connections that the kernel queues for the server, and that asyncio accepts in one go.
BACKLOG = 100
# File descriptors for everything else: the database, log files, connections that are accepted before one is closed.
RESERVED_FILES = 400
# Seconds between two checks of the deadlines of all connections.
SWEEP_SECONDS = 1.0
# Seconds after which the connection of a client that reads nothing may be dropped in favour of a new one.
STALLED_SECONDS = 5.0

_EMPTY = b"content-length: 0\r\nconnection: close\r\n\r\n"
TIMED_OUT = b"HTTP/1.1 408 Request Timeout\r\n" + _EMPTY
TOO_MANY = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 5\r\n" + _EMPTY


class ConnectionLimits:
    """The limits of one server, and its connections that wait for a request or for the rest of one, oldest first."""

    def __init__(self, settings: Settings) -> None:
        self.most, self.backlog = fit_file_limit(settings.server_connections)
        self.request_timeout = settings.server_request_timeout
        self.waiting: dict[ClientConnection, None] = {}
        self._connections: set[ClientConnection] = set()
        self._sweep: asyncio.TimerHandle | None = None

    def protocol(self) -> type[asyncio.Protocol]:
        """Return the protocol class for uvicorn's `http` option."""
        limits = self

        class LimitedConnections(ClientConnection):
            def __init__(self, config: Config, *arguments: Any, **options: Any) -> None:
                super().__init__(config, *arguments, limits=limits, **options)

        return LimitedConnections

    def add(self, connection: "ClientConnection") -> bool:
        """Count a connection. At the limit, the one that waited longest is dropped; return False when none waits."""
        if len(self._connections) >= self.most:
            oldest = next(iter(self.waiting), None)
            if oldest is None:
                return False
            self.remove(oldest)
            oldest.transport.abort()
        self._connections.add(connection)
        self.waiting[connection] = None
        self._schedule(connection.loop)
        return True

    def remove(self, connection: "ClientConnection") -> None:
        self._connections.discard(connection)
        self.waiting.pop(connection, None)

    def note(self, connection: "ClientConnection", *, is_waiting: bool) -> None:
        """Record whether a connection may be dropped in favour of a new one."""
        if not is_waiting:
            self.waiting.pop(connection, None)
        elif connection in self._connections:
            self.waiting.setdefault(connection, None)

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._sweep is None:
            pause = min(SWEEP_SECONDS, self.request_timeout / 4)
            self._sweep = loop.call_later(pause, self._check_all, loop)

    def _check_all(self, loop: asyncio.AbstractEventLoop) -> None:
        self._sweep = None
        for connection in list(self._connections):
            connection.check_deadlines(loop.time())
        if self._connections:
            self._schedule(loop)


class ClientConnection(H11Protocol):
    """One client. It has `request_timeout` seconds for each request, and as many to take what is written to it."""

    def __init__(self, *arguments: Any, limits: ConnectionLimits, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._limits = limits
        self._receiving_since: float | None = None
        self._writing_since: float | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._receiving_since = self.loop.time()
        if not self._limits.add(self):
            transport.write(TOO_MANY)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._limits.remove(self)
        # uvicorn does so only for connections that end without an error; a timer would keep this one in memory.
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        self._note_state()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._note_state()

    def resume_writing(self) -> None:
        self._writing_since = None
        super().resume_writing()
        self._note_state()

    def _note_state(self) -> None:
        """Run the clock of a request until all of it has arrived; a running response protects the connection."""
        if self.conn.their_state is h11.SEND_BODY or (self.conn.their_state is h11.IDLE and self._has_unread()):
            self._receiving_since = self._receiving_since or self.loop.time()
        else:
            self._receiving_since = None
        is_received = self._receiving_since is None or (self.cycle is not None and self.cycle.response_started)
        self._limits.note(self, is_waiting=not (self._is_responding() and is_received))

    def _is_responding(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _has_unread(self) -> bool:
        return bool(self.conn.trailing_data[0])

    def check_deadlines(self, now: float) -> None:
        """Close the connection if a deadline has passed. Called about once a second."""
        timeout = self._limits.request_timeout
        if self._is_held_up_by_us():
            self._receiving_since = now
        elif self._receiving_since is not None and now - self._receiving_since >= timeout:
            self._give_up()
        self._check_writing(now)

    def _check_writing(self, now: float) -> None:
        """Let a client that reads nothing be dropped in favour of others, and drop it at the deadline."""
        if not self.transport.get_write_buffer_size():
            if self._writing_since is not None:
                self._writing_since = None
                self._note_state()
        elif self._writing_since is None:
            self._writing_since = now
        elif now - self._writing_since >= self._limits.request_timeout:
            self.transport.abort()
        elif now - self._writing_since >= STALLED_SECONDS:
            self._limits.note(self, is_waiting=True)

    def _is_held_up_by_us(self) -> bool:
        """Return whether the application has not requested the body yet, so that the client cannot send it."""
        is_requested = self.cycle is None or not self.cycle.waiting_for_100_continue
        return self._receiving_since is not None and (self.flow.read_paused or not is_requested)

    def _give_up(self) -> None:
        self._receiving_since = None
        is_responding = self._is_responding()
        is_silent = not is_responding and not self._has_unread()
        if not self.transport.is_closing() and not is_silent and not (is_responding and self.cycle.response_started):
            self.transport.write(TIMED_OUT)
        if is_responding:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()


def fit_file_limit(connections: int) -> tuple[int, int]:
    """Return how many connections the process can hold, and a backlog to match, after raising its soft limit."""
    if resource is None:
        return connections, BACKLOG
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + RESERVED_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return connections, BACKLOG
    # With few descriptors, half is for the rest of the process. Up to three backlogs are accepted before one is closed.
    reserved = min(RESERVED_FILES, soft // 2)
    emit(
        logging.WARNING,
        "server.file_limit",
        f"at most {soft - reserved} connections instead of {connections}: raise the limit of open files (ulimit -n)",
    )
    return max(1, soft - reserved), max(1, min(BACKLOG, reserved // 4))


class RequestWarnings(logging.Filter):
    """For uvicorn's logger: any client can cause its warnings, so they must not fill the disk."""

    def __init__(self, rate: LogRate) -> None:
        super().__init__()
        self._rate = rate

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno != logging.WARNING:
            return True
        left_out = self._rate.count(str(record.msg))
        if left_out:
            record.msg = f"{record.msg} ({left_out} more since the last line)"
        return left_out is not None


def log_accept_errors_at_a_rate(loop: asyncio.AbstractEventLoop, rate: LogRate) -> None:
    """Replace the traceback that asyncio logs for each failed accept, hundreds of times a second."""

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not str(context.get("message", "")).startswith("socket.accept()"):
            loop.default_exception_handler(context)
            return
        left_out = rate.count("accept")
        if left_out is not None:
            message = f"cannot accept connections: {context.get('exception')} ({left_out} more since the last line)"
            emit(logging.ERROR, "server.accept_failed", message)

    loop.set_exception_handler(handle)
