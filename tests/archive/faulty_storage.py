"""A faulty store: a proxy in front of a real one that fails, cuts, changes and delays on demand."""

import http.client
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Literal, TypeAlias, cast

Fault: TypeAlias = Literal[
    "cut on the way in",
    "changed on the way in",
    "dropped on the way in",
    "changed on the way out",
    "cut on the way out",
    "shorter on the way out",
    "reset on the way in",
    "reset on the way out",
    "late",
    "slow to respond",
    "slow on the way out",
    "forbidden",
    "unavailable",
]
# Seconds of pauses: before a slow store hangs up, and between two of the fifty pieces it sends.
LONG, SHORT = 3.0, 0.2
# Bytes after which a slow store pauses.
LATE_BYTES = 1000


class FaultyStore:
    """Listens on loopback; `fault` applies to requests that begin from now on."""

    def __init__(self, target: tuple[str, int]) -> None:
        self.target = target
        self.fault: Fault | None = None
        # Restricts the fault: the end of a name, a method.
        self.only: str = ""
        self.method: str = ""
        self.served = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def fault_of(self, method: str, path: str) -> Fault | None:
        name = path.partition("?")[0]
        if not name.endswith(self.only) or (self.method and method != self.method):
            return None
        return self.fault

    @contextmanager
    def bad(self, fault: Fault, *, only: str = "", method: str = "") -> Iterator[None]:
        self.fault, self.only, self.method = fault, only, method
        try:
            yield
        finally:
            self.fault = None

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _handler(store: FaultyStore) -> type[BaseHTTPRequestHandler]:
    class Handler(_Forwarding):
        faulty = store

    return Handler


class _Forwarding(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    faulty: FaultyStore

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        """Logs nothing."""

    def do_GET(self) -> None:
        fault = self._record()
        if fault is None or not self._refused(fault):
            self._respond(*self._forward(b""), fault)

    do_HEAD = do_GET  # noqa: N815 - required by the library

    def do_PUT(self) -> None:
        fault = self._record()
        length = int(self.headers.get("Content-Length", 0))
        if fault == "reset on the way in":
            self.rfile.read(length // 2)
            self._reset()
            return
        body = self.rfile.read(length)
        if fault is not None and self._refused(fault):
            return
        match fault:
            case "cut on the way in":
                body = body[:-7]
            case "changed on the way in":
                body = _changed(body)
            case "dropped on the way in":
                self._respond(200, [("ETag", '"0123456789abcdef0123456789abcdef"')], b"", None)
                return
        self._respond(*self._forward(body), fault)

    do_POST = do_PUT  # noqa: N815 - required by the library
    do_DELETE = do_GET  # noqa: N815 - required by the library

    def _record(self) -> Fault | None:
        self.faulty.served += 1
        return self.faulty.fault_of(self.command, self.path)

    def _forward(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        """Return the response of the real store."""
        connection = http.client.HTTPConnection(*self.faulty.target, timeout=30)
        try:
            # The checksum header would not match the changed content.
            left_out = ("host", "content-length", "content-md5", "x-amz-content-sha256", "x-amz-checksum-sha256")
            headers = {name: value for name, value in self.headers.items() if name.lower() not in left_out}
            connection.request(self.command, self.path, body or None, headers)
            response = connection.getresponse()
            content = response.read()
            return response.status, response.getheaders(), content
        finally:
            connection.close()

    def _refused(self, fault: Fault) -> bool:
        match fault:
            case "forbidden":
                # Some stores repeat the request's credentials.
                repeated = " ".join([self.headers["Authorization"], *map(str, self.headers.values())])
                self._respond(403, [], f"<Error>AccessDenied {repeated}</Error>".encode(), None)
            case "unavailable":
                self._respond(503, [], b"<Error><Code>SlowDown</Code></Error>", None)
            case "slow to respond":
                time.sleep(LONG)
                self._reset()
            case _:
                return False
        return True

    def _respond(self, status: int, headers: list[tuple[str, str]], content: bytes, fault: Fault | None) -> None:
        is_content = self.command == "GET" and status < http.client.BAD_REQUEST
        if is_content and fault == "changed on the way out":
            content = _changed(content)
        if is_content and fault == "shorter on the way out":
            content = content[:-7]
        if is_content and fault == "late":
            time.sleep(SHORT * len(content) / LATE_BYTES)
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in ("content-length", "connection", "transfer-encoding") or self.command == "HEAD":
                self.send_header(name, value)
        if self.command != "HEAD":
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "HEAD":
            return
        if is_content and fault == "cut on the way out":
            self.wfile.write(content[: len(content) // 2])
            self.close_connection = True
        elif is_content and fault == "reset on the way out":
            self.wfile.write(content[: len(content) // 2])
            self._reset()
        elif is_content and fault == "slow on the way out":
            self._trickle(content)
        else:
            self.wfile.write(content)

    def _trickle(self, content: bytes) -> None:
        step = max(1, len(content) // 50)
        try:
            for start in range(0, len(content), step):
                self.wfile.write(content[start : start + step])
                self.wfile.flush()
                time.sleep(SHORT)
        except OSError:
            self.close_connection = True

    def _reset(self) -> None:
        """Reset the connection."""
        opened = cast(socket.socket, self.connection)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        # Closing the files would end the connection cleanly.
        opened.shutdown(socket.SHUT_RD)
        opened.close()


def _changed(content: bytes) -> bytes:
    """Flip one bit."""
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
