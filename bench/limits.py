"""Cost of limits: drains with limits compared with a drain without, and a small tenant's wait beside a large one."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import psycopg

from bench.context import BenchContext
from bench.drain import SECONDS_AFTER, check, watch
from bench.tasks import MESSAGE, MONTH, Tasks, account, microseconds, register
from bench.workers import working
from sereno import Limit, Rate, Sereno
from sereno.jobs.job import NewJob

CHUNK = 10_000
ROUNDS = 2
# Jobs of the small tenant, enqueued one by one with this pause between them.
PROBES = 60
SECONDS_BETWEEN = 0.05
# After this number of jobs a worker runs at a steady pace.
WARM = 1000

# A wake-up that no worker has read, or a lane with work that no worker has checked.
UNSETTLED = """
(select 1 from sereno.lane_wakes limit 1)
union all (select 1 from sereno.lanes where has_work and waits_for is null limit 1)
"""

Make = Callable[[Tasks, int], NewJob]


@dataclass(frozen=True)
class Load:
    """How the jobs of a drain are created, and how many blocked jobs are ahead of them."""

    make: Make
    declare: Callable[[Sereno], None] | None = None
    exhausted: int = 0
    # Divides the number of jobs, for a load that drains slowly.
    divisor: int = 1


def run(context: BenchContext) -> None:
    """Drains `plain`, `global`, `keys`, `keys_50`, `tenants_drain`, `exhausted`; waiting times `tenants`."""
    jobs = context.size(100_000, 20_000)
    loads = {
        "unlimited": Load(_plain),
        "plain": Load(_plain, _limit_another_queue),
        "global": Load(_plain, _limit_queue_to_fifty, divisor=10),
        "keys": Load(_keyed(10_000, 1)),
        "keys_50": Load(_keyed(100, 50)),
        "tenants_drain": Load(_tenants),
        "exhausted": Load(_plain, exhausted=context.size(1_000_000, 50_000)),
    }
    measured: dict[str, list[float]] = {name: [] for name in loads}
    for number in range(context.size(ROUNDS, 1)):
        for name, load in loads.items():
            # Once only: the blocked jobs take longer to create than the drain behind them.
            if name != "exhausted" or number == 0:
                measured[name].append(_drain(context, jobs // load.divisor, load))
    unlimited = median(measured.pop("unlimited"))
    context.report.figure("unlimited", unlimited, "jobs/s")
    for name, rates in measured.items():
        context.report.figure(name, median(rates), "jobs/s", "unlimited", unlimited)
        context.report.note(f"{name}: {', '.join(f'{rate:,.0f}' for rate in rates)}")
    _waits(context)


def _plain(tasks: Tasks, number: int) -> NewJob:
    return tasks.noop.job(account(number), MONTH)


def _keyed(keys: int, slots: int) -> Make:
    def make(tasks: Tasks, number: int) -> NewJob:
        limited = tasks.noop.using(concurrency=Limit(slots, key=f"k{number % keys}", name=f"keys.{slots}"))
        return limited.job(account(number), MONTH)

    return make


def _tenants(tasks: Tasks, number: int) -> NewJob:
    """A job of one of a thousand tenants: the first has half of all jobs, the next half of the rest, and so on."""
    tenant = 0
    while tenant < 9 and number % 2:
        number, tenant = number // 2, tenant + 1
    tenant = tenant if tenant < 9 else 9 + number % 991
    return tasks.noop.using(tenant=f"t{tenant}", fair_key="{tenant}").job(account(number), MONTH)


def _limit_queue_to_fifty(app: Sereno) -> None:
    with psycopg.connect(app.url, autocommit=True) as connection:
        connection.execute(
            "insert into sereno.limits (name, kind, slots, queue, overridden)"
            " values ('global', 'slots', 50, 'default', true)"
        )


def _limit_another_queue(app: Sereno) -> None:
    """Create limits, lanes and waiting jobs in another queue, which must not slow down plain jobs in this one."""
    app.queue("elsewhere", concurrency=Limit(1))
    task = register(app).noop
    limited = task.using(queue="elsewhere", concurrency=Limit(1, key="k", name="k"), rate=Rate(1, per="1h", name="r"))
    app.enqueue_many([limited.job(account(number), MONTH) for number in range(1000)])


def _drain(context: BenchContext, jobs: int, load: Load) -> float:
    with (
        context.server.fresh("limits") as url,
        context.tally() as tally,
        psycopg.connect(url, autocommit=True) as connection,
    ):
        app = Sereno(url)
        if load.declare is not None:
            load.declare(app)
        if load.exhausted:
            _exhaust(app, context, connection, load.exhausted)
        app = Sereno(url)
        tasks = register(app)
        last = first_id = 0
        for first in range(0, jobs, CHUNK):
            numbers = range(first, min(jobs, first + CHUNK))
            made = app.enqueue_many([load.make(tasks, number) for number in numbers])
            first_id, last = first_id or made[0].id, made[-1].id
        app.close()
        connection.execute("vacuum analyze")
        connection.execute("checkpoint")
        with working(url, tally) as workers:
            drained = watch(connection, workers, jobs, last, first_id)
            time.sleep(SECONDS_AFTER)
        stored = connection.execute("select count(*) from sereno.history where state = 'succeeded'").fetchone()
        check(tally, jobs, stored=stored[0] if stored else 0, expected=jobs)
    return drained.rate


def _exhaust(app: Sereno, context: BenchContext, connection: psycopg.Connection, rows: int) -> None:
    """Enqueue jobs of a thousand keys with zero slots ahead of the others, and wait until workers know their lanes."""
    task = register(app).noop
    limited = [task.using(concurrency=Limit(0, key=f"x{key}", name="closed")) for key in range(1000)]
    for first in range(0, rows, CHUNK):
        numbers = range(first, min(rows, first + CHUNK))
        app.enqueue_many([limited[number % 1000].job(account(number), MONTH) for number in numbers])
    with context.tally() as tally, working(app.url, tally):
        while connection.execute(UNSETTLED).fetchone() is not None:
            time.sleep(SECONDS_BETWEEN)


def _waits(context: BenchContext) -> None:
    """`tenants`: how long a small tenant's jobs wait for their start, beside a tenant with a large backlog."""
    alone, beside = [], []
    for _ in range(context.size(ROUNDS, 1)):
        alone += _probe(context, 0)
        beside += _probe(context, context.size(100_000, 20_000))
    alone_ms = median(alone) / 1000
    context.report.figure("tenants_alone", alone_ms, "ms")
    context.report.figure("tenants", median(beside) / 1000, "ms", "tenants_alone", alone_ms)
    for name, waits in (("alone", alone), ("beside", beside)):
        context.report.note(
            f"tenants, {name}: p95 {sorted(waits)[int(len(waits) * 0.95)] / 1000:.1f} ms of {len(waits)} waits"
        )


def _probe(context: BenchContext, backlog: int) -> list[int]:
    """Run jobs of a small tenant one by one, each with a short simulated call; return their waits in microseconds."""
    with context.server.fresh("limits") as url, context.tally(PROBES) as tally:
        app = Sereno(url)
        task = register(app).call
        large = task.using(tenant="large", fair_key="{tenant}")
        small = task.using(tenant="small", fair_key="{tenant}")
        for first in range(0, backlog, CHUNK):
            app.enqueue_many([large.job(0, MESSAGE) for _ in range(first, min(backlog, first + CHUNK))])
        with working(url, tally) as workers:
            workers.wait_for(lambda: bool(tally.processes) and tally.executed >= min(backlog, WARM))
            for number in range(PROBES):
                small.enqueue(microseconds(), MESSAGE)
                workers.wait_for(lambda wanted=number + 1: _count(tally.samples) >= wanted)  # type: ignore[misc]  # bound now
                time.sleep(SECONDS_BETWEEN)
        app.close()
        return [sample for sample in tally.samples if sample]


def _count(samples: list[int]) -> int:
    return sum(1 for sample in samples if sample)
