"""Metrics by the API of OpenTelemetry: what was sent, and how long attempts ran.

Attempts are recorded when they are counted, many at once: the event loop is not held up by each of them.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from opentelemetry.metrics import MeterProvider

from sereno.telemetry.metrics import BUCKETS
from sereno.version import __version__

# Outcomes of attempts that failed.
FAILURES = ("retry", "crash", "dead")
# Codes of refusals that are counted each: a tenant's own server may invent them, and a counter keeps every one. The
# others have the name that the semantic conventions give them.
MOST_CODES = 100
OTHER = "_OTHER"


class Metrics:
    """Records the metrics of this process."""

    def __init__(self, provider: MeterProvider) -> None:
        self._provider = provider
        self._codes: set[str] = set()
        meter = provider.get_meter("sereno", __version__)
        self._sent = meter.create_counter(
            "messaging.client.sent.messages",
            "{message}",
            "Jobs, events, signals and messages to providers that were sent",
        )
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Jobs that attempts were made at"
        )
        self._ran = meter.create_histogram(
            "messaging.process.duration",
            "s",
            "From the start of an attempt to its end",
            explicit_bucket_boundaries_advisory=BUCKETS,
        )

    @contextmanager
    def sending(self, operation: str, counts: Mapping[str | None, int]) -> Iterator[None]:
        """Count what is sent within, by destination; with the type of the error that prevents it, if there is one."""
        try:
            yield
        except BaseException as error:
            self._add_sent(operation, counts, type(error).__qualname__)
            raise
        self._add_sent(operation, counts, None)

    def _add_sent(self, operation: str, counts: Mapping[str | None, int], error: str | None) -> None:
        for destination, count in counts.items():
            self._sent.add(count, _attributes(operation, destination, error))

    def delivered(self, channel: str, count: int, refusals: Sequence[str]) -> None:
        """Count the messages that a channel has sent. `refusals`: the codes of those that were refused."""
        if accepted := count - len(refusals):
            self._sent.add(accepted, _attributes("send", channel))
        for code, refused in Counter(self._known(code) for code in refusals).items():
            self._sent.add(refused, _attributes("send", channel, code))

    def _known(self, code: str) -> str:
        """Return the code, or OTHER if there are too many."""
        if code not in self._codes and len(self._codes) >= MOST_CODES:
            return OTHER
        self._codes.add(code)
        return code

    def ended(self, queue: str, task: str, outcome: str, ran: Sequence[float]) -> None:
        """Record attempts with the same outcome."""
        shared = _attributes("process", queue) | {"sereno.task": task}
        self._consumed.add(len(ran), shared)
        more = shared | {"sereno.outcome": outcome}
        if outcome in FAILURES:
            more["error.type"] = outcome
        for seconds in ran:
            self._ran.record(seconds, more)

    def flush(self, timeout: int) -> None:
        """Send what was recorded, for some milliseconds at most. A provider of the API alone cannot."""
        provider: Any = self._provider
        if flush := getattr(provider, "force_flush", None):
            flush(timeout)


def _attributes(operation: str, destination: str | None, error: str | None = None) -> dict[str, str]:
    found = {"messaging.system": "sereno", "messaging.operation.name": operation}
    if destination is not None:
        found["messaging.destination.name"] = destination
    if error is not None:
        found["error.type"] = error
    return found
