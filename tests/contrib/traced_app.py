"""An application that sends its spans to the receiver of a test, also from the processes of isolated tasks."""

import os

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from sereno import Sereno
from sereno.contrib.opentelemetry import instrument

app = Sereno()


@app.task(isolate=True, retry=0)
def alone() -> None: ...


@app.task(retry=0)
async def together() -> None: ...


# Only in the processes that the test starts: the test itself has a provider for each test.
if "TRACED_APP_RECEIVER" in os.environ:
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(os.environ["TRACED_APP_RECEIVER"])))
    instrument(provider)
