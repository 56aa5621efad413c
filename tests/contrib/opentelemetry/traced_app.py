"""An application that sends its telemetry to the receiver of a test, also from the processes of isolated tasks."""

import logging
import os

from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.instrumentation.logging.handler import LoggingHandler
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from sereno import Context, Sereno
from sereno.contrib.opentelemetry import instrument

app = Sereno()
log = logging.getLogger("shop")


@app.task(isolate=True, retry=0)
def alone(ctx: Context) -> None:
    log.warning("%s", ctx.task)


@app.task(retry=0)
async def together(ctx: Context) -> None:
    log.warning("%s", ctx.task)


# Only in the processes that the test starts: the test itself has a provider for each test.
if "TRACED_APP_RECEIVER" in os.environ:
    url = os.environ["TRACED_APP_RECEIVER"]
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{url}traces")))
    meters = MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter(f"{url}metrics"))])
    instrument(provider, meters)
    records = LoggerProvider()
    records.add_log_record_processor(SimpleLogRecordProcessor(OTLPLogExporter(f"{url}logs")))
    logging.getLogger().addHandler(LoggingHandler(logger_provider=records))
