"""Measures what one job costs: processor time of each part, WAL, disk, the latency of an idle system."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg

from bench import recorded
from bench.context import BenchContext
from bench.cpu_time import postmaster_of, server_processes, server_seconds
from bench.drain import fill, watch
from bench.offered_client import JOBS_PER_CALL as BATCH
from bench.scale.model import Costs
from bench.scale.other_processes import OtherProcesses, is_quiet, wait_until_quiet
from bench.scale.queueing import percentile
from bench.tasks import MESSAGE, MONTH, account, microseconds, register
from bench.workers import Workers, working
from sereno import Sereno

MICRO = 1e-6
# Jobs that are not counted: both sides still open connections and prepare statements.
WARM_UP = 50
SECONDS_BETWEEN = 0.01
ROUNDS = 5
HISTORY = "select coalesce(sum(pg_total_relation_size(relid)), 0) from pg_partition_tree('sereno.history')"


@dataclass(frozen=True)
class RunCost:
    """One drain: microseconds of PostgreSQL and of the worker for a job, and bytes of WAL and of history."""

    server: float
    worker: float
    wal_enqueue: float
    wal_run: float
    history: float


def measure(context: BenchContext) -> tuple[Costs, Costs]:
    """Report the costs of a job that is enqueued with 49 others, and of one that is enqueued alone; return both.

    Of several rounds the cheapest one counts: other processes on the machine only add to the processor time of a job.
    """
    report = context.report.figure
    rounds = range(context.size(ROUNDS, 1))
    run = min((_run_cost(context, context.size(60_000, 30_000)) for _ in rounds), key=lambda each: each.server)
    report("run", run.server, "us/job")
    report("worker", run.worker, "us/job")
    report("wal_enqueue", run.wal_enqueue, "bytes/job")
    report("wal_run", run.wal_run, "bytes/job")
    report("history", run.history, "MB per million jobs")
    idle = _idle_latencies(context, context.size(500, 100))
    report("idle_p50", percentile(idle, 0.5) * 1000, "ms")
    report("idle_p99", percentile(idle, 0.99) * 1000, "ms")
    made = []
    for name, batch, calls in (("bulk", BATCH, context.size(800, 400)), ("alone", 1, context.size(2_000, 1_000))):
        producer, enqueue = min((_enqueue(context, batch, calls) for _ in rounds), key=lambda each: each[1])
        report(f"producer_{name}", producer, "us/job")
        report(f"enqueue_{name}", enqueue, "us/job")
        made.append(
            Costs(
                batch, producer * MICRO, enqueue * MICRO, run.server * MICRO, run.worker * MICRO,
                run.wal_enqueue + run.wal_run, run.history, idle,
            )
        )  # fmt: skip
    return made[0], made[1]


def measure_cores(context: BenchContext) -> None:
    """Report jobs per second of a drain whose processes, with PostgreSQL, may use one core, and all cores."""
    jobs = context.size(100_000, 20_000)
    cores = sorted(os.sched_getaffinity(0))
    for used in [cores[:1], cores] if len(cores) > 1 else [cores]:
        wait_until_quiet(context)
        with context.server.fresh("scale") as url, on_cores(url, used):
            last = fill(url, jobs)
            with _working(context, url) as (connection, workers):
                others = OtherProcesses(
                    lambda connection=connection, workers=workers: _used(connection, workers)  # type: ignore[misc]  # bound now
                )
                drained = watch(connection, workers, jobs, last)
                if is_quiet(context, others, f"jobs/s with {len(used)} core(s)"):
                    context.report.figure(f"cores_{len(used)}", drained.rate, "jobs/s")


def _run_cost(context: BenchContext, jobs: int) -> RunCost:
    with context.server.fresh("scale") as url, psycopg.connect(url, autocommit=True) as connection:
        wal = _wal(connection)
        last = fill(url, jobs)
        wal_enqueue = (_wal(connection) - wal) / jobs
        connection.execute("analyze sereno.jobs")
        before, wal = _bytes(connection), _wal(connection)
        with context.tally() as tally, working(url, tally) as workers:
            drained = watch(connection, workers, jobs, last)
        wal_run = (_wal(connection) - wal) / jobs
        history = (_bytes(connection) - before) / jobs
    return RunCost(drained.server, drained.worker, wal_enqueue, wal_run, history)


@contextmanager
def _working(context: BenchContext, url: str, samples: int = 0) -> Iterator[tuple[psycopg.Connection[Any], Workers]]:
    with (
        psycopg.connect(url, autocommit=True) as connection,
        context.tally(samples) as tally,
        working(url, tally) as workers,
    ):
        connection.execute("analyze sereno.jobs")
        yield connection, workers


def _used(connection: psycopg.Connection[Any], workers: Workers) -> float:
    """Return the processor seconds of PostgreSQL, the workers and this process."""
    return server_seconds(connection) + workers.processor_seconds() + time.process_time()


@contextmanager
def on_cores(url: str, cores: list[int]) -> Iterator[None]:
    """Let this process, the ones that it starts, and the PostgreSQL of this machine use these cores only."""
    with psycopg.connect(url) as connection:
        postmaster = postmaster_of(connection)
    before = os.sched_getaffinity(0)
    try:
        _pin(postmaster, set(cores))
        yield
    finally:
        _pin(postmaster, before)


def _pin(postmaster: int, cores: set[int]) -> None:
    for process in (0, *server_processes(postmaster)):
        try:
            os.sched_setaffinity(process, cores)
        except ProcessLookupError:
            # The process has ended since it was listed.
            continue


def _enqueue(context: BenchContext, batch: int, calls: int) -> tuple[float, float]:
    """Return the microseconds of the producer and of PostgreSQL for a job, with this many jobs in each call."""
    with context.server.fresh("scale") as url, psycopg.connect(url, autocommit=True) as connection:
        app = Sereno(url)
        try:
            noop = register(app).noop

            def enqueue() -> None:
                if batch == 1:
                    noop.enqueue(account(0), MONTH)
                else:
                    app.enqueue_many([noop.job(account(number), MONTH) for number in range(batch)])

            for _ in range(WARM_UP):
                enqueue()
            spent = time.process_time(), server_seconds(connection)
            for _ in range(calls):
                enqueue()
            ours, theirs = time.process_time() - spent[0], server_seconds(connection) - spent[1]
            return _each(batch * calls, ours), _each(batch * calls, theirs)
        finally:
            app.close()


def _idle_latencies(context: BenchContext, jobs: int) -> list[float]:
    """Return the seconds from enqueue to the start of the handler, one job at a time.

    While others use the machine, jobs wait for a core: then these are the recorded figures of `latency`.
    """
    wait_until_quiet(context)
    with context.server.fresh("scale") as url, _working(context, url, WARM_UP + jobs) as (connection, workers):
        tally = workers.tally
        workers.wait_for(lambda: bool(tally.processes))
        others = OtherProcesses(lambda: _used(connection, workers))
        app = Sereno(url)
        try:
            stamped = register(app).stamped
            for _ in range(WARM_UP + jobs):
                stamped.enqueue(microseconds(), MESSAGE)
                time.sleep(SECONDS_BETWEEN)
        finally:
            app.close()
        workers.wait_for(lambda: tally.executed >= WARM_UP + jobs)
        if is_quiet(context, others, "latency of an idle system (the recorded one is taken)"):
            return [sample * MICRO for sample in tally.samples[WARM_UP:]]
    known = {figure.name: figure.value / 1000 for figure in recorded.load()["latency"].figures}
    return [*[known["latency_p50"]] * 98, *[known["latency_p99"]] * 2]


def _each(jobs: int, seconds: float) -> float:
    return seconds / jobs / MICRO


def _wal(connection: psycopg.Connection) -> int:
    row = connection.execute("select pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchone()
    return int(row[0]) if row else 0


def _bytes(connection: psycopg.Connection) -> int:
    row = connection.execute(HISTORY).fetchone()
    return int(row[0]) if row else 0
