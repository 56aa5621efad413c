"""Where OpenTelemetry and Sentry join in: around sends, attempts and requests.

`sereno.contrib.opentelemetry` sets `active`; `sereno.contrib.sentry` adds a watcher of attempts.

A trace is any text, or a W3C traceparent: the latter names the span that has sent the job, event or signal, so that the
span of the attempt can be its child. Both are found, shown and logged by the id of the trace.
"""

import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, Protocol

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
_LENGTH = 55

# What is sent and is not a job.
SentKind = Literal["notify", "signal"]


def trace_id(trace: str | None) -> str | None:
    """Return the id of a trace: the second part of a W3C traceparent, or the text itself."""
    if trace is None or len(trace) != _LENGTH:
        return trace
    found = _TRACEPARENT.fullmatch(trace)
    return trace if found is None else found[1]


def is_traceparent(text: str) -> bool:
    """Return whether a text is a W3C traceparent that names a span. Version ff is none, and ids are not zero."""
    if _TRACEPARENT.fullmatch(text) is None or text.startswith("ff"):
        return False
    _, trace_number, span_number, _ = text.split("-")
    return trace_number.strip("0") != "" and span_number.strip("0") != ""


class AttemptWatcher(Protocol):
    """What runs around attempts. Jobs are `ClaimedJob`; this package does not know their type."""

    def traces(self, jobs: Sequence[Any]) -> bool:
        """Return whether it runs around the attempt of these jobs. Called for every attempt, it has to be fast."""

    def attempt(self, jobs: Sequence[Any], hides_errors: bool, context: Any) -> AsyncIterator[None]:
        """Run around an attempt, its middlewares and its handler. `hides_errors`: the texts of errors are secret."""

    def flush(self) -> None:
        """Send what waits to be sent, for some seconds at most: the process ends."""


class Tracing(AttemptWatcher, Protocol):
    """A watcher that also makes spans of what is sent. `enqueuing` and `with_trace` get `NewJob`."""

    def enqueuing(self, jobs: Sequence[Any]) -> AbstractContextManager[None]:
        """Return the span of an enqueue."""

    def sending(self, kind: SentKind, name: str) -> AbstractContextManager[None]:
        """Return the span that stores an event or a signal."""

    def delivering(
        self, channel: str, traces: Sequence[str], count: int
    ) -> AbstractContextManager[Callable[[Sequence[str]], None]]:
        """Return the span in which a channel sends messages. `traces`: of their events.

        What it yields is called with the codes of the messages that were refused.
        """

    def requesting(self, method: str, url: str) -> AbstractContextManager[Callable[[int | str], None]]:
        """Return the span of a request to a provider. What it yields is called with the status, or an error's code."""

    def under(self, traceparent: str) -> AbstractContextManager[None]:
        """Make the span of a caller the parent of those that begin meanwhile, unless there is a current span."""

    def link(self, traces: Sequence[str]) -> None:
        """Link the current span to those that these traces name."""

    def with_trace(self, jobs: Sequence[Any]) -> Sequence[Any]:
        """Return the jobs; those without a trace of their own get the current span."""

    def current(self) -> str | None:
        """Return the current span as a traceparent, or None."""

    def span_ids(self) -> tuple[str, str] | None:
        """Return the ids of the current trace and span, or None."""


active: Tracing | None = None
# Those beside `active`, inside of its span.
_watchers: list[AttemptWatcher] = []


def sending(kind: SentKind, name: str) -> AbstractContextManager[None]:
    """Return the span that stores an event or a signal, if this process is traced."""
    return nullcontext() if active is None else active.sending(kind, name)


def delivering(
    channel: str, traces: Sequence[str], count: int
) -> AbstractContextManager[Callable[[Sequence[str]], None]]:
    """Return the span in which a channel sends messages, if this process is traced."""
    return nullcontext(_ignore) if active is None else active.delivering(channel, traces, count)


def requesting(method: str, url: str) -> AbstractContextManager[Callable[[int | str], None]]:
    """Return the span of a request to a provider, if this process is traced."""
    return nullcontext(_ignore) if active is None else active.requesting(method, url)


def _ignore(_: object) -> None:
    """Ignore what a span would get."""


def current() -> str | None:
    """Return the current span as a traceparent, or None."""
    return None if active is None else active.current()


def of_attempt(jobs: Sequence[Any]) -> Sequence[AttemptWatcher]:
    """Return what runs around the attempt of these jobs, from the outside inwards."""
    # Called for every attempt; usually there is no watcher beside `active`.
    if not _watchers:
        return (active,) if active is not None and active.traces(jobs) else ()
    every = _watchers if active is None else (active, *_watchers)
    return [each for each in every if each.traces(jobs)]


def flush() -> None:
    """Send what waits to be sent, before a process ends without its usual clean-up."""
    for each in (*(() if active is None else (active,)), *_watchers):
        each.flush()


def set_active(tracing: Tracing | None) -> None:
    """Trace what this process sends and runs; None: do not."""
    global active  # noqa: PLW0603 - OpenTelemetry itself is set up once per process
    active = tracing


def add_watcher(watcher: AttemptWatcher) -> None:
    """Run this around the attempts of this process, too."""
    _watchers.append(watcher)


def remove_watcher(watcher: AttemptWatcher) -> None:
    _watchers.remove(watcher)
