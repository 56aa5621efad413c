"""Where OpenTelemetry joins in: around enqueues and around attempts. `sereno.contrib.opentelemetry` sets `active`.

A trace is any text, or a W3C traceparent: the latter names the span that has enqueued the job, so that the span of the
attempt can be its child. Both are found, shown and logged by the id of the trace.
"""

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
_LENGTH = 55


def trace_id(trace: str | None) -> str | None:
    """Return the id of a trace: the second part of a W3C traceparent, or the text itself."""
    if trace is None or len(trace) != _LENGTH:
        return trace
    found = _TRACEPARENT.fullmatch(trace)
    return trace if found is None else found[1]


class Tracing(Protocol):
    """What an implementation does. Jobs are `NewJob` and `ClaimedJob`; this package does not know their types."""

    def enqueuing(self, jobs: Sequence[Any]) -> AbstractContextManager[None]:
        """Return the span of an enqueue."""

    def with_trace(self, jobs: Sequence[Any]) -> Sequence[Any]:
        """Return the jobs; those without a trace of their own get the current span."""

    def current(self) -> str | None:
        """Return the current span as a traceparent, or None."""

    def traces(self, jobs: Sequence[Any]) -> bool:
        """Return whether the attempt of these jobs gets a span. It is called for every attempt, and has to be fast."""

    def attempt(self, jobs: Sequence[Any], hides_errors: bool, context: Any) -> AsyncIterator[None]:
        """The span of an attempt, around its middlewares and its handler. `hides_errors`: their texts are secret."""

    def flush(self) -> None:
        """Send the spans that wait to be sent, for some seconds at most: the process ends."""


active: Tracing | None = None


def of_attempt(jobs: Sequence[Any]) -> Tracing | None:
    """Return what makes the span of an attempt, or None if it has none."""
    return active if active is not None and active.traces(jobs) else None


def flush() -> None:
    """Send the spans that wait to be sent, before a process ends without its usual clean-up."""
    if active is not None:
        active.flush()


def set_active(tracing: Tracing | None) -> None:
    """Trace the enqueues and attempts of this process; None: do not."""
    global active  # noqa: PLW0603 - OpenTelemetry itself is set up once per process
    active = tracing
