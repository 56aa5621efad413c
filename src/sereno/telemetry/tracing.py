"""Where OpenTelemetry and Sentry join in: around enqueues and around attempts.

`sereno.contrib.opentelemetry` sets `active`; `sereno.contrib.sentry` adds a watcher of attempts.

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


class AttemptWatcher(Protocol):
    """What runs around attempts. Jobs are `ClaimedJob`; this package does not know their type."""

    def traces(self, jobs: Sequence[Any]) -> bool:
        """Return whether it runs around the attempt of these jobs. Called for every attempt, it has to be fast."""

    def attempt(self, jobs: Sequence[Any], hides_errors: bool, context: Any) -> AsyncIterator[None]:
        """Run around an attempt, its middlewares and its handler. `hides_errors`: the texts of errors are secret."""

    def flush(self) -> None:
        """Send what waits to be sent, for some seconds at most: the process ends."""


class Tracing(AttemptWatcher, Protocol):
    """A watcher that also makes spans of enqueues. Jobs are `NewJob` there."""

    def enqueuing(self, jobs: Sequence[Any]) -> AbstractContextManager[None]:
        """Return the span of an enqueue."""

    def with_trace(self, jobs: Sequence[Any]) -> Sequence[Any]:
        """Return the jobs; those without a trace of their own get the current span."""

    def current(self) -> str | None:
        """Return the current span as a traceparent, or None."""


active: Tracing | None = None


# Those beside `active`, inside of its span.
_watchers: list[AttemptWatcher] = []


def of_attempt(jobs: Sequence[Any]) -> Sequence[AttemptWatcher]:
    """Return what runs around the attempt of these jobs, from the outside inwards."""
    if active is None and not _watchers:
        return ()
    every = _watchers if active is None else (active, *_watchers)
    return [each for each in every if each.traces(jobs)]


def flush() -> None:
    """Send what waits to be sent, before a process ends without its usual clean-up."""
    for each in (*(() if active is None else (active,)), *_watchers):
        each.flush()


def set_active(tracing: Tracing | None) -> None:
    """Trace the enqueues and attempts of this process; None: do not."""
    global active  # noqa: PLW0603 - OpenTelemetry itself is set up once per process
    active = tracing


def add_watcher(watcher: AttemptWatcher) -> None:
    """Run this around the attempts of this process, too."""
    _watchers.append(watcher)


def remove_watcher(watcher: AttemptWatcher) -> None:
    _watchers.remove(watcher)
