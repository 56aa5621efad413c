"""A receiver of OTLP over HTTP: keeps the spans that exporters send to it."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class OtlpReceiver:
    """`with OtlpReceiver() as receiver`: exporters send to `receiver.url`."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                request = ExportTraceServiceRequest.FromString(body)
                receiver.spans += [
                    span for each in request.resource_spans for scope in each.scope_spans for span in scope.spans
                ]
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1/traces"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def named(self, name: str) -> list[Span]:
        return [span for span in self.spans if span.name == name]


def values(span: Span) -> dict[str, Any]:
    """Return the attributes of a span."""
    return dict(_attributes(span))


def _attributes(span: Span) -> Iterator[tuple[str, Any]]:
    for each in span.attributes:
        kind = each.value.WhichOneof("value")
        yield each.key, getattr(each.value, kind)
