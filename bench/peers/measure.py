"""The measurements of one peer, in the order in which they are printed."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles

import psycopg

from bench.offered_client import (
    RATE,
    SECOND,
    SECONDS,
    SECONDS_QUICK,
    SECONDS_TO_START,
    SECONDS_WARM_UP,
    instant,
)
from bench.tasks import microseconds

from .catalogue import Peer
from .database import PeerDatabases, execute
from .failure import PeerFailed
from .processes import Workers, finish, running
from .tally import Tally

SECONDS_BETWEEN_POLLS = 0.002
SECONDS_TO_DRAIN = 180
# The query for pending jobs must not take longer than the drain.
PENDING_OPTIONS = "-c statement_timeout=30s"
# Long enough for a second execution of a job to show itself.
SECONDS_AFTER_DRAIN = 0.5
# Jobs that show that a worker has started.
FIRST_JOBS = 20
SECONDS_TO_BECOME_IDLE = 1
# Paced jobs that are not counted: the producer still opens its connections, and both sides still compile.
WARM_UP_JOBS = 50
PACED_JOBS = 1000
PACED_JOBS_QUICK = 200
QUICK_DIVISOR = 10
# How long after the last offered job a peer that has fallen behind is waited for.
SECONDS_AFTER_OFFER = 10

Report = Callable[[str, float, str], None]
Note = Callable[[str], None]


@dataclass(frozen=True)
class Workspace:
    """Where a peer runs: the command that starts its program, its databases, a directory for its files."""

    command: list[str]
    databases: PeerDatabases
    scratch: Path


@dataclass(frozen=True)
class Bench:
    peer: Peer
    workspace: Workspace
    quick: bool
    report: Report
    note: Note

    def run(self) -> None:
        with self.workspace.databases.template() as url:
            self._program("install", url)
            if self.peer.settings:
                execute(url, self.peer.settings)
            if self.peer.measure_enqueue:
                self._enqueue("one", self._scaled(self.peer.jobs_one_by_one))
                self._enqueue("bulk", self._scaled(self.peer.jobs))
            self._drain("drain", workers=1)
            self._drain("drain_two", workers=2)
            self._latency(PACED_JOBS_QUICK if self.quick else PACED_JOBS)
            self._loaded(SECONDS_QUICK if self.quick else SECONDS)

    def _enqueue(self, how: str, jobs: int) -> None:
        with self.workspace.databases.fresh() as url:
            seconds = float(self._program(how, url, str(jobs)))
        self._figure(f"enqueue_{how}", jobs / seconds, "jobs/s")

    def _drain(self, figure: str, workers: int) -> None:
        jobs = self._scaled(self.peer.jobs)
        with self.workspace.databases.fresh() as url:
            self._program("bulk", url, str(jobs))
            # A database in use has these statistics; autovacuum would collect them at an unpredictable moment.
            execute(url, "analyze")
            tally = Tally.create(self._tally_path)
            with running(self._worker_commands(url, workers), self._log_path) as processes:
                seconds = self._seconds_to_drain(url, tally, jobs, processes)
                time.sleep(SECONDS_AFTER_DRAIN)
        if tally.executed != jobs:
            self.note(f"{self.peer.name}: {figure} executed {tally.executed} times for {jobs} jobs")
        self._figure(figure, jobs / seconds, "jobs/s")

    def _seconds_to_drain(self, url: str, tally: Tally, jobs: int, processes: Workers) -> float:
        """Return the seconds from the first handler to the last acknowledgement."""
        self._wait_for(lambda: tally.executed > 0, tally, jobs, processes)
        started = time.perf_counter()
        self._wait_for(lambda: tally.executed >= jobs, tally, jobs, processes)
        with psycopg.connect(url, autocommit=True, options=PENDING_OPTIONS) as connection:
            self._wait_for(lambda: not self._pending(connection), tally, jobs, processes)
        return time.perf_counter() - started

    def _latency(self, jobs: int) -> None:
        paced = WARM_UP_JOBS + jobs
        with self._idle_worker(paced) as (url, tally, processes):
            self._program("paced", url, str(paced))
            everything = FIRST_JOBS + paced
            self._wait_for(lambda: tally.executed >= everything, tally, everything, processes)
        self._percentiles("latency", tally.samples[WARM_UP_JOBS:])

    def _loaded(self, seconds: int) -> None:
        """Offer jobs by the timetable of `bench latency`, each timed from its instant to the start of its handler."""
        jobs = RATE * (SECONDS_WARM_UP + seconds)
        with self._idle_worker(jobs) as (url, tally, processes):
            begin = microseconds() + SECONDS_TO_START * SECOND
            deadline = instant(begin, jobs) + SECONDS_AFTER_OFFER * SECOND
            command = [*self.workspace.command, "offered", url, str(jobs), str(begin)]
            with running([command], self._log_path.with_suffix(".producer")) as producer:
                while tally.executed < FIRST_JOBS + jobs and microseconds() < deadline:
                    processes.check()
                    producer.check_result()
                    time.sleep(SECONDS_BETWEEN_POLLS)
                waits = [sample for sample in tally.samples if sample]
        if len(waits) < jobs:
            self.note(
                f"{self.peer.name}: {len(waits):,} of {jobs:,} offered jobs had started {SECONDS_AFTER_OFFER} s after "
                "the last was due; the others count with their wait until then"
            )
            waits += [deadline - instant(begin, number) for number in range(len(waits), jobs)]
        self._percentiles("latency_loaded", waits[RATE * SECONDS_WARM_UP :])

    @contextmanager
    def _idle_worker(self, samples: int) -> Iterator[tuple[str, Tally, Workers]]:
        """Run a worker that has executed a few jobs and has none left."""
        with self.workspace.databases.fresh() as url:
            self._program("bulk", url, str(FIRST_JOBS))
            tally = Tally.create(self._tally_path, samples=samples)
            with running(self._worker_commands(url, 1), self._log_path) as processes:
                self._wait_for(lambda: tally.executed >= FIRST_JOBS, tally, FIRST_JOBS, processes)
                time.sleep(SECONDS_TO_BECOME_IDLE)
                yield url, tally, processes

    def _percentiles(self, name: str, waits: list[int]) -> None:
        percentiles = quantiles(waits, n=100, method="inclusive")
        self._figure(f"{name}_p50", percentiles[49] / 1000, "ms")
        self._figure(f"{name}_p99", percentiles[98] / 1000, "ms")

    def _wait_for(self, fact: Callable[[], bool], tally: Tally, jobs: int, processes: Workers) -> None:
        deadline = time.monotonic() + SECONDS_TO_DRAIN
        while not fact():
            processes.check()
            if time.monotonic() > deadline:
                raise PeerFailed(f"{tally.executed} of {jobs} jobs executed, then nothing for {SECONDS_TO_DRAIN} s")
            time.sleep(SECONDS_BETWEEN_POLLS)

    def _pending(self, connection: psycopg.Connection) -> bool:
        row = connection.execute(self.peer.pending).fetchone()
        return row is not None and bool(row[0])

    def _worker_commands(self, url: str, workers: int) -> list[list[str]]:
        configuration = [self.peer.configuration] if self.peer.configuration else []
        return [
            [*self.workspace.command, "work", url, str(self._tally_path), str(worker), *configuration]
            for worker in range(workers)
        ]

    def _program(self, *arguments: str) -> str:
        return finish([*self.workspace.command, *arguments])

    def _figure(self, name: str, value: float, unit: str) -> None:
        self.report(f"{self.peer.name}_{name}", value, unit)

    def _scaled(self, jobs: int) -> int:
        return jobs // QUICK_DIVISOR if self.quick else jobs

    @property
    def _tally_path(self) -> Path:
        return self.workspace.scratch / "tally"

    @property
    def _log_path(self) -> Path:
        return self.workspace.scratch / "workers.log"
