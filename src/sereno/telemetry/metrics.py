"""Metrics of workers: counted in each child, merged and served by the supervisor.

A worker child only counts; it sends the changes to its supervisor, which serves `/metrics` for all children, in the
format of `exposition`.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping

import msgspec

from sereno.error_text import FailureText
from sereno.telemetry import metering
from sereno.telemetry.archive_stats import ArchiveTally
from sereno.telemetry.carrier_gauges import CarrierGauges
from sereno.telemetry.database_gauges import DatabaseGauges

# Upper bounds of the histogram buckets in seconds.
BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)


class Histogram(msgspec.Struct):
    """Counts per bucket, and the sum."""

    counts: list[int] = msgspec.field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    total: float = 0.0

    def observe(self, values: list[float]) -> None:
        """Count values, which are sorted in place: that is faster than to find the bucket of each."""
        values.sort()
        counted = 0
        for bucket, bound in enumerate(BUCKETS):
            below = bisect_right(values, bound, lo=counted)
            self.counts[bucket] += below - counted
            counted = below
            if counted == len(values):
                break
        self.counts[-1] += len(values) - counted
        self.total += sum(values)

    def add(self, other: "Histogram") -> None:
        self.counts = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]
        self.total += other.total


# Fingerprints, and pairs of a fingerprint and a tenant, that a worker counts separately between two heartbeats.
MOST_KINDS = 1000
MOST_PAIRS = 5000
# Attempts of one task and outcome that are buffered before they are counted.
MOST_BUFFERED = 1000
# Successes are counted by the number of failed attempts before; from this number on they are counted together.
MOST_TRIES = 10


class FailureCounts(msgspec.Struct):
    """Failures with one fingerprint. `message` and `job`: those of the newest one."""

    task: str
    error_type: str
    message: str
    frame: str
    job: int
    count: int = 0


class MetricTally(msgspec.Struct):
    """Counts since the last `take`. Keys are label values joined with a tab."""

    finished: dict[str, int] = msgspec.field(default_factory=Counter)
    waits: dict[str, Histogram] = msgspec.field(default_factory=dict)
    runs: dict[str, Histogram] = msgspec.field(default_factory=dict)
    # By tenant: finished attempts, those that did not succeed, and seconds of run time.
    tenants: dict[str, list[float]] = msgspec.field(default_factory=dict)
    # By fingerprint. `hit`: counts by fingerprint and tenant; the tenant is empty for jobs without one, and beyond
    # MOST_PAIRS.
    failures: dict[str, FailureCounts] = msgspec.field(default_factory=dict)
    hit: dict[str, int] = msgspec.field(default_factory=dict)
    # By task: successes that took two tries, three, and so on. All others took one.
    tries: dict[str, list[int]] = msgspec.field(default_factory=dict)
    # By task and field: sums of the number fields of results.
    results: dict[str, float] = msgspec.field(default_factory=dict)
    # By channel and state: deliveries that reached the state.
    deliveries: dict[str, int] = msgspec.field(default_factory=dict)
    archive: ArchiveTally = msgspec.field(default_factory=ArchiveTally)
    fenced: int = 0
    claims: int = 0

    def job(self, queue: str, task: str, outcome: str, waited: float, ran: float, tenant: str | None = None) -> None:
        """Count one attempt."""
        self.jobs(queue, task, outcome, [waited], [ran])
        if tenant is not None:
            self.of_tenant(tenant, outcome, ran)

    def jobs(self, queue: str, task: str, outcome: str, waited: list[float], ran: list[float]) -> None:
        """Count attempts with the same outcome."""
        pair = f"{queue}\t{task}"
        key = f"{pair}\t{outcome}"
        self.finished[key] = self.finished.get(key, 0) + len(ran)
        if pair not in self.waits:
            self.waits[pair], self.runs[pair] = Histogram(), Histogram()
        self.waits[pair].observe(waited)
        self.runs[pair].observe(ran)

    def of_tenant(self, tenant: str, outcome: str, ran: float) -> None:
        figures = self.tenants.get(tenant)
        if figures is None:
            figures = self.tenants[tenant] = [0, 0, 0.0]
        figures[0] += 1
        figures[1] += outcome != "succeeded"
        figures[2] += ran

    def failed(self, failure: FailureText, job: int, tenant: str | None) -> None:
        fingerprint, task, error_type, message, frame = failure
        self._add_failures(fingerprint, FailureCounts(task, error_type, message, frame, job, 1))
        self._add_hit(f"{fingerprint}\t{tenant or ''}", 1)

    def succeeded_after(self, task: str, failures: int) -> None:
        found = self.tries.setdefault(task, [0] * MOST_TRIES)
        found[min(failures, MOST_TRIES) - 1] += 1

    def result(self, task: str, counts: Mapping[str, float]) -> None:
        """Add the number fields of one result."""
        for field, value in counts.items():
            key = f"{task}\t{field}"
            self.results[key] = self.results.get(key, 0) + value

    def reached(self, deliveries: Mapping[str, int]) -> None:
        """Add deliveries that reached a state, by channel and state."""
        for key, count in deliveries.items():
            self.deliveries[key] = self.deliveries.get(key, 0) + count

    def _add_failures(self, fingerprint: str, more: FailureCounts) -> None:
        found = self.failures.get(fingerprint)
        if found is not None:
            found.message, found.job, found.count = more.message, more.job, found.count + more.count
        elif len(self.failures) < MOST_KINDS:
            self.failures[fingerprint] = msgspec.structs.replace(more)

    def _add_hit(self, pair: str, count: int) -> None:
        fingerprint = pair.partition("\t")[0]
        if fingerprint not in self.failures:
            return
        if pair not in self.hit and len(self.hit) >= MOST_PAIRS:
            pair = f"{fingerprint}\t"
        self.hit[pair] = self.hit.get(pair, 0) + count

    def add(self, other: "MetricTally") -> None:
        for key, count in other.finished.items():
            self.finished[key] = self.finished.get(key, 0) + count
        for mine, theirs in ((self.waits, other.waits), (self.runs, other.runs)):
            for key, histogram in theirs.items():
                mine.setdefault(key, Histogram()).add(histogram)
        for tenant, figures in other.tenants.items():
            mine_of = self.tenants.setdefault(tenant, [0, 0, 0.0])
            self.tenants[tenant] = [mine + theirs for mine, theirs in zip(mine_of, figures, strict=True)]
        for fingerprint, failures in other.failures.items():
            self._add_failures(fingerprint, failures)
        for pair, count in other.hit.items():
            self._add_hit(pair, count)
        for task, tries in other.tries.items():
            before = self.tries.get(task, [0] * MOST_TRIES)
            self.tries[task] = [mine + theirs for mine, theirs in zip(before, tries, strict=True)]
        for sum_of, value in other.results.items():
            self.results[sum_of] = self.results.get(sum_of, 0) + value
        self.reached(other.deliveries)
        self.archive.add(other.archive)
        self.fenced += other.fenced
        self.claims += other.claims

    def take(self) -> "MetricTally":
        """Return the counts and reset them."""
        counts = msgspec.structs.replace(self, archive=self.archive.take())
        self.finished, self.waits, self.runs, self.tenants = {}, {}, {}, {}
        self.failures, self.hit, self.tries = {}, {}, {}
        self.results, self.deliveries = {}, {}
        self.fenced = self.claims = 0
        return counts


class AttemptBuffer:
    """Attempts that have ended and are not in the tally yet: to count many at once is cheaper."""

    def __init__(self, tally: MetricTally) -> None:
        self._tally = tally
        # By queue, task and outcome: seconds waited, and seconds run.
        self._ended: dict[tuple[str, str, str], tuple[list[float], list[float]]] = {}

    def add(self, queue: str, task: str, outcome: str, waited: float, ran: float, tenant: str | None) -> None:
        key = (queue, task, outcome)
        found = self._ended.get(key)
        if found is None:
            found = self._ended[key] = ([], [])
        waits, runs = found
        waits.append(waited)
        runs.append(ran)
        if tenant is not None:
            self._tally.of_tenant(tenant, outcome, ran)
        if len(runs) >= MOST_BUFFERED:
            self.flush()

    def flush(self) -> None:
        """Count the attempts in the tally."""
        ended, self._ended = self._ended, {}
        for (queue, task, outcome), (waits, runs) in ended.items():
            if metering.active is not None:
                metering.active.ended(queue, task, outcome, runs)
            self._tally.jobs(queue, task, outcome, waits, runs)


class Gauges(msgspec.Struct):
    """The slots of one worker child by queue: how many are busy, and how many there are. `carriers`: by queue."""

    busy: dict[str, int] = msgspec.field(default_factory=dict)
    slots: dict[str, int] = msgspec.field(default_factory=dict)
    carriers: dict[str, CarrierGauges] = msgspec.field(default_factory=dict)


class SchedulerFigures(msgspec.Struct):
    """Counts of the scheduler of this process. `late`: seconds by which the latest fire of the last tick was late.

    `database`: gauges of the whole database, which the leading scheduler has.
    """

    leads: bool = False
    fires: int = 0
    skips: int = 0
    ticks: int = 0
    parked: int = 0
    late: float = 0.0
    database: DatabaseGauges | None = None
