"""OpenTelemetry: spans and metrics of what is sent and run, by the semantic conventions for messaging.

    from sereno.contrib.opentelemetry import instrument

    instrument()

Call it once per process, where the tracer provider is set up. Jobs, events and signals are sent in PRODUCER spans. The
first attempt of a job is a child of that span, in whatever process it runs, and so is one that continues after a wait.
An attempt after a failure begins a trace of its own and has a link to it. Where nothing is sampled, nothing is stored
and no span is made.
"""

from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import TracerProvider

from sereno.contrib.opentelemetry.metrics import Metrics
from sereno.contrib.opentelemetry.spans import OpenTelemetry
from sereno.telemetry import metering, tracing


def instrument(tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None) -> None:
    """Trace what this process sends and runs. `tracer_provider`: by default the global one.

    `meter_provider`: without it, no metrics are recorded; pass `metrics.get_meter_provider()` for the global one.
    """
    metrics = None if meter_provider is None else Metrics(meter_provider)
    tracing.set_active(OpenTelemetry(tracer_provider, metrics))
    metering.set_active(metrics)


def uninstrument() -> None:
    """Trace and record no more."""
    tracing.set_active(None)
    metering.set_active(None)
