"""The metrics of a worker, and the gauges of the database, in the text format of Prometheus."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sereno.telemetry.archive_stats import ArchiveTally
from sereno.telemetry.carrier_gauges import carrier_families
from sereno.telemetry.database_gauges import DatabaseGauges, database_families
from sereno.telemetry.metrics import BUCKETS, Gauges, Histogram, MetricTally, SchedulerFigures

_RESULTS = (
    "Sums of the number fields of results, by task and field: of the fields that the task's return annotation declares"
)
_DELIVERIES = "Deliveries that reached a state, by channel, as this worker recorded it; retried: to be sent again"


def exposition(
    tally: MetricTally, gauges: Iterable[Gauges], version: str, scheduler: SchedulerFigures | None = None
) -> bytes:
    """Return the metrics of a worker in the Prometheus text format."""
    return _generate(_Collector(tally, list(gauges), version, scheduler))


def database_exposition(found: DatabaseGauges | None, version: str) -> bytes:
    """Return the metrics of a server, which has the gauges of the database alone."""
    return _generate(_DatabaseCollector(found, version))


def _generate(collector: Any) -> bytes:
    from prometheus_client import CollectorRegistry, generate_latest  # noqa: PLC0415 - import only where it is served

    registry = CollectorRegistry()
    registry.register(collector)
    return generate_latest(registry)


def _of_scheduler(figures: SchedulerFigures, counter: Any, gauge: Any) -> Iterable[Any]:
    yield gauge(
        "sereno_scheduler_leads", "1 where the scheduler of this worker fires the schedules", value=int(figures.leads)
    )
    yield counter("sereno_scheduler_ticks", "Passes over due schedules", value=figures.ticks)
    yield counter("sereno_schedule_fires", "Fires that created a job", value=figures.fires)
    yield counter("sereno_schedule_skips", "Fires that were skipped", value=figures.skips)
    yield counter("sereno_schedule_parked", "Schedules that were parked because they are invalid", value=figures.parked)
    yield gauge("sereno_schedule_lag_seconds", "How late the latest fire of the last tick was", value=figures.late)


_FILES = "Archive files by outcome: verified; unverified (read back with another content); failed (not written or read)"


def _of_archive(tally: ArchiveTally, counter: Any) -> Iterable[Any]:
    yield counter("sereno_archive_rows", "Rows that this worker wrote into verified archive files", value=tally.rows)
    yield counter(
        "sereno_archive_bytes", "Bytes of the archive files that this worker wrote and verified", value=tally.bytes
    )
    files = counter("sereno_archive_files", _FILES, labels=["outcome"])
    for outcome, count in tally.files.items():
        files.add_metric([outcome], count)
    yield files
    yield counter(
        "sereno_archive_batches_dropped",
        "Archived batches that were dropped after their grace period",
        value=tally.dropped,
    )


class _Collector:
    def __init__(
        self, tally: MetricTally, gauges: list[Gauges], version: str, scheduler: SchedulerFigures | None
    ) -> None:
        self._tally = tally
        self._gauges = gauges
        self._version = version
        self._scheduler = scheduler

    def collect(self) -> Iterable[Any]:
        from prometheus_client.core import (  # noqa: PLC0415 - import only where it is served
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
        )

        yield from _of_attempts(self._tally, CounterMetricFamily, HistogramMetricFamily)
        yield _slots(self._gauges, GaugeMetricFamily)
        yield CounterMetricFamily(
            "sereno_settlements_fenced",
            "Results that were refused, because this worker no longer held the job",
            value=self._tally.fenced,
        )
        yield CounterMetricFamily("sereno_claims", "Claim statements sent", value=self._tally.claims)
        yield _sums("sereno_result", _RESULTS, ["task", "field"], self._tally.results, CounterMetricFamily)
        yield _sums("sereno_deliveries", _DELIVERIES, ["channel", "state"], self._tally.deliveries, CounterMetricFamily)
        yield from _of_archive(self._tally.archive, CounterMetricFamily)
        yield from carrier_families([gauge.carriers for gauge in self._gauges], GaugeMetricFamily)
        if self._scheduler is not None:
            yield from _of_scheduler(self._scheduler, CounterMetricFamily, GaugeMetricFamily)
            if self._scheduler.database is not None:
                yield from database_families(self._scheduler.database, GaugeMetricFamily)
        yield _build(self._version, GaugeMetricFamily)


class _DatabaseCollector:
    def __init__(self, found: DatabaseGauges | None, version: str) -> None:
        self._found = found
        self._version = version

    def collect(self) -> Iterable[Any]:
        from prometheus_client.core import GaugeMetricFamily  # noqa: PLC0415 - import only where it is served

        if self._found is not None:
            yield from database_families(self._found, GaugeMetricFamily)
        yield _build(self._version, GaugeMetricFamily)


def _build(version: str, gauge: Any) -> Any:
    build = gauge("sereno_build_info", "This version", labels=["version"])
    build.add_metric([version], 1)
    return build


def _of_attempts(tally: MetricTally, counter: Any, histogram: Any) -> Iterable[Any]:
    finished = counter(
        "sereno_jobs_finished",
        "Attempts that ended, by outcome: succeeded, retry, snooze, release, crash, dead, cancelled",
        labels=["queue", "task", "outcome"],
    )
    for key, count in tally.finished.items():
        finished.add_metric(key.split("\t"), count)
    yield finished
    for name, text, histograms in (
        ("sereno_job_wait_seconds", "From due to claimed", tally.waits),
        ("sereno_job_run_seconds", "From started to ended", tally.runs),
    ):
        family = histogram(name, text, labels=["queue", "task"])
        for key, found in histograms.items():
            family.add_metric(key.split("\t"), _cumulative(found), found.total)
        yield family


def _slots(gauges: Sequence[Gauges], gauge: Any) -> Any:
    slots = gauge("sereno_worker_slots", "Slots of this worker, busy and free", labels=["queue", "state"])
    busy: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for each in gauges:
        busy.update(each.busy)
        total.update(each.slots)
    for queue, count in total.items():
        slots.add_metric([queue, "busy"], busy[queue])
        slots.add_metric([queue, "free"], count - busy[queue])
    return slots


def _sums(name: str, text: str, labels: Sequence[str], sums: Mapping[str, float], counter: Any) -> Any:
    """Return a counter with two labels. Only the second value may contain a tab."""
    family = counter(name, text, labels=labels)
    for key, value in sums.items():
        family.add_metric(key.split("\t", 1), value)
    return family


def _cumulative(histogram: Histogram) -> list[tuple[str, float]]:
    running, pairs = 0, []
    for edge, count in zip((*map(str, BUCKETS), "+Inf"), histogram.counts, strict=True):
        running += count
        pairs.append((edge, float(running)))
    return pairs
