"""A full queue emptied by one process and by two, with successes stored in the history and without."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

import psycopg

from bench import ceiling
from bench.context import BenchContext
from bench.tally import Tally
from bench.tasks import MONTH, account, register
from bench.workers import BenchmarkFailed, Workers, working
from sereno import Sereno

CHUNK = 10_000
ROUNDS = 3
# More jobs than any worker holds. The whole table is queried, which is expensive, only when the last TAIL ids are gone.
TAIL = 5_000
# Long enough for a second execution of a job to show itself.
SECONDS_AFTER = 0.3

Prepare = Callable[[psycopg.Connection], None]


@dataclass(frozen=True)
class Drained:
    """One drain: jobs per second from the first handler to the last settlement, in all and of each tenth."""

    rate: float
    tenths: list[float]


def run(context: BenchContext) -> None:
    """`drain`, `drain_two`, `drain_forget` and `drain_forget_two`, each compared with the ceiling of the same run."""
    jobs = context.size(200_000, 40_000)
    measured: dict[str, list[float]] = {}
    for _ in range(context.size(ROUNDS, 1)):
        measured.setdefault("ceiling", []).append(ceiling.measure(context, jobs))
        for name, processes, keep in (
            ("drain", 1, True),
            ("drain_two", 2, True),
            ("drain_forget", 1, False),
            ("drain_forget_two", 2, False),
        ):
            measured.setdefault(name, []).append(drain(context, jobs, processes, keep=keep).rate)
    limit = median(measured.pop("ceiling"))
    context.report.figure("ceiling", limit, "jobs/s")
    for name, rates in measured.items():
        context.report.figure(name, median(rates), "jobs/s", "ceiling", limit)
        context.report.note(f"{name}: {', '.join(f'{rate:,.0f}' for rate in rates)}")


def drain(
    context: BenchContext, jobs: int, processes: int = 1, *, keep: bool = True, prepare: Prepare | None = None
) -> Drained:
    """Fill a fresh database and let workers empty it. `prepare` is called first, to add rows or hold a snapshot."""
    with (
        context.server.fresh("drain") as url,
        context.tally() as tally,
        psycopg.connect(url, autocommit=True) as connection,
    ):
        if prepare is not None:
            prepare(connection)
        before = _stored(connection)
        last = fill(url, jobs, keep=keep)
        # A database in use has these statistics; autovacuum would collect them at an unpredictable moment.
        connection.execute("analyze sereno.jobs")
        with working(url, tally, processes) as workers:
            drained = watch(connection, workers, jobs, last)
            time.sleep(SECONDS_AFTER)
        check(tally, jobs, stored=_stored(connection) - before, expected=jobs if keep else 0)
    return drained


def fill(url: str, jobs: int, *, keep: bool = True) -> int:
    """Enqueue the jobs in bulk, and return the last id."""
    app = Sereno(url)
    tasks = register(app)
    task = tasks.noop if keep else tasks.noop_forgotten
    last = 0
    for first in range(0, jobs, CHUNK):
        numbers = range(first, min(jobs, first + CHUNK))
        last = app.enqueue_many([task.job(account(number), MONTH) for number in numbers])[-1].id
    app.close()
    return last


def watch(connection: psycopg.Connection, workers: Workers, jobs: int, last: int, first: int = 0) -> Drained:
    """Time the drain from the first handler until no job with id `first` or higher is left, and each tenth of it."""
    tally = workers.tally
    workers.wait_for(lambda: tally.executed > 0)
    moments = [time.perf_counter()]
    for tenth in range(1, 11):
        workers.wait_for(lambda wanted=jobs * tenth // 10: tally.executed >= wanted)  # type: ignore[misc]  # bound now
        moments.append(time.perf_counter())
    workers.wait_for(lambda: _is_settled(connection, last, first))
    moments[-1] = time.perf_counter()
    tenths = [jobs / 10 / (end - begin) for begin, end in pairwise(moments)]
    return Drained(jobs / (moments[-1] - moments[0]), tenths)


def check(tally: Tally, jobs: int, stored: int, expected: int) -> None:
    """Fail if a job was not executed, was executed twice, or is missing in the history."""
    if tally.executed != jobs or stored != expected:
        raise BenchmarkFailed(f"{jobs} jobs, but {tally.executed} handlers ran and {stored} are in the history")


def _is_settled(connection: psycopg.Connection, last: int, first: int) -> bool:
    # By the primary key, because the index of running rows is full of dead entries under a pinned snapshot.
    tail = connection.execute(
        "select exists (select from sereno.jobs where id between %s and %s)", [last - TAIL, last]
    ).fetchone()
    if tail is None or tail[0]:
        return False
    left = connection.execute(
        "select exists (select from sereno.jobs where state <> 'scheduled' and id >= %s)", [first]
    ).fetchone()
    return left is not None and not left[0]


def _stored(connection: psycopg.Connection) -> int:
    row = connection.execute("select count(*) from sereno.history where state = 'succeeded'").fetchone()
    return int(row[0]) if row else 0
