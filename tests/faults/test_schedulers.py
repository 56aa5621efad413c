"""Fault tests of schedules: schedulers are killed, the database's clock jumps, and all clients change the same rows.

Afterwards every instant is accounted for exactly once: by its job, by a job that covers it, or by a skip with a reason.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from threading import Event
from typing import Any

import psycopg
import pytest
from psycopg.errors import DeadlockDetected

from sereno import Every, Sereno
from sereno.database.embedded import EmbeddedPostgres
from sereno.database.statement import run
from sereno.jobs import settlement
from sereno.jobs.attempt import SUCCEEDED
from sereno.jobs.settlement import SettleResult
from sereno.monitoring.verify import verify
from sereno.schedules import tick as ticks
from sereno.schedules.ticker import Ticker
from tests.acceptance.conftest import WorkerProcess
from tests.facts import advance, one, until, until_at_rest
from tests.faults.rhythms import Rhythm, create_rhythms
from tests.faults.server import restart
from tests.jobs.job_steps import do, line, session, take

Start = Callable[..., WorkerProcess]
Connection = psycopg.Connection[Any]

# Seconds. Jobs of a killed worker are retried after its lease, and then in isolated processes.
TIMEOUT = 90.0
# Invariants of times, which a clock that is set back during a job breaks.
TIMES = ("times_in_order", "retry_never_early")


@pytest.fixture
def created(database_url: str) -> Iterator[tuple[Sereno, dict[str, tuple[Rhythm, datetime]]]]:
    """Create every rule with every policy, and some that count from the end of a run; return their first fires."""
    app = Sereno(database_url)
    yield app, create_schedules(app)
    app.close()


def create_schedules(app: Sereno) -> dict[str, tuple[Rhythm, datetime]]:
    @app.task(name="quick")
    def quick(n: int) -> None: ...

    return create_rhythms(app, quick.job(1))


def accounted(connection: Connection, first: dict[str, tuple[Rhythm, datetime]]) -> int:
    """Check that no instant of any schedule is recorded twice or missing; return the number of instants."""
    recorded: dict[str, list[tuple[datetime, int]]] = defaultdict(list)
    for key, at, stands_for in connection.execute(
        "select key, planned_at, f.stands_for from sereno.fires f join sereno.schedules s on s.id = schedule_id "
        "union all select key, held_at, held_for from sereno.schedules where held_at is not null"
    ):
        recorded[key].append((at, stands_for))
    total = 0
    for key, (rhythm, begins) in first.items():
        rows = sorted(recorded[key])
        assert rows, f"{key} never fired"
        before = begins - rhythm.step
        for (earlier, _), (later, stands_for) in pairwise([(before, 0), *rows]):
            assert later - earlier == stands_for * rhythm.step, f"{key}: {earlier} then {later} for {stands_for}"
            total += stands_for
        assert rows[-1][0] == one(connection, "select last_planned_at from sereno.schedules where key = %s", key)
    return total


def assert_once(connection: Connection) -> None:
    """Check that each instant has at most one job, and each fired instant exactly one."""
    jobs = (
        "(select id, schedule_id, planned_at from sereno.jobs union all "
        "select id, schedule_id, planned_at from sereno.history) as made"
    )
    twice = connection.execute(
        f"select schedule_id, planned_at, count(*) from {jobs} where schedule_id is not null "
        "group by 1, 2 having count(*) > 1".encode()
    ).fetchall()
    assert twice == []
    without_job = connection.execute(
        f"select f.schedule_id, f.planned_at from sereno.fires f left join {jobs} on made.id = f.job_id "
        "where f.reason is null "
        "and (made.schedule_id, made.planned_at) is distinct from (f.schedule_id, f.planned_at)".encode()
    ).fetchall()
    assert without_job == []


def assert_sound(connection: Connection) -> None:
    with connection.transaction():
        found = run(connection, verify(lease=3.0, window=None))
    assert [check for check in found if check.violations and check.name not in TIMES] == []


def is_up_to_date(connection: Connection, overdue: float) -> bool:
    """Return whether no due instant is waiting."""
    late = "select exists (select from sereno.schedules where next_run_at < sereno.now() - make_interval(secs => %s))"
    return not one(connection, late, overdue)


def fired_after_end(connection: Connection) -> int:
    """Return the number of fires that count from the end of the previous run."""
    return int(one(connection, "select sum(fired) from sereno.schedules where key like 'end%%'"))


@pytest.mark.parametrize(
    "rounds",
    [
        pytest.param(4, marks=pytest.mark.quick),
        pytest.param(150, marks=[pytest.mark.storm, pytest.mark.timeout(3600)]),
    ],
)
def test_every_instant_is_accounted_for_once_despite_killed_schedulers_and_clock_jumps(
    worker: Start,
    created: tuple[Sereno, dict[str, tuple[Rhythm, datetime]]],
    connection: Connection,
    rounds: int,
) -> None:
    app, first = created
    rng = random.Random(11)
    behind = 0.0
    workers = [worker("--queue", "default=3", wait=False) for _ in range(3)]
    until(lambda: one(connection, "select count(*) from sereno.fires") > 0)
    for number in range(rounds):
        if number % 3 != 2:
            victim = workers.pop(rng.randrange(3))
            victim.kill()
            # Some are killed again before they have started.
            workers.append(worker("--queue", "default=3", wait=rng.random() < 0.5))
        before = fired_after_end(connection)
        # Two jumps forwards for each one back; a jump of more than twenty seconds ends the lease of the leader.
        jump = -rng.uniform(1, 40) if number % 3 == 1 else rng.uniform(0.5, 60)
        behind = max(0.0, behind - jump)
        advance(connection, jump)
        connection.execute("select pg_notify('sereno.schedule', '')")
        if not behind:
            until(lambda: is_up_to_date(connection, 1.0), TIMEOUT)
            until(lambda: fired_after_end(connection) > before, TIMEOUT)  # noqa: B023
    if behind:
        advance(connection, behind + 1)
        connection.execute("select pg_notify('sereno.schedule', '')")
    until(lambda: is_up_to_date(connection, 1.0), TIMEOUT)
    app.schedules.disable("*", actor="the end")
    until(lambda: one(connection, "select count(*) from sereno.jobs") == 0, TIMEOUT)
    for left in workers:
        assert left.end() == 0
    assert accounted(connection, first) > 20 * len(first)
    assert_once(connection)
    assert fired_after_end(connection) > rounds / 3
    assert one(connection, "select count(*) from sereno.schedules where state <> 'disabled'") == 0
    assert_sound(connection)


@pytest.mark.parametrize(
    ("count", "restarts"),
    [pytest.param(100, 2, marks=pytest.mark.slow), pytest.param(500, 40, marks=pytest.mark.storm)],
)
@pytest.mark.timeout(3600)
def test_every_instant_is_accounted_for_once_despite_database_crashes(
    worker: Start, own_server: tuple[EmbeddedPostgres, Path], count: int, restarts: int
) -> None:
    """`count` schedules fire at once every two seconds, besides those of every rule and policy."""
    server, directory = own_server
    app = Sereno(server.url)
    first = create_schedules(app)
    many = [app.schedules.new(f"many {n}", app.new_job("quick", b'{"n": 7}'), Every("2s")) for n in range(count)]
    first |= {
        row.key: (Rhythm(Every("2s"), timedelta(seconds=2)), row.next_run_at)
        for row in app.schedules.upsert_many(many)
        if row.next_run_at is not None
    }
    process = worker("--queue", "default=20", url=server.url)
    for _ in range(restarts):
        with psycopg.connect(server.url, autocommit=True) as connection:
            wanted = fired(connection) + 2 * count
            until_at_rest(lambda: fired(connection) > wanted, lambda: fired(connection))  # noqa: B023
        restart(server, directory)
    app.close()
    app = Sereno(server.url)
    with psycopg.connect(server.url, autocommit=True) as connection:
        wanted = fired(connection) + 2 * count
        until_at_rest(lambda: fired(connection) > wanted, lambda: fired(connection))
        app.schedules.disable("*", actor="the end")
        until_at_rest(lambda: live(connection) == 0, lambda: live(connection))
        assert process.end() == 0
        assert accounted(connection, first) > 2 * count * restarts
        assert_once(connection)
        assert_sound(connection)
    app.close()


def live(connection: Connection) -> int:
    return int(one(connection, "select count(*) from sereno.jobs"))


def fired(connection: Connection) -> int:
    return int(one(connection, "select count(*) from sereno.fires"))


@contextmanager
def concurrently(url: str, actions: list[Callable[[Connection, random.Random], object]]) -> Iterator[list[str]]:
    """Run each action repeatedly in its own thread and connection until the block ends; raise any error.

    Deadlocks are not raised but collected, and the loser tries again. Rows are locked in one order or skipped, and
    still about one action in ten thousand deadlocks: SKIP LOCKED waits when a row is replaced while it is read.
    """
    stopping = Event()
    deadlocks: list[str] = []

    def call(number: int, action: Callable[[Connection, random.Random], object]) -> int:
        rng, times = random.Random(number), 0
        with line(url) as own:
            own.execute("set deadlock_timeout = '20ms'")
            while not stopping.is_set():
                try:
                    action(own, rng)
                    times += 1
                except DeadlockDetected as error:
                    deadlocks.append(str(error))
        return times

    with ThreadPoolExecutor(len(actions)) as threads:
        calls = [threads.submit(call, number, action) for number, action in enumerate(actions)]
        try:
            yield deadlocks
        finally:
            stopping.set()
        assert all(called.result() > 3 for called in calls), [called.result() for called in calls]
        assert len(deadlocks) <= 1 + sum(called.result() for called in calls) // 5000, deadlocks


@pytest.mark.parametrize(
    "seconds",
    [
        pytest.param(60, marks=pytest.mark.slow),
        pytest.param(5000, marks=[pytest.mark.storm, pytest.mark.timeout(3600)]),
    ],
)
def test_every_instant_is_accounted_for_once_despite_concurrent_changes(
    created: tuple[Sereno, dict[str, tuple[Rhythm, datetime]]], connection: Connection, seconds: int
) -> None:
    """Several schedulers tick while runs end, operators change schedules, programs redeclare, and the clock moves."""
    app, first = created
    schedules = list(app.schedules.list())
    owner = session(connection, tasks=("quick",), lease=10**6)

    def tick(own: Connection, rng: random.Random) -> None:
        with own.transaction():
            do(own, Ticker().tick(limit=rng.choice([1, 5, 50])))

    def end_runs(own: Connection, _: random.Random) -> None:
        do(own, ticks.end_runs())
        do(own, ticks.heal(0))

    def work(own: Connection, _: random.Random) -> None:
        done = [SettleResult(job.id, job.attempt, 0.0, SUCCEEDED) for job in take(own, owner, 50, tasks=("quick",))]
        if done:
            do(own, settlement.settle("succeed", owner, done))

    def change(own: Connection, rng: random.Random) -> None:
        own.execute(
            "update sereno.schedules set note = %s "
            "where key in (select key from sereno.schedules order by key for update)",
            [str(rng.random())],
        )

    def redeclare(own: Connection, rng: random.Random) -> None:
        row = rng.choice(schedules)
        app.schedules.upsert(
            row.key,
            app.new_job("quick", b'{"n": 1}'),
            first[row.key][0].when if row.key in first else Every("500ms", count_from="end"),
            disable_after=rng.randrange(10**6, 10**7),
            **{name: getattr(row, name) for name in ("missed", "missed_limit", "max_lateness", "overlap")},
        )

    with concurrently(app.url, [tick, tick, tick, end_runs, work, work, change, redeclare]):
        for _ in range(seconds):
            advance(connection, 1)
            until(lambda: is_up_to_date(connection, 3.0))
    for _ in range(20):
        tick(connection, random.Random(1))
        work(connection, random.Random(1))
        end_runs(connection, random.Random(1))
    accounted(connection, first)
    assert_once(connection)
    assert_sound(connection)
