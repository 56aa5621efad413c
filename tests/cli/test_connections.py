"""Slow and hostile clients of a real server process are limited, and other clients are served."""

import re
import resource
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.cli.conftest import PROGRAM, Command, process_environment
from tests.facts import TIMEOUT, until

SOCKETS = 300
FILES = 256
SHORT = "0.5"
HALF_HEAD = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Slow: "
HALF_BODY = b"POST /sign-in HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\ntoken="
HALF_CHUNKS = b"POST /sign-in HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\ntok"
# A path that responds before it has read any of the body.
UNREAD_BODY = b"POST /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\ntoken="

Start = Callable[..., "Server"]


class Server:
    """A server process and its output."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path) -> None:
        self.process = process
        self._output = output
        found = until(lambda: re.search(r"Listening at (http://127\.0\.0\.1:(\d+))/", self.output))
        assert found is not None
        self.url, self.port = found[1], int(found[2])

    @property
    def output(self) -> str:
        assert self.process.poll() is None, self._output.read_text()
        return self._output.read_text()

    def connect(self, *, receive_buffer: int | None = None) -> socket.socket:
        wire = socket.socket()
        if receive_buffer is not None:
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        wire.settimeout(TIMEOUT)
        wire.connect(("127.0.0.1", self.port))
        return wire

    def exchange(self, request: bytes) -> bytes:
        """Send the bytes, and return everything that is received until the server closes."""
        with self.connect() as wire:
            wire.sendall(request)
            return rest(wire)

    def is_alive(self) -> bool:
        return httpx.get(f"{self.url}/livez", timeout=TIMEOUT).status_code == 200


def rest(wire: socket.socket) -> bytes:
    """Return everything that is received until the other side closes or resets the connection."""
    parts = []
    try:
        while part := wire.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


@pytest.fixture
def start(database_url: str, sereno: Command, tmp_path: Path) -> Iterator[Start]:
    sereno("token", "create", "me", "--role", "admin")
    processes: list[subprocess.Popen[bytes]] = []

    def run(*, files: int | None = None, **environment: str) -> Server:
        limit = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({files}, {files})); " if files else ""
        output = tmp_path / f"output-{len(processes)}"
        with output.open("wb") as file:
            processes.append(
                subprocess.Popen(
                    [sys.executable, "-c", limit + PROGRAM, "server", "--port", "0"],
                    cwd=tmp_path,
                    env=process_environment(SERENO_DATABASE_URL=database_url) | environment,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                )
            )
        return Server(processes[-1], output)

    yield run
    for process in processes:
        process.kill()
        process.wait()


def test_half_sent_requests_do_not_block_other_clients(start: Start) -> None:
    """There are more such requests than the process can open files, and none of them ends."""
    server = start(files=FILES)
    with ExitStack() as sockets:
        for number in range(SOCKETS):
            wire = sockets.enter_context(server.connect())
            wire.sendall((b"", HALF_HEAD, HALF_BODY)[number % 3])
        for _ in range(5):
            assert server.is_alive()
    assert server.is_alive()
    assert "Traceback" not in server.output
    assert len(server.output.splitlines()) < 20, server.output[-2000:]


@pytest.mark.parametrize("request_", [b"", HALF_HEAD, HALF_BODY, HALF_CHUNKS])
def test_every_kind_of_half_sent_request_times_out(start: Start, request_: bytes) -> None:
    server = start(SERENO_SERVER_CONNECTIONS="5")
    with ExitStack() as sockets:
        for _ in range(10):
            sockets.enter_context(server.connect()).sendall(request_)
        for _ in range(3):
            assert server.is_alive()
    assert "Traceback" not in server.output


def test_a_request_has_to_arrive_within_its_timeout(start: Start) -> None:
    server = start(SERENO_SERVER_REQUEST_TIMEOUT=SHORT)
    for request in (HALF_HEAD, HALF_BODY, HALF_CHUNKS):
        assert server.exchange(request).startswith(b"HTTP/1.1 408 "), request
    assert server.exchange(b"") == b"", "a client without a request gets no response"
    assert b" 405 " in server.exchange(UNREAD_BODY).splitlines()[0], (
        "the client gets a response at once and is then disconnected"
    )
    # A second request on the same connection has its own timeout.
    responses = server.exchange(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n" + HALF_HEAD)
    assert re.findall(rb"HTTP/1.1 (\d+) ", responses) == [b"200", b"408"]
    assert "Traceback" not in server.output


def test_a_client_that_trickles_gets_no_more_time(start: Start) -> None:
    server = start(SERENO_SERVER_REQUEST_TIMEOUT=SHORT)
    with server.connect() as wire:
        wire.sendall(HALF_HEAD)
        with pytest.raises(OSError, match=r"reset|pipe|closed"):
            until(lambda: wire.sendall(b"x"))


def test_streams_outlive_the_timeout_of_a_request(start: Start, sereno: Command) -> None:
    secret = sereno("token", "create", "watcher").stdout.strip()
    server = start(SERENO_SERVER_REQUEST_TIMEOUT=SHORT)
    headers = {"Authorization": f"Bearer {secret}", "Accept": "text/event-stream"}
    with httpx.stream("GET", f"{server.url}/api/v1/stream", headers=headers, timeout=TIMEOUT) as stream:
        lines = stream.iter_lines()
        while next(lines) != "event: now":
            """Not received yet."""
        # Meanwhile three other clients time out, one after the other.
        for _ in range(3):
            assert server.exchange(HALF_HEAD).startswith(b"HTTP/1.1 408 ")
        sereno("queue", "pause", "mail")
        while next(lines) != "event: now":
            """Not received yet."""


def test_a_client_that_reads_nothing_is_dropped(start: Start) -> None:
    """Responses to a client that reads none of them must not stay in memory."""
    server = start(SERENO_SERVER_REQUEST_TIMEOUT=SHORT)
    request = b"GET /sign-in HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with server.connect(receive_buffer=4096) as wire, pytest.raises(OSError, match=r"reset|pipe"):
        until(lambda: wire.sendall(request * 50))


def test_connections_are_limited_and_idle_ones_are_dropped_first(start: Start, sereno: Command) -> None:
    secret = sereno("token", "create", "watcher").stdout.strip()
    server = start(SERENO_SERVER_CONNECTIONS="5")
    listen = (
        f"GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {secret}\r\n"
        "Accept: text/event-stream\r\n\r\n"
    ).encode()
    with ExitStack() as sockets:
        streams = [sockets.enter_context(server.connect()) for _ in range(4)]
        for wire in streams:
            wire.sendall(listen)
            assert wire.recv(4096).startswith(b"HTTP/1.1 200 ")
        oldest = sockets.enter_context(server.connect())
        oldest.sendall(HALF_HEAD)
        newer = sockets.enter_context(server.connect())
        assert rest(oldest) == b""
        newer.sendall(listen)
        assert newer.recv(4096).startswith(b"HTTP/1.1 200 ")
        # Streams are never dropped for others: one too many is refused.
        assert server.exchange(b"").startswith(b"HTTP/1.1 503 ")
    until(server.is_alive)


def test_connections_that_cannot_be_accepted_are_logged_at_a_limited_rate(start: Start) -> None:
    server = start(files=FILES)
    assert server.is_alive()
    used = len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))
    with ExitStack() as sockets:
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (used, FILES))
        # The connection that was just closed may have freed a descriptor.
        for _ in range(5):
            sockets.enter_context(server.connect())
        until(lambda: "cannot accept connections: [Errno 24]" in server.output)
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (FILES, FILES))
        assert server.is_alive()
    assert "Traceback" not in server.output
    assert server.output.count("cannot accept") < 10


SMUGGLED = b"GET /api/v1/smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"


AMBIGUOUS = [
    b"POST /sign-in HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n",
    b"POST /sign-in HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n",
    b"GET /livez HTTP/1.1\r\ncontent-length: 0\r\ntransfer-encoding: Chunked\r\n",
    b"POST /sign-in HTTP/1.0\r\nTransfer-Encoding: chunked\r\n",
    b"POST /sign-in HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n",
    b"POST /sign-in HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n",
]


def test_a_request_whose_end_is_ambiguous_is_refused(start: Start) -> None:
    """A proxy in front of the server may see another end, and treat the rest as another client's request."""
    server = start()
    responses = [server.exchange(head + b"Host: localhost\r\n\r\n0\r\n\r\n" + SMUGGLED) for head in AMBIGUOUS]
    assert [re.findall(rb"HTTP/1.1 (\d+) ", response) for response in responses] == [[b"400"]] * len(AMBIGUOUS)


def test_bad_requests_are_logged_at_a_limited_rate(start: Start) -> None:
    server = start()
    for _ in range(50):
        assert server.exchange(b"\x00\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    assert 0 < server.output.count("Invalid HTTP request") < 10


@pytest.mark.parametrize(
    ("path", "status"), [("/sign-in", b"413"), ("/api/v1/inbox/mark", b"401"), ("/api/v1/jobs", b"401")]
)
def test_an_unauthenticated_client_cannot_make_the_server_buffer_a_large_body(
    start: Start, path: str, status: bytes
) -> None:
    """Half-sent bodies of 4 MiB on 2,500 connections took 10 GB. Most of the body is unsent when the response comes."""
    server = start()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 4000000\r\n\r\n"
    )
    with server.connect() as wire:
        wire.sendall(head.encode() + b"x" * 100_000)
        assert wire.recv(65536).split()[1] == status
    assert server.is_alive()
