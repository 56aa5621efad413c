"""Gauges of the whole database for Prometheus: read by `monitoring.gauges`, served by workers and servers."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any, NamedTuple, TypeAlias

# Values of one gauge by its label values.
Samples: TypeAlias = Sequence[tuple[tuple[str, ...], float]]
# The label value that sums up the queues or tenants beyond the largest ones.
OTHER = "(other)"
# Gauges that are older than this many intervals are not shown: too many reads have failed.
MOST_INTERVALS = 4


class DatabaseGauge(NamedTuple):
    """The name, the meaning and the labels of one gauge."""

    name: str
    meaning: str
    labels: tuple[str, ...] = ()


GAUGES = (
    DatabaseGauge(
        "sereno_jobs",
        "Jobs that are waiting, scheduled, ready or running, and dead letters; at most 10,000 of a queue and state",
        ("queue", "tenant", "state"),
    ),
    DatabaseGauge("sereno_oldest_ready_seconds", "Seconds since the oldest ready job was due", ("queue", "tenant")),
    DatabaseGauge("sereno_queue_workers", "Live worker processes of a queue", ("queue",)),
    DatabaseGauge("sereno_queue_slots", "Slots of the live workers of a queue", ("queue",)),
    DatabaseGauge("sereno_queue_paused", "1 for a paused queue", ("queue",)),
    DatabaseGauge("sereno_schedules", "Schedules, at most 10,000", ("state",)),
    DatabaseGauge("sereno_scheduler_alive", "1 while a scheduler leads"),
    DatabaseGauge("sereno_schedule_overdue_seconds", "Seconds since the oldest schedule that has not fired was due"),
    DatabaseGauge("sereno_newest_deliveries", "States of the newest 10,000 deliveries", ("channel", "state")),
    DatabaseGauge(
        "sereno_failed_deliveries", "Deliveries that failed and can be requeued, at most 10,000", ("channel", "state")
    ),
    DatabaseGauge("sereno_channel_pauses", "Pauses of a channel: entirely, or for one account each", ("channel",)),
    DatabaseGauge(
        "sereno_limit_saturation", "Used part of a limit by the key that uses most of it, from 0 to 1", ("limit",)
    ),
    DatabaseGauge("sereno_limit_waiting_keys", "Keys of a limit for which jobs wait, at most 1,000", ("limit",)),
    DatabaseGauge("sereno_archive_lag_seconds", "Seconds by which the oldest row is late to be archived"),
    DatabaseGauge("sereno_archive_failures", "Archive files and batches that failed, at most 1,000"),
    DatabaseGauge("sereno_replica_lag_seconds", "Seconds by which a standby is behind its primary", ("replica",)),
    DatabaseGauge(
        "sereno_carrier_lag_seconds",
        "Age of the oldest message of a carried queue, at its carrier or on its way there",
        ("queue",),
    ),
    DatabaseGauge("sereno_relay_jobs", "Jobs in PostgreSQL that wait to be published to their carrier", ("queue",)),
)
_AGE = DatabaseGauge("sereno_gauges_age_seconds", "Age of these gauges of the database")
_DURATION = DatabaseGauge("sereno_gauges_read_seconds", "Duration of their last read")
# In the order in which they are shown.
ALL_GAUGES = (*GAUGES, _AGE, _DURATION)


@dataclass(frozen=True, slots=True)
class DatabaseGauges:
    """The samples of each gauge by its name. `read_at`: by the monotonic clock; `seconds`: how long the read took.

    `written`: the position of the primary in its log, if there is a standby to compare with it.
    """

    samples: Mapping[str, Samples]
    read_at: float
    seconds: float
    written: int | None = None

    @property
    def age(self) -> float:
        return monotonic() - self.read_at

    def is_current(self, interval: float) -> bool:
        """Return whether they may be shown; `interval`: seconds between two reads."""
        return self.age <= MOST_INTERVALS * interval


def database_families(found: DatabaseGauges, gauge: Any) -> Iterable[Any]:
    """Yield the metrics; a gauge without a sample is left out."""
    own: dict[str, Samples] = {_AGE.name: [((), found.age)], _DURATION.name: [((), found.seconds)]}
    for each in ALL_GAUGES:
        samples = own.get(each.name) or found.samples.get(each.name)
        if samples:
            family = gauge(each.name, each.meaning, labels=each.labels)
            for labels, value in samples:
                family.add_metric(labels, value)
            yield family
