"""Figures of one worker, counted in plain Python and merged where they are shown.

A worker child only counts; it sends what changed to its supervisor, which serves `/metrics` for all of them.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec

BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)


class Histogram(msgspec.Struct):
    """Counts per bucket, and the sum."""

    counts: list[int] = msgspec.field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    total: float = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(BUCKETS, value)] += 1
        self.total += value

    def add(self, other: "Histogram") -> None:
        self.counts = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]
        self.total += other.total


class Tally(msgspec.Struct):
    """What happened since it was last taken. Keys are label values joined with a tab."""

    finished: dict[str, int] = msgspec.field(default_factory=Counter)
    waits: dict[str, Histogram] = msgspec.field(default_factory=dict)
    runs: dict[str, Histogram] = msgspec.field(default_factory=dict)
    # Attempts that ended, those of them that did not succeed, and seconds of work, by tenant.
    tenants: dict[str, list[float]] = msgspec.field(default_factory=dict)
    fenced: int = 0
    claims: int = 0

    def job(self, queue: str, task: str, outcome: str, waited: float, ran: float, tenant: str | None = None) -> None:
        pair = f"{queue}\t{task}"
        key = f"{pair}\t{outcome}"
        self.finished[key] = self.finished.get(key, 0) + 1
        waits = self.waits.get(pair)
        if waits is None:
            waits = self.waits[pair] = Histogram()
            self.runs[pair] = Histogram()
        waits.observe(waited)
        self.runs[pair].observe(ran)
        if tenant is not None:
            figures = self.tenants.get(tenant)
            if figures is None:
                figures = self.tenants[tenant] = [0, 0, 0.0]
            figures[0] += 1
            figures[1] += outcome != "succeeded"
            figures[2] += ran

    def add(self, other: "Tally") -> None:
        for key, count in other.finished.items():
            self.finished[key] = self.finished.get(key, 0) + count
        for mine, theirs in ((self.waits, other.waits), (self.runs, other.runs)):
            for key, histogram in theirs.items():
                mine.setdefault(key, Histogram()).add(histogram)
        for tenant, figures in other.tenants.items():
            mine_of = self.tenants.setdefault(tenant, [0, 0, 0.0])
            self.tenants[tenant] = [mine + theirs for mine, theirs in zip(mine_of, figures, strict=True)]
        self.fenced += other.fenced
        self.claims += other.claims

    def take(self) -> "Tally":
        """What it holds; it begins anew."""
        taken = Tally(self.finished, self.waits, self.runs, self.tenants, self.fenced, self.claims)
        self.finished, self.waits, self.runs, self.tenants = {}, {}, {}, {}
        self.fenced = self.claims = 0
        return taken


class Gauges(msgspec.Struct):
    """How things stand in one worker child right now: slots per queue, busy and free."""

    busy: dict[str, int] = msgspec.field(default_factory=dict)
    slots: dict[str, int] = msgspec.field(default_factory=dict)


class SchedulerFigures(msgspec.Struct):
    """What the scheduler of this process did. `late`: how late the latest fire of the last tick was, in seconds."""

    leads: bool = False
    fires: int = 0
    skips: int = 0
    ticks: int = 0
    parked: int = 0
    late: float = 0.0


def exposition(
    tally: Tally, gauges: Iterable[Gauges], version: str, scheduler: SchedulerFigures | None = None
) -> bytes:
    """The Prometheus text format."""
    from prometheus_client import CollectorRegistry, generate_latest  # noqa: PLC0415 - only who serves it pays for it

    registry = CollectorRegistry()
    registry.register(_Collector(tally, list(gauges), version, scheduler))
    return generate_latest(registry)


def _of_scheduler(figures: SchedulerFigures, counter: Any, gauge: Any) -> Iterable[Any]:
    yield gauge("sereno_scheduler_leads", "Whether this scheduler fires the schedules", value=int(figures.leads))
    yield counter("sereno_scheduler_ticks", "Passes over what was due", value=figures.ticks)
    yield counter("sereno_schedule_fires", "Instants that made a job", value=figures.fires)
    yield counter("sereno_schedule_skips", "Instants that were skipped", value=figures.skips)
    yield counter("sereno_schedule_parked", "Schedules that made no sense", value=figures.parked)
    yield gauge("sereno_schedule_lag_seconds", "How late the latest fire of the last tick was", value=figures.late)


class _Collector:
    def __init__(self, tally: Tally, gauges: list[Gauges], version: str, scheduler: SchedulerFigures | None) -> None:
        self._tally = tally
        self._gauges = gauges
        self._version = version
        self._scheduler = scheduler

    def collect(self) -> Iterable[Any]:
        from prometheus_client.core import (  # noqa: PLC0415 - only who serves it pays for it
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
        )

        finished = CounterMetricFamily(
            "sereno_jobs_finished", "Attempts that ended, by outcome", labels=["queue", "task", "outcome"]
        )
        for key, count in self._tally.finished.items():
            finished.add_metric(key.split("\t"), count)
        yield finished
        for name, text, histograms in (
            ("sereno_job_wait_seconds", "From due to claimed", self._tally.waits),
            ("sereno_job_run_seconds", "From started to ended", self._tally.runs),
        ):
            family = HistogramMetricFamily(name, text, labels=["queue", "task"])
            for key, histogram in histograms.items():
                family.add_metric(key.split("\t"), _cumulative(histogram), histogram.total)
            yield family
        slots = GaugeMetricFamily("sereno_worker_slots", "Slots of this worker", labels=["queue", "state"])
        busy: Counter[str] = Counter()
        every: Counter[str] = Counter()
        for gauge in self._gauges:
            busy.update(gauge.busy)
            every.update(gauge.slots)
        for queue, count in every.items():
            slots.add_metric([queue, "busy"], busy[queue])
            slots.add_metric([queue, "free"], count - busy[queue])
        yield slots
        yield CounterMetricFamily(
            "sereno_settlements_fenced", "Results of attempts that were no longer ours", value=self._tally.fenced
        )
        yield CounterMetricFamily("sereno_claims", "Claim statements sent", value=self._tally.claims)
        if self._scheduler is not None:
            yield from _of_scheduler(self._scheduler, CounterMetricFamily, GaugeMetricFamily)
        build = GaugeMetricFamily("sereno_build_info", "This version", labels=["version"])
        build.add_metric([self._version], 1)
        yield build


def _cumulative(histogram: Histogram) -> list[tuple[str, float]]:
    running, pairs = 0, []
    for edge, count in zip((*map(str, BUCKETS), "+Inf"), histogram.counts, strict=True):
        running += count
        pairs.append((edge, float(running)))
    return pairs
