"""Arrival and drain rates of each queue, and when it will be empty."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sereno.bounded_count import BoundedCount
from sereno.database.clock import clock
from sereno.database.statement import Operation
from sereno.jobs.queries.queues import QueueLine, list_queues
from sereno.monitoring import activity
from sereno.monitoring.activity import MinuteRow
from sereno.zones import moment

# Seconds: the time that charts cover, and the time over which a rate is measured.
SPAN = 3600.0
LATELY = 300.0
MINUTE = 60.0
# The share of the drain by which it has to exceed the arrival: below it, the difference is chance.
LEAST_GAIN = 0.1


@dataclass(frozen=True, slots=True)
class QueueFlow:
    """A queue with its last hour. Rates are in jobs per minute, over the last five minutes."""

    line: QueueLine
    minutes: list[MinuteRow]
    arrived: BoundedCount
    arrival: float
    drain: float

    @property
    def seconds_to_empty(self) -> float | None:
        """Return the seconds until it is empty at current rates; None if it hardly shrinks or has no exact length."""
        gain = self.drain - self.arrival
        ready = self.line.ready
        if not ready.value:
            return 0.0
        if gain <= LEAST_GAIN * self.drain or not ready.exact or not self.arrived.exact or self.line.is_paused:
            return None
        return ready.value / gain * MINUTE

    @property
    def is_unserved(self) -> bool:
        return bool(self.line.ready.value) and not self.line.workers and not self.line.is_paused


@dataclass(frozen=True, slots=True)
class QueueRates:
    """All queues at one time, by name."""

    at: datetime
    queues: list[QueueFlow]


def flow() -> Operation[QueueRates]:
    """Return every queue that has jobs, workers or a pause."""
    lines = yield from list_queues()
    came = yield from activity.arrived(LATELY)
    went = yield from activity.ended([line.queue for line in lines], SPAN)
    now = moment((yield from clock()))
    return QueueRates(
        now, [_flow(line, came.get(line.queue, BoundedCount(0)), went.get(line.queue, []), now) for line in lines]
    )


def _flow(line: QueueLine, came: BoundedCount, went: list[MinuteRow], now: datetime) -> QueueFlow:
    since = now.replace(second=0, microsecond=0) - timedelta(seconds=LATELY)
    ended = sum(each.succeeded + each.dead + each.cancelled for each in went if each.at >= since)
    elapsed = (now - since).total_seconds()
    return QueueFlow(line, went, came, came.value * MINUTE / LATELY, ended * MINUTE / elapsed)
