"""Traceparents and the spans that they name."""

from collections.abc import Iterable

from opentelemetry.trace import Link, SpanContext, TraceFlags, TraceState, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from sereno.telemetry import tracing

# Links of one span; the SDK drops more than 128.
MOST_LINKS = 100
_HEADER = "traceparent"
_PROPAGATOR = TraceContextTextMapPropagator()


def current() -> str | None:
    """Return the current span as a traceparent, or None."""
    if not get_current_span().get_span_context().is_valid:
        return None
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier)
    return carrier.get(_HEADER)


def named_span(trace_text: str | None) -> SpanContext | None:
    """Return the span that a traceparent names; None for any other text."""
    if trace_text is None or tracing.trace_id(trace_text) is trace_text:
        return None
    _, trace_number, span_number, flags = trace_text.split("-")
    return SpanContext(
        int(trace_number, 16),
        int(span_number, 16),
        is_remote=True,
        trace_flags=TraceFlags(int(flags, 16)),
        trace_state=TraceState(),
    )


def named_spans(traces: Iterable[str | None], *, sampled: bool = False) -> list[SpanContext]:
    """Return the spans that these traces name, each once, and no more than a span can link to.

    `sampled`: only those that are sampled.
    """
    found: list[SpanContext] = []
    for text in dict.fromkeys(traces):
        if len(found) >= MOST_LINKS:
            break
        span = named_span(text)
        if span is not None and (span.trace_flags.sampled or not sampled):
            found.append(span)
    return found


def links(spans: Iterable[SpanContext]) -> list[Link]:
    """Return a link to each of these spans."""
    return [Link(span) for span in spans]
