"""OpenTelemetry in the processes of a benchmark. Spans are exported to nowhere; metrics are recorded and not read."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON

from sereno.contrib.opentelemetry import instrument, uninstrument

SAMPLER = "BENCH_SAMPLER"

Sampling = Literal["", "off", "on", "metrics"]


class _Discard(SpanExporter):
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:  # noqa: ARG002 - the name of the base class
        return SpanExportResult.SUCCESS


def set_up() -> None:
    """Trace this process if the environment says so."""
    if sampling := os.environ.get(SAMPLER):
        provider = TracerProvider(sampler=ALWAYS_ON if sampling == "on" else ALWAYS_OFF)
        provider.add_span_processor(BatchSpanProcessor(_Discard()))
        instrument(provider, MeterProvider([InMemoryMetricReader()]) if sampling == "metrics" else None)


@contextmanager
def traced(sampling: Sampling) -> Iterator[None]:
    """Trace this process, and the workers that it starts meanwhile."""
    os.environ[SAMPLER] = sampling
    try:
        set_up()
        yield
    finally:
        del os.environ[SAMPLER]
        uninstrument()
