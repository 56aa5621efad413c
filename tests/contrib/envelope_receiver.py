"""A receiver of Sentry envelopes over HTTP: keeps the items that the SDK sends to it."""

import gzip
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self


class EnvelopeReceiver:
    """`with EnvelopeReceiver() as receiver`: the SDK sends to `receiver.dsn`."""

    def __init__(self) -> None:
        # Type and payload of each item, and the bytes of all envelopes.
        self.items: list[tuple[str, dict[str, Any]]] = []
        self.raw = b""
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                receiver.raw += body
                receiver.items += _items(body)
                self.send_response(200)
                self.send_header("content-length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_: Any) -> None:
                """Print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def dsn(self) -> str:
        return f"http://public@127.0.0.1:{self._server.server_port}/1"

    @property
    def events(self) -> list[dict[str, Any]]:
        return [item for kind, item in self.items if kind == "event"]

    @property
    def check_ins(self) -> list[dict[str, Any]]:
        return [item for kind, item in self.items if kind == "check_in"]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _items(body: bytes) -> list[tuple[str, dict[str, Any]]]:
    """Return the items of an envelope: after its header, a header and a payload of that length for each."""
    found = []
    _, _, rest = body.partition(b"\n")
    while rest.strip():
        line, _, rest = rest.partition(b"\n")
        header = json.loads(line)
        length = header.get("length", rest.find(b"\n"))
        found.append((header["type"], json.loads(rest[:length])))
        rest = rest[length:].removeprefix(b"\n")
    return found
