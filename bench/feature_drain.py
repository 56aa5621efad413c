"""A drain of jobs with one feature, and the processor time that a job costs: of its enqueue, worker and PostgreSQL."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import psycopg

from bench.context import BenchContext
from bench.cpu_time import server_seconds
from bench.drain import SECONDS_AFTER, watch
from bench.traced import Sampling, traced
from bench.workers import BenchmarkFailed, working
from sereno import Sereno
from sereno.jobs.job import NewJob

CHUNK = 5_000

Make = Callable[[int], NewJob]


@dataclass(frozen=True)
class FeatureLoad:
    """How a job is created from its number, and what it leaves behind.

    `calls`: handler calls of one job. `divisor`: divides the number of jobs, for a feature that drains slowly.
    `sampling`: of OpenTelemetry, which samples no job ("off", "metrics": and records metrics) or all ("on"); without it
    nothing is traced.
    """

    make: Make
    calls: int = 1
    divisor: int = 1
    in_history: bool = True
    log_lines: int = 0
    sampling: Sampling = ""


class FeatureCost(NamedTuple):
    """Jobs per second, and microseconds of processor time for each job: worker, PostgreSQL, enqueue (both sides)."""

    rate: float
    worker: float
    server: float
    enqueue: float


def measure(context: BenchContext, load: FeatureLoad, jobs: int) -> FeatureCost:
    """Fill a fresh database, let one worker empty it, and check that each job ran as often as it should."""
    jobs //= load.divisor
    with (
        traced(load.sampling),
        context.server.fresh("features") as url,
        context.tally() as tally,
        psycopg.connect(url, autocommit=True) as connection,
    ):
        last, enqueue = _fill(url, connection, load.make, jobs)
        # A database in use has these statistics; autovacuum would collect them at an unpredictable moment.
        connection.execute("vacuum analyze sereno.jobs")
        with working(url, tally, tasks="features") as workers:
            drained = watch(
                connection,
                workers,
                jobs * load.calls,
                last,
                is_written=lambda: not load.log_lines or _count(connection, "logs") >= load.log_lines * jobs,
            )
            time.sleep(SECONDS_AFTER)
        succeeded = _count(connection, "history where state = 'succeeded'")
        if tally.executed != jobs * load.calls or succeeded != (jobs if load.in_history else 0):
            raise BenchmarkFailed(
                f"{jobs} jobs with {load.calls} calls each, but {tally.executed} handlers ran "
                f"and {succeeded} are in the history"
            )
    return FeatureCost(drained.rate / load.calls, drained.worker * load.calls, drained.server * load.calls, enqueue)


def _fill(url: str, connection: psycopg.Connection, make: Make, jobs: int) -> tuple[int, float]:
    """Enqueue the jobs in bulk; return the last id and the processor time of a job, of this process and PostgreSQL."""
    app = Sereno(url)
    last, before = 0, time.process_time() + server_seconds(connection)
    for first in range(0, jobs, CHUNK):
        last = app.enqueue_many([make(number) for number in range(first, min(jobs, first + CHUNK))])[-1].id
    spent = time.process_time() + server_seconds(connection) - before
    app.close()
    return last, spent * 1e6 / jobs


def _count(connection: psycopg.Connection, rows: str) -> int:
    row = connection.execute(f"select count(*) from sereno.{rows}".encode()).fetchone()
    return int(row[0]) if row else 0
