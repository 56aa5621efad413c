"""A receiver of OTLP over HTTP: keeps the spans, metrics and log records that exporters send to it."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class OtlpReceiver:
    """`with OtlpReceiver() as receiver`: exporters send to `receiver.url("traces")`, "metrics" and "logs"."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.metrics: list[Metric] = []
        self.records: list[LogRecord] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                receiver.store(self.path, self.rfile.read(int(self.headers["content-length"])))
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def store(self, path: str, body: bytes) -> None:
        match path.rsplit("/", 1)[1]:
            case "traces":
                for spans in ExportTraceServiceRequest.FromString(body).resource_spans:
                    self.spans += [span for scope in spans.scope_spans for span in scope.spans]
            case "metrics":
                for metrics in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                    self.metrics += [metric for scope in metrics.scope_metrics for metric in scope.metrics]
            case "logs":
                for logs in ExportLogsServiceRequest.FromString(body).resource_logs:
                    self.records += [record for scope in logs.scope_logs for record in scope.log_records]

    def url(self, signal: str) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1/{signal}"

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

    def points(self, name: str) -> list[Any]:
        """Return the newest data points of a metric."""
        metric = [each for each in self.metrics if each.name == name][-1]
        return list(getattr(metric, str(metric.WhichOneof("data"))).data_points)


def values(source: Any) -> dict[str, Any]:
    """Return the attributes of a span, of a data point or of a log record."""
    return dict(_attributes(source))


def _attributes(source: Any) -> Iterator[tuple[str, Any]]:
    for each in source.attributes:
        kind = each.value.WhichOneof("value")
        yield each.key, getattr(each.value, kind)
