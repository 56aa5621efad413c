"""Slow and hostile clients of a real server process are limited, and other clients are served."""

import re
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import httpx
import pytest

from sereno import Sereno
from sereno.access.operations import create
from tests.cli.conftest import PROGRAM, Command, process_environment
from tests.facts import TIMEOUT, until
from tests.plain_http import NO_CERTIFICATES
from tests.warm_process import WarmProcess

# The tests of the server with default settings are quick, those of servers with other settings are slow.
pytestmark = pytest.mark.quick

SOCKETS = 300
FILES = 256
SHORT = "0.5"
HALF_HEAD = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Slow: "
HALF_BODY = b"POST /sign-in HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\ntoken="
HALF_CHUNKS = b"POST /sign-in HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\ntok"
# A path that responds before it has read any of the body.
UNREAD_BODY = b"POST /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\ntoken="


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
        return httpx.get(f"{self.url}/livez", verify=NO_CERTIFICATES, timeout=TIMEOUT).status_code == 200


def rest(wire: socket.socket) -> bytes:
    """Return everything that is received until the other side closes or resets the connection."""
    parts = []
    try:
        while part := wire.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


@pytest.fixture(scope="module")
def database_url(shared_database_url: str) -> str:
    """Return one database for all tests: they change nothing that another one reads."""
    return shared_database_url


@contextmanager
def started(database_url: str, output: Path, *, files: int | None = None, **environment: str) -> Iterator[Server]:
    """Run a server process. `files`: how many it may open."""
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({files}, {files})); " if files else ""
    with output.open("wb") as file:
        process = WarmProcess(
            [sys.executable, "-c", limit + PROGRAM, "server", "--port", "0"],
            cwd=output.parent,
            env=process_environment(SERENO_DATABASE_URL=database_url) | environment,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    try:
        yield Server(process, output)
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def secret(database_url: str) -> str:
    """Return a token. Once one exists, all other clients are unauthenticated."""
    with closing(Sereno(database_url)) as app:
        return app.database.run(create("watcher", "viewer", actor="test")).secret


@pytest.fixture(scope="module")
def server(database_url: str, secret: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with the default settings that may open few files."""
    with started(database_url, tmp_path_factory.mktemp("server") / "output", files=FILES) as running:
        yield running


@pytest.fixture(scope="module")
def impatient(database_url: str, secret: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose clients have little time for a request."""
    output = tmp_path_factory.mktemp("impatient") / "output"
    with started(database_url, output, SERENO_SERVER_REQUEST_TIMEOUT=SHORT) as running:
        yield running


@pytest.fixture(scope="module")
def small(database_url: str, secret: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server for five connections."""
    output = tmp_path_factory.mktemp("small") / "output"
    with started(database_url, output, SERENO_SERVER_CONNECTIONS="5") as running:
        yield running


@pytest.mark.slow
def test_half_sent_requests_do_not_block_other_clients(server: Server) -> None:
    """There are more such requests than the process can open files, and none of them ends."""
    with ExitStack() as sockets:
        for number in range(SOCKETS):
            wire = sockets.enter_context(server.connect())
            wire.sendall((b"", HALF_HEAD, HALF_BODY)[number % 3])
        for _ in range(5):
            assert server.is_alive()
    assert server.is_alive()
    assert "Traceback" not in server.output
    assert len(server.output.splitlines()) < 20, server.output[-2000:]


@pytest.mark.slow
def test_every_kind_of_half_sent_request_is_dropped_for_others(small: Server, subtests: pytest.Subtests) -> None:
    for request in (b"", HALF_HEAD, HALF_BODY, HALF_CHUNKS):
        with subtests.test(request=request), ExitStack() as sockets:
            for _ in range(10):
                sockets.enter_context(small.connect()).sendall(request)
            for _ in range(3):
                assert small.is_alive()
    assert "Traceback" not in small.output


@pytest.mark.slow
def test_a_request_has_to_arrive_within_its_timeout(impatient: Server) -> None:
    for request in (HALF_HEAD, HALF_BODY, HALF_CHUNKS):
        assert impatient.exchange(request).startswith(b"HTTP/1.1 408 "), request
    assert impatient.exchange(b"") == b"", "a client without a request gets no response"
    assert b" 405 " in impatient.exchange(UNREAD_BODY).splitlines()[0], (
        "the client gets a response at once and is then disconnected"
    )
    # A second request on the same connection has its own timeout.
    responses = impatient.exchange(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n" + HALF_HEAD)
    assert re.findall(rb"HTTP/1.1 (\d+) ", responses) == [b"200", b"408"]
    assert "Traceback" not in impatient.output


@pytest.mark.slow
def test_a_client_that_trickles_gets_no_more_time(impatient: Server) -> None:
    with impatient.connect() as wire:
        wire.sendall(HALF_HEAD)
        with pytest.raises(OSError, match=r"reset|pipe|closed"):
            until(lambda: wire.sendall(b"x"))


@pytest.mark.slow
def test_streams_outlive_the_timeout_of_a_request(impatient: Server, secret: str, sereno: Command) -> None:
    headers = {"Authorization": f"Bearer {secret}", "Accept": "text/event-stream"}
    with httpx.stream(
        "GET", f"{impatient.url}/api/v1/stream", headers=headers, verify=NO_CERTIFICATES, timeout=TIMEOUT
    ) as stream:
        lines = stream.iter_lines()
        while next(lines) != "event: now":
            """Not received yet."""
        # Meanwhile three other clients time out, one after the other.
        for _ in range(3):
            assert impatient.exchange(HALF_HEAD).startswith(b"HTTP/1.1 408 ")
        sereno("queue", "pause", "mail", "--force")
        while next(lines) != "event: now":
            """Not received yet."""


@pytest.mark.slow
def test_a_client_that_reads_nothing_is_dropped(impatient: Server) -> None:
    """Responses to a client that reads none of them must not stay in memory."""
    request = b"GET /sign-in HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with impatient.connect(receive_buffer=4096) as wire, pytest.raises(OSError, match=r"reset|pipe"):
        until(lambda: wire.sendall(request * 50))


@pytest.mark.slow
def test_connections_are_limited_and_idle_ones_are_dropped_first(small: Server, secret: str) -> None:
    listen = (
        f"GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {secret}\r\n"
        "Accept: text/event-stream\r\n\r\n"
    ).encode()
    with ExitStack() as sockets:
        streams = [sockets.enter_context(small.connect()) for _ in range(4)]
        for wire in streams:
            wire.sendall(listen)
            assert wire.recv(4096).startswith(b"HTTP/1.1 200 ")
        oldest = sockets.enter_context(small.connect())
        oldest.sendall(HALF_HEAD)
        newer = sockets.enter_context(small.connect())
        assert rest(oldest) == b""
        newer.sendall(listen)
        assert newer.recv(4096).startswith(b"HTTP/1.1 200 ")
        # Streams are never dropped for others: one too many is refused.
        assert small.exchange(b"").startswith(b"HTTP/1.1 503 ")
    until(small.is_alive)


@pytest.mark.slow
def test_connections_that_cannot_be_accepted_are_logged_at_a_limited_rate(server: Server) -> None:
    assert server.is_alive()
    used = len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))
    with ExitStack() as sockets:
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (used, FILES))

        def is_refused() -> bool:
            """Connect once more: connections that were just closed may have freed descriptors."""
            sockets.enter_context(server.connect())
            return "cannot accept connections: [Errno 24]" in server.output

        until(is_refused)
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


@pytest.mark.slow
def test_a_request_whose_end_is_ambiguous_is_refused(server: Server) -> None:
    """A proxy in front of the server may see another end, and treat the rest as another client's request."""
    responses = [server.exchange(head + b"Host: localhost\r\n\r\n0\r\n\r\n" + SMUGGLED) for head in AMBIGUOUS]
    assert [re.findall(rb"HTTP/1.1 (\d+) ", response) for response in responses] == [[b"400"]] * len(AMBIGUOUS)


@pytest.mark.slow
def test_bad_requests_are_logged_at_a_limited_rate(server: Server) -> None:
    for _ in range(50):
        assert server.exchange(b"\x00\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    assert 0 < server.output.count("Invalid HTTP request") < 10


@pytest.mark.slow
def test_an_unauthenticated_client_cannot_make_the_server_buffer_a_large_body(
    server: Server, subtests: pytest.Subtests
) -> None:
    """Half-sent bodies of 4 MiB on 2,500 connections took 10 GB. Most of the body is unsent when the response comes."""
    for path, status in (("/sign-in", b"413"), ("/api/v1/inbox/mark", b"401"), ("/api/v1/jobs", b"401")):
        head = (
            f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            "Content-Length: 4000000\r\n\r\n"
        )
        with subtests.test(path=path), server.connect() as wire:
            wire.sendall(head.encode() + b"x" * 100_000)
            assert wire.recv(65536).split()[1] == status
    assert server.is_alive()
