"""What limits cost: drains under them beside the plain drain, a small tenant beside a large one."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import psycopg

from bench.drain import SECONDS_AFTER, check, watch
from bench.site import Site
from bench.tasks import MESSAGE, MONTH, Tasks, account, microseconds, register
from bench.workers import working
from sereno import Limit, Rate, Sereno
from sereno.jobs.job import NewJob

CHUNK = 10_000
ROUNDS = 2
# A small tenant's jobs come one by one, this far apart.
PROBES = 60
SECONDS_BETWEEN = 0.05
# A worker that has run so many jobs has found its pace.
WARM = 1000

# A wake-up that nobody has read, or a lane that nobody has looked at.
UNSETTLED = """
(select 1 from sereno.lane_wakes limit 1)
union all (select 1 from sereno.lanes where has_work and waits_for is null limit 1)
"""

Make = Callable[[Tasks, int], NewJob]


@dataclass(frozen=True)
class Load:
    """How the jobs of a drain are made, and what stands in front of them."""

    make: Make
    declare: Callable[[Sereno], None] | None = None
    exhausted: int = 0
    # Less of it tells as much, where it is slow.
    part: int = 1


def run(site: Site) -> None:
    """`plain`, `global`, `keys`, `keys_50`, `tenants_drain`, `exhausted` as drains; `tenants` as waits."""
    jobs = site.size(100_000, 20_000)
    loads = {
        "unlimited": Load(_plain),
        "plain": Load(_plain, _busy_elsewhere),
        "global": Load(_plain, _queue_of_fifty, part=10),
        "keys": Load(_keyed(10_000, 1)),
        "keys_50": Load(_keyed(100, 50)),
        "tenants_drain": Load(_tenants),
        "exhausted": Load(_plain, exhausted=site.size(1_000_000, 50_000)),
    }
    seen: dict[str, list[float]] = {name: [] for name in loads}
    for number in range(site.size(ROUNDS, 1)):
        for name, load in loads.items():
            # What stands in front takes longer to make than to pass.
            if name != "exhausted" or number == 0:
                seen[name].append(_drain(site, jobs // load.part, load))
    free = median(seen.pop("unlimited"))
    site.report.figure("unlimited", free, "jobs/s")
    for name, rates in seen.items():
        site.report.figure(name, median(rates), "jobs/s", "unlimited", free)
        site.report.note(f"{name}: {', '.join(f'{rate:,.0f}' for rate in rates)}")
    _waits(site)


def _plain(tasks: Tasks, number: int) -> NewJob:
    return tasks.noop.job(account(number), MONTH)


def _keyed(keys: int, slots: int) -> Make:
    def make(tasks: Tasks, number: int) -> NewJob:
        limited = tasks.noop.using(concurrency=Limit(slots, key=f"k{number % keys}", name=f"keys.{slots}"))
        return limited.job(account(number), MONTH)

    return make


def _tenants(tasks: Tasks, number: int) -> NewJob:
    """A thousand tenants: the first has half of all jobs, the next half of the rest, and so on down to a few each."""
    tenant = 0
    while tenant < 9 and number % 2:
        number, tenant = number // 2, tenant + 1
    tenant = tenant if tenant < 9 else 9 + number % 991
    return tasks.noop.using(tenant=f"t{tenant}", fair_key="{tenant}").job(account(number), MONTH)


def _queue_of_fifty(app: Sereno) -> None:
    with psycopg.connect(app.url, autocommit=True) as connection:
        connection.execute(
            "insert into sereno.limits (name, kind, slots, queue, overridden)"
            " values ('global', 'slots', 50, 'default', true)"
        )


def _busy_elsewhere(app: Sereno) -> None:
    """Limits, lanes and waiting jobs of another queue: what the plain jobs of this one are not to notice."""
    app.queue("elsewhere", concurrency=Limit(1))
    task = register(app).noop
    limited = task.using(queue="elsewhere", concurrency=Limit(1, key="k", name="k"), rate=Rate(1, per="1h", name="r"))
    app.enqueue_many([limited.job(account(number), MONTH) for number in range(1000)])


def _drain(site: Site, jobs: int, load: Load) -> float:
    with site.server.fresh("limits") as url, site.tally() as tally, psycopg.connect(url, autocommit=True) as connection:
        app = Sereno(url)
        if load.declare is not None:
            load.declare(app)
        if load.exhausted:
            _exhaust(app, site, connection, load.exhausted)
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
        kept = connection.execute("select count(*) from sereno.history where state = 'succeeded'").fetchone()
        check(tally, jobs, kept=kept[0] if kept else 0, expected=jobs)
    return drained.rate


def _exhaust(app: Sereno, site: Site, connection: psycopg.Connection, rows: int) -> None:
    """Jobs of a thousand keys whose limit is closed, in the same queue, made before the others, and known to wait."""
    task = register(app).noop
    limited = [task.using(concurrency=Limit(0, key=f"x{key}", name="closed")) for key in range(1000)]
    for first in range(0, rows, CHUNK):
        numbers = range(first, min(rows, first + CHUNK))
        app.enqueue_many([limited[number % 1000].job(account(number), MONTH) for number in numbers])
    with site.tally() as tally, working(app.url, tally):
        while connection.execute(UNSETTLED).fetchone() is not None:
            time.sleep(SECONDS_BETWEEN)


def _waits(site: Site) -> None:
    """`tenants`: how long a small tenant's jobs wait for their start, beside a neighbour with a large backlog."""
    alone, beside = [], []
    for _ in range(site.size(ROUNDS, 1)):
        alone += _probe(site, 0)
        beside += _probe(site, site.size(100_000, 20_000))
    free = median(alone) / 1000
    site.report.figure("tenants_alone", free, "ms")
    site.report.figure("tenants", median(beside) / 1000, "ms", "tenants_alone", free)
    for name, waits in (("alone", alone), ("beside", beside)):
        site.report.note(
            f"tenants, {name}: p95 {sorted(waits)[int(len(waits) * 0.95)] / 1000:.1f} ms of {len(waits)} waits"
        )


def _probe(site: Site, backlog: int) -> list[int]:
    """Jobs that call somebody for a moment, one by one, of a small tenant; answers their waits in microseconds."""
    with site.server.fresh("limits") as url, site.tally(PROBES) as tally:
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
