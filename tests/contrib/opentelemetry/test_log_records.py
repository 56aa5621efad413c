"""Log records within an attempt carry its trace and span: those that OpenTelemetry sends, and the lines of sereno."""

import asyncio
import io
import json
import logging
from collections.abc import Callable, Iterator

import psycopg
import pytest
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.instrumentation.logging.handler import LoggingHandler
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.trace import Tracer

from sereno import Backoff, Context, Sereno
from sereno.telemetry.log_events import JsonFormatter
from tests.contrib.opentelemetry.conftest import only, run
from tests.contrib.opentelemetry.otlp_receiver import OtlpReceiver

log = logging.getLogger("shop")


@pytest.fixture
def written(receiver: OtlpReceiver) -> Iterator[Callable[[], list[dict[str, object]]]]:
    """Send the records of every logger to the receiver, and return a function that reads them as lines of sereno."""
    provider, lines = LoggerProvider(), io.StringIO()
    provider.add_log_record_processor(SimpleLogRecordProcessor(OTLPLogExporter(receiver.url("logs"))))
    as_json = logging.StreamHandler(lines)
    as_json.setFormatter(JsonFormatter())
    handlers = [LoggingHandler(logger_provider=provider), as_json]
    loggers = [log, logging.getLogger("sereno.job")]
    for logger in loggers:
        for handler in handlers:
            logger.addHandler(handler)
    yield lambda: [json.loads(line) for line in lines.getvalue().splitlines()]
    for logger in loggers:
        for handler in handlers:
            logger.removeHandler(handler)
    provider.shutdown()


def beside() -> None:
    log.warning("beside")


async def test_records_of_a_handler_have_its_span(
    app: Sereno,
    connection: psycopg.Connection,
    receiver: OtlpReceiver,
    tracer: Tracer,
    written: Callable[[], list[dict[str, object]]],
) -> None:
    @app.task(name="ship")
    async def ship(ctx: Context) -> None:
        log.warning("of the loop")
        ctx.log.warning("of the context")
        with tracer.start_as_current_span("query"):
            await asyncio.to_thread(beside)

    @app.task(name="pack")
    def pack(ctx: Context) -> None:
        log.warning("of a thread")

    ship.enqueue()
    pack.enqueue()
    await run(app, connection, 2)
    log.warning("afterwards")
    shipped, packed, query = (only(receiver.named(name)) for name in ("process ship", "process pack", "query"))
    spans = {
        "of the loop": shipped,
        "of the context": shipped,
        "of a thread": packed,
        "beside": query,
    }
    sent = {record.body.string_value: (record.trace_id, record.span_id) for record in receiver.records}
    assert sent == {text: (span.trace_id, span.span_id) for text, span in spans.items()} | {"afterwards": (b"", b"")}
    lines = {line["msg"]: (line.get("trace_id"), line.get("span_id")) for line in written()}
    assert lines == {text: (span.trace_id.hex(), span.span_id.hex()) for text, span in spans.items()} | {
        "afterwards": (None, None)
    }


async def test_lines_of_a_later_attempt_have_the_trace_of_the_job_and_their_own(
    app: Sereno,
    connection: psycopg.Connection,
    receiver: OtlpReceiver,
    tracer: Tracer,
    written: Callable[[], list[dict[str, object]]],
) -> None:
    @app.task(name="ship", retry=Backoff(retries=1, first="10ms"))
    async def ship(ctx: Context) -> None:
        ctx.log.warning("attempt %s", ctx.attempt)
        if ctx.attempt == 1:
            raise OSError("no ship")

    ship.enqueue()
    await run(app, connection, 1)
    first, second = receiver.named("process ship")
    lines = written()
    assert {line["trace_id"] for line in lines} == {first.trace_id.hex()}
    assert [line["span_id"] for line in lines] == [first.span_id.hex(), second.span_id.hex()]
    assert [line.get("span_trace_id") for line in lines] == [None, second.trace_id.hex()]
