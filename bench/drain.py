"""A full queue emptied by one process and by two, with successes stored in the history and without.

Each drain is measured between two ceilings and compared with their mean. The processor time of the workers and of
PostgreSQL scatters less than the speed, because it does not depend on what else the machine does.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from statistics import mean, median

import psycopg

from bench import ceiling
from bench.context import BenchContext
from bench.cpu_time import server_seconds
from bench.tally import Tally
from bench.tasks import MONTH, QUEUE, account, register
from bench.workers import BenchmarkFailed, Workers, working
from sereno import Sereno

CHUNK = 10_000
ROUNDS = 5
# More jobs than any worker holds. The whole table is queried, which is expensive, only when the last TAIL ids are gone.
TAIL = 5_000
# Long enough for a second execution of a job to show itself.
SECONDS_AFTER = 0.3

Prepare = Callable[[psycopg.Connection], None]
Fill = Callable[[str, int], int]


@dataclass(frozen=True)
class Drained:
    """One drain: jobs per second from the first handler to the last settlement, in all and of each tenth.

    `worker`, `server`: microseconds of processor time for each job, of all workers and of PostgreSQL.
    """

    rate: float
    tenths: list[float]
    worker: float
    server: float


def run(context: BenchContext) -> None:
    """`drain`, `drain_two`, `drain_forget` and `drain_forget_two`, each compared with the ceiling of the same run."""
    jobs = context.size(200_000, 40_000)
    ceilings = [ceiling.measure(context, jobs)]
    measured: dict[str, list[Drained]] = {}
    references: dict[str, list[ceiling.Ceiling]] = {}
    for _ in range(context.size(ROUNDS, 1)):
        for name, processes, keep in (
            ("drain", 1, True),
            ("drain_two", 2, True),
            ("drain_forget", 1, False),
            ("drain_forget_two", 2, False),
        ):
            measured.setdefault(name, []).append(drain(context, jobs, processes, keep=keep))
            ceilings.append(ceiling.measure(context, jobs))
            references.setdefault(name, []).append(ceiling.Ceiling(*map(mean, zip(*ceilings[-2:], strict=True))))
    context.report.figure("ceiling", median(each.rate for each in ceilings), "jobs/s")
    context.report.figure("ceiling_cpu", median(each.spent for each in ceilings), "us/job")
    context.report.note(f"ceiling: {', '.join(f'{each.rate:,.0f}' for each in ceilings)}")
    for name, drained in measured.items():
        limits = references[name]
        context.report.rounds(
            name, [each.rate for each in drained], "jobs/s", "ceiling", [each.rate for each in limits]
        )
        spent = [each.worker + each.server for each in drained]
        context.report.rounds(f"{name}_cpu", spent, "us/job", "ceiling_cpu", [each.spent for each in limits])
        context.report.figure(f"{name}_cpu_worker", median(each.worker for each in drained), "us/job")
        context.report.figure(f"{name}_cpu_server", median(each.server for each in drained), "us/job")
        context.report.note(f"{name}: {', '.join(f'{each.rate:,.0f}' for each in drained)}")


def drain(
    context: BenchContext,
    jobs: int,
    processes: int = 1,
    *,
    keep: bool = True,
    prepare: Prepare | None = None,
    enqueue: Fill | None = None,
) -> Drained:
    """Fill a fresh database and let workers empty it. `prepare` is called first, to add rows or hold a snapshot.

    `enqueue`: adds this number of jobs in another way, and returns the last id.
    """
    with (
        context.server.fresh("drain") as url,
        context.tally() as tally,
        psycopg.connect(url, autocommit=True) as connection,
    ):
        if prepare is not None:
            prepare(connection)
        before = _stored(connection)
        last = fill(url, jobs, keep=keep) if enqueue is None else enqueue(url, jobs)
        # A database in use has these statistics; autovacuum would collect them at an unpredictable moment.
        connection.execute("analyze sereno.jobs")
        with working(url, tally, processes) as workers:
            drained = watch(connection, workers, jobs, last)
            time.sleep(SECONDS_AFTER)
        check(tally, jobs, stored=_stored(connection) - before, expected=jobs if keep else 0)
    return drained


def fill(url: str, jobs: int, *, keep: bool = True, queue: str = QUEUE) -> int:
    """Enqueue the jobs in bulk, and return the last id."""
    app = Sereno(url)
    tasks = register(app)
    task = (tasks.noop if keep else tasks.noop_forgotten).using(queue=queue)
    last = 0
    for first in range(0, jobs, CHUNK):
        numbers = range(first, min(jobs, first + CHUNK))
        last = app.enqueue_many([task.job(account(number), MONTH) for number in numbers])[-1].id
    app.close()
    return last


def watch(
    connection: psycopg.Connection,
    workers: Workers,
    jobs: int,
    last: int,
    first: int = 0,
    *,
    is_written: Callable[[], bool] = lambda: True,
) -> Drained:
    """Time the drain from the first handler until no job with id `first` or higher is left, and each tenth of it.

    `is_written`: whether everything else that the jobs write is in the database; the drain ends when it is.
    """
    tally = workers.tally
    workers.wait_for(lambda: tally.executed > 0)
    moments = [time.perf_counter()]
    spent = [workers.processor_seconds(), server_seconds(connection)]
    for tenth in range(1, 11):
        workers.wait_for(lambda wanted=jobs * tenth // 10: tally.executed >= wanted)  # type: ignore[misc]  # bound now
        moments.append(time.perf_counter())
    workers.wait_for(lambda: _is_settled(connection, last, first) and is_written())
    moments[-1] = time.perf_counter()
    worker = workers.processor_seconds() - spent[0]
    server = server_seconds(connection) - spent[1]
    tenths = [jobs / 10 / (end - begin) for begin, end in pairwise(moments)]
    return Drained(jobs / (moments[-1] - moments[0]), tenths, worker * 1e6 / jobs, server * 1e6 / jobs)


def check(tally: Tally, jobs: int, stored: int, expected: int) -> None:
    """Fail if a job was not executed, was executed twice, or is missing in the history."""
    if tally.executed != jobs or stored != expected:
        raise BenchmarkFailed(f"{jobs} jobs, but {tally.executed} handlers ran and {stored} are in the history")


def _is_settled(connection: psycopg.Connection, last: int, first: int) -> bool:
    # By the primary key, because the index of running rows is full of dead entries under a pinned snapshot.
    tail = connection.execute(
        "select exists (select from sereno.jobs where id between %s and %s)", [max(first, last - TAIL), last]
    ).fetchone()
    if tail is None or tail[0]:
        return False
    left = connection.execute(
        "select exists (select from sereno.jobs where state not in ('scheduled', 'waiting') and id >= %s)", [first]
    ).fetchone()
    return left is not None and not left[0]


def _stored(connection: psycopg.Connection) -> int:
    row = connection.execute("select count(*) from sereno.history where state = 'succeeded'").fetchone()
    return int(row[0]) if row else 0
