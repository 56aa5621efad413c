"""An application whose isolated processes send their spans to the receiver of the test."""

import os

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from sereno import Sereno
from sereno.contrib.opentelemetry import instrument

app = Sereno()


@app.task(isolate=True, retry=0)
def alone() -> None: ...


# Only in the processes that the worker starts: the test itself has a provider for each test.
if "TRACED_APP_RECEIVER" in os.environ and os.environ["TRACED_APP_TEST"] != str(os.getpid()):
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(os.environ["TRACED_APP_RECEIVER"])))
    instrument(provider)
