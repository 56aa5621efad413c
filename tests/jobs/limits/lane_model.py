"""A reference model of limits in plain Python, without lanes and limiters, that checks every claim."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sereno.jobs.limits.limit import Limit, Rate

# Tolerance in seconds for floating-point and clock differences.
TOLERANCE = 1e-4


class Start(NamedTuple):
    """A claimed job: the columns of its row that limits depend on."""

    id: int
    queue: str
    keys: Mapping[str, Any] | None
    tenant: str | None
    at: float


@dataclass
class Bucket:
    """Tokens of one key. If the limit changed since the last start, the more generous numbers apply."""

    tokens: float
    at: float
    per_second: float
    burst: float

    def changed(self, per_second: float, burst: float) -> None:
        self.per_second = max(self.per_second, per_second)
        self.burst = max(self.burst, burst)

    def spend(self, units: float, at: float, per_second: float, burst: float) -> None:
        self.changed(per_second, burst)
        refilled = min(self.burst, self.tokens + max(0.0, at - self.at) * self.per_second)
        self.tokens = refilled - min(units, burst)
        assert self.tokens >= -TOLERANCE * max(1.0, self.per_second), f"{-self.tokens} tokens too many were spent"
        self.at, self.per_second, self.burst = max(at, self.at), per_second, burst


@dataclass
class Promises:
    """The current limits, and the jobs started under them."""

    slots: dict[str, int] = field(default_factory=dict)
    rates: dict[str, tuple[float, float]] = field(default_factory=dict)
    # Limits of whole queues, which apply to every job in them.
    own: dict[str, list[str]] = field(default_factory=dict)
    buckets: dict[tuple[str, str], Bucket] = field(default_factory=dict)
    closed: dict[tuple[str, str], float] = field(default_factory=dict)
    paused: set[str] = field(default_factory=set)

    def set(self, name: str, limit: Limit | Rate) -> None:
        if isinstance(limit, Limit):
            self.slots[name] = limit.slots
            return
        numbers = limit.numbers
        self.rates[name] = (numbers["units"] / numbers["period"], numbers["burst"])
        for (known, _), bucket in self.buckets.items():
            if known == name:
                bucket.changed(*self.rates[name])

    def limits_of(self, queue: str, keys: Mapping[str, Any] | None) -> list[tuple[str, str, int]]:
        """Return the limits of a job: name, key, units."""
        carried = [(name, key, units) for name, key, units in (keys or {}).get("limits", ())]
        return carried + [(name, "", 1) for name in self.own.get(queue, ())]

    def check(self, started: Sequence[Start], running: Iterable[tuple[str, Mapping[str, Any] | None]]) -> None:
        """Check started jobs. `running`: queue and keys of all running jobs, including the started ones."""
        busy: Counter[tuple[str, str]] = Counter()
        orders: Counter[tuple[str, str]] = Counter()
        for queue, keys in running:
            busy.update((name, key) for name, key, _ in self.limits_of(queue, keys))
            if keys and "order" in keys:
                orders[queue, keys["order"]] += 1
        assert not [key for key, count in orders.items() if count > 1], "two jobs of an order run"
        for start in started:
            assert start.tenant not in self.paused
            for name, key, _ in self.limits_of(start.queue, start.keys):
                assert name in self.slots or name in self.rates, f"{name} is not declared but admitted a job"
                assert busy[name, key] <= self.slots.get(name, 10**9), f"{name} {key!r} admits too many"
                assert start.at >= self.closed.get((name, key), 0.0) - TOLERANCE, f"{name} {key!r} is closed"

    def count(self, started: Sequence[Start]) -> None:
        """Record the starts."""
        for start in sorted(started, key=lambda each: each.at):
            for name, key, units in self.limits_of(start.queue, start.keys):
                if name in self.rates:
                    per_second, burst = self.rates[name]
                    new = Bucket(burst, start.at, per_second, burst)
                    self.buckets.setdefault((name, key), new).spend(units, start.at, per_second, burst)

    def is_rated(self, start: Start) -> bool:
        return any(name in self.rates for name, _, _ in self.limits_of(start.queue, start.keys))
