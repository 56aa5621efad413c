"""A queue that a NATS cluster of three servers carries, compared with the same queue in PostgreSQL.

The rounds of both sides alternate in one run. All parts share one machine: the three servers too.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from statistics import median, quantiles

import psycopg

from bench.carrier_cluster import CarriedDefault, Cluster, cluster
from bench.context import BenchContext
from bench.cpu_time import server_seconds
from bench.drain import CHUNK, SECONDS_AFTER, Drained, check, watch
from bench.idle import SECONDS_TO_SETTLE, no_autovacuum, transactions
from bench.latency import WARM_UP, idle_samples
from bench.tasks import MONTH, account, register
from bench.workers import working
from sereno import Sereno

ROUNDS = 3
# Jobs of a carried drain without history, compared with those of the others.
MORE_CARRIED = 3


@dataclass(frozen=True)
class Side:
    """The figures of one side, a round each. `history`: successes are stored."""

    enqueued: list[float] = field(default_factory=list)
    drained: list[Drained] = field(default_factory=list)
    history: list[Drained] = field(default_factory=list)
    # PostgreSQL's seconds of processor time for a million jobs, from enqueue to outcome.
    server: list[float] = field(default_factory=list)
    samples: list[int] = field(default_factory=list)


def run(context: BenchContext) -> None:
    """`carrier_enqueue`, `carrier_drain`, `carrier_cpu_server`, `carrier_statements` and `carrier_latency_p50`."""
    sides = {"carrier": Side(), "postgres": Side()}
    jobs = context.size(200_000, 20_000)
    with cluster() as nats:
        for number in range(context.size(ROUNDS, 1)):
            names = ["carrier", "postgres"] if number % 2 else ["postgres", "carrier"]
            for name in names:
                _round(context, sides[name], jobs, nats if name == "carrier" else None)
        for _ in range(2):
            for name, side in sides.items():
                with _active(nats.next() if name == "carrier" else None):
                    side.samples.extend(idle_samples(context, WARM_UP + context.size(500, 100)))
        statements = _statements(context, jobs, nats.next())
    # Each count takes half a minute.
    reference = None if context.quick else _statements(context, jobs, None)
    _report(context, sides["carrier"], sides["postgres"])
    _report_latency(context, sides["carrier"].samples, sides["postgres"].samples)
    if reference is not None:
        context.report.figure("postgres_statements", reference, "/1,000 jobs")
    context.report.figure("carrier_statements", statements, "/1,000 jobs", "postgres_statements", reference)


@contextmanager
def _active(carried: CarriedDefault | None) -> Iterator[None]:
    with nullcontext() if carried is None else carried.active():
        yield


def _round(context: BenchContext, side: Side, jobs: int, nats: Cluster | None) -> None:
    """Fill and drain a queue without history, then one with history."""
    for keep, drains in ((False, side.drained), (True, side.history)):
        # More of them, so that the little that PostgreSQL does is not lost among what an idle server does.
        count = jobs if nats is None or keep else jobs * MORE_CARRIED
        carried = None if nats is None else nats.next()
        with (
            _active(carried),
            context.server.fresh("carrier") as url,
            context.tally() as tally,
            psycopg.connect(url, autocommit=True) as connection,
        ):
            rate, spent, last = _fill(connection, url, count, keep=keep)
            connection.execute("analyze sereno.jobs")
            with working(url, tally) as workers:
                is_written = (lambda: True) if carried is None else carried.is_empty
                drained = watch(connection, workers, count, last, is_written=is_written)
                time.sleep(SECONDS_AFTER)
            row = connection.execute("select count(*) from sereno.history").fetchone()
            check(tally, count, stored=row[0] if row else 0, expected=count if keep else 0)
        drains.append(drained)
        if not keep:
            side.enqueued.append(rate)
            side.server.append(spent + drained.server)


def _fill(connection: psycopg.Connection, url: str, jobs: int, *, keep: bool) -> tuple[float, float, int]:
    """Enqueue in bulk; return jobs per second, PostgreSQL's microseconds for a job, and the last id.

    The first call is not counted: it opens connections, and creates the stream.
    """
    app = Sereno(url)
    tasks = register(app)
    task = tasks.noop if keep else tasks.noop_forgotten
    last, began, spent = 0, 0.0, 0.0
    for first in range(0, jobs, CHUNK):
        numbers = range(first, min(jobs, first + CHUNK))
        last = max(job.id for job in app.enqueue_many([task.job(account(number), MONTH) for number in numbers]))
        if not first:
            began, spent = time.perf_counter(), server_seconds(connection)
    elapsed, spent = time.perf_counter() - began, server_seconds(connection) - spent
    app.close()
    counted = jobs - CHUNK
    return counted / elapsed, spent * 1e6 / counted, last


def _statements(context: BenchContext, jobs: int, carried: CarriedDefault | None) -> float:
    """Return PostgreSQL's transactions for a thousand jobs, enqueued in bulk and drained by a running worker.

    Outside of handlers a worker's statements are transactions of their own. Heartbeats and other periodic statements
    of the time measured are included.
    """
    with (
        no_autovacuum(context.server.url),
        _active(carried),
        context.server.fresh("carrier") as url,
        context.tally() as tally,
        working(url, tally) as workers,
        psycopg.connect(context.server.url, autocommit=True) as connection,
    ):
        workers.wait_for(lambda: bool(tally.processes))
        time.sleep(SECONDS_TO_SETTLE)
        database = url.partition("///")[2].partition("?")[0]
        before = transactions(connection, database)
        app = Sereno(url)
        task = register(app).noop_forgotten
        for first in range(0, jobs, CHUNK):
            app.enqueue_many([task.job(account(number), MONTH) for number in range(first, first + CHUNK)])
        workers.wait_for(lambda: tally.executed >= jobs)
        app.close()
        time.sleep(SECONDS_TO_SETTLE)
        return (transactions(connection, database) - before) * 1000 / jobs


def _report(context: BenchContext, carrier: Side, postgres: Side) -> None:
    report = context.report
    report.figure("postgres_enqueue", median(postgres.enqueued), "jobs/s")
    report.rounds("carrier_enqueue", carrier.enqueued, "jobs/s", "postgres_enqueue", postgres.enqueued)
    for name, ours, theirs in (
        ("drain", carrier.drained, postgres.drained),
        ("history", carrier.history, postgres.history),
    ):
        rates = [each.rate for each in theirs]
        report.figure(f"postgres_{name}", median(rates), "jobs/s")
        report.rounds(f"carrier_{name}", [each.rate for each in ours], "jobs/s", f"postgres_{name}", rates)
        report.figure(f"postgres_{name}_cpu_worker", median(each.worker for each in theirs), "us/job")
        report.figure(f"carrier_{name}_cpu_worker", median(each.worker for each in ours), "us/job")
        report.figure(f"postgres_{name}_cpu_server", median(each.server for each in theirs), "us/job")
        report.figure(f"carrier_{name}_cpu_server", median(each.server for each in ours), "us/job")
    # Microseconds for a job are seconds for a million.
    report.figure("postgres_cpu_server", median(postgres.server), "s")
    report.rounds("carrier_cpu_server", carrier.server, "s", "postgres_cpu_server", postgres.server)


def _report_latency(context: BenchContext, carrier: list[int], postgres: list[int]) -> None:
    ours, theirs = (quantiles(samples, n=100, method="inclusive") for samples in (carrier, postgres))
    for name, place in (("p50", 49), ("p99", 98)):
        reference = theirs[place] / 1000
        context.report.figure(f"postgres_latency_{name}", reference, "ms")
        against = f"postgres_latency_{name}"
        context.report.figure(f"carrier_latency_{name}", ours[place] / 1000, "ms", against, reference)
