"""The trace of a caller, from the header `traceparent` of its request."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

from fastapi import Depends, Header

from sereno.telemetry import tracing


def _caller_trace(
    traceparent: Annotated[
        str | None,
        Header(description="W3C trace context: the trace of the caller. Ignored if malformed."),
    ] = None,
) -> str | None:
    return traceparent if traceparent is not None and tracing.is_traceparent(traceparent) else None


CallerTrace = Annotated[str | None, Depends(_caller_trace)]


@contextmanager
def continued(caller: str | None) -> Iterator[str | None]:
    """Continue the trace of a caller. Yield what to store, which is None if the current span is stored instead."""
    if caller is None or tracing.active is None:
        yield caller
        return
    with tracing.active.under(caller):
        yield None
