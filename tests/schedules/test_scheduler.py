"""The scheduler on a real PostgreSQL: who leads, who helps, when it wakes, what it does when something is broken."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import msgspec
import psycopg
import pytest

from sereno import Cron, Daily, Every, Sereno
from sereno.client.task import Task
from sereno.domain.firing import Overlap
from sereno.domain.zones import VERSION
from sereno.engine import replanner
from sereno.engine import scheduler as module
from sereno.engine.scheduler import LEASE, Scheduler
from sereno.engine.ticker import Ticked, Ticker
from sereno.errors import DatabaseUnavailable
from sereno.store import leases, ticks
from sereno.store.statement import Statement, queries
from tests.facts import advance, auntil, one, until
from tests.store.acts import do, line
from tests.store.plans import nodes

Work = Task[[str], None]
Connection = psycopg.Connection[Any]


@pytest.fixture
def work(app: Sereno) -> Work:
    @app.task
    def work(name: str) -> None: ...

    return work


def made(connection: Connection, key: str | None = None) -> int:
    """Jobs that schedules made, finished or not."""
    found: int = one(
        connection,
        "select count(*) from (select schedule_id from sereno.jobs union all select schedule_id from sereno.history) j "
        "join sereno.schedules s on s.id = schedule_id where %s::text is null or key = %s",
        key,
        key,
    )
    return found


def now(connection: Connection) -> datetime:
    found: datetime = one(connection, "select sereno.now()")
    return found


def lease(connection: Connection) -> tuple[str, int]:
    row = connection.execute("select holder, fence from sereno.leases where name = 'scheduler'").fetchone()
    assert row is not None
    return row[0], row[1]


@asynccontextmanager
async def scheduling(app: Sereno, **settings: Any) -> AsyncIterator[Scheduler]:
    started = Scheduler(app.url, msgspec.structs.replace(app.settings, **settings))
    started.start()
    try:
        yield started
    finally:
        await started.stop()


async def asleep(connection: Connection) -> None:
    """It leads, has looked, and means to sleep for seconds."""
    await auntil(
        lambda: one(connection, "select wakes_at > sereno.now() + interval '3 seconds' from sereno.leases") or False
    )


@contextmanager
def locked(url: str, key: str) -> Iterator[None]:
    """Somebody is changing this schedule."""
    with psycopg.connect(url) as other:
        other.execute("select from sereno.schedules where key = %s for update", [key])
        yield
        other.rollback()


# Who leads


async def test_the_first_one_leads_and_the_second_follows_until_the_first_resigns(
    app: Sereno, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It is told when the leader goes: it waits neither for its next look nor for the lease to run out.
    monkeypatch.setattr(module, "REST", 600.0)
    async with scheduling(app) as leader:
        await auntil(lambda: leader.leads)
        holder, fence = lease(connection)
        assert holder == leader.holder
        async with scheduling(app) as follower:
            await auntil(lambda: follower.rounds > 0)
            assert not follower.leads
            await leader.stop()
            await auntil(lambda: follower.leads)
            assert lease(connection) == (follower.holder, fence + 1)


async def test_a_lease_that_ran_out_is_taken_and_the_old_leader_notices(app: Sereno, connection: Connection) -> None:
    async with scheduling(app) as first:
        await auntil(lambda: first.leads)
        _, fence = lease(connection)
        second = Scheduler(app.url, app.settings)
        await second.run_once()
        assert not second.leads
        advance(connection, LEASE + 1)
        await second.run_once()
        assert second.leads
        assert lease(connection) == (second.holder, fence + 1)
        first.wake()
        await auntil(lambda: not first.leads)
        # What the old one writes about itself afterwards changes nothing.
        with line(app.url) as its_own:
            seen = do(
                its_own,
                leases.look(
                    first.holder,
                    fence,
                    lease=LEASE,
                    rest=1,
                    floor=0,
                    ended=0,
                    everything=True,
                    last=leases.LastTick(at=1, fires=99),
                ),
            )
        assert not seen.leads
        assert one(connection, "select tick_fires from sereno.leases") != 99
        await second.stop()


async def test_a_clock_that_was_set_back_does_not_keep_a_dead_leader_in_office(
    app: Sereno, connection: Connection
) -> None:
    dead = Scheduler(app.url, app.settings)
    await dead.run_once()
    assert dead.leads
    advance(connection, -3600)
    second = Scheduler(app.url, app.settings)
    await second.run_once()
    assert second.leads
    for each in (dead, second):
        await each.stop()


async def test_a_follower_helps_when_the_leader_is_stuck(app: Sereno, work: Work, connection: Connection) -> None:
    app.schedules.upsert("k", work.job("a"), Every("1h"))
    stuck = Scheduler(app.url, app.settings)
    await stuck.run_once()
    assert stuck.leads
    helper = Scheduler(app.url, app.settings)
    advance(connection, 3601)
    connection.execute("update sereno.leases set until = sereno.now() + interval '10 seconds'")
    await helper.run_once()
    assert made(connection) == 0, "a leader that is a second late needs no help"
    advance(connection, 2)
    await helper.run_once()
    assert not helper.leads
    assert made(connection) == 1
    for each in (stuck, helper):
        await each.stop()


async def test_what_a_new_leader_could_not_finish_it_does_again_and_fires_meanwhile(
    app: Sereno, work: Work, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.schedules.upsert("k", work.job("a"), Every("1h"))
    connection.execute(
        "insert into sereno.leases (name, holder, since, until, zones) values ('scheduler', 'x', now(), now(), '2001a')"
    )
    advance(connection, 3601)
    scheduler = Scheduler(app.url, app.settings)
    run = scheduler._line.run
    broken = True

    async def fails_once(operation: Any, *args: Any, **options: Any) -> Any:
        if broken and operation.__name__ in ("heal", "zoned"):
            operation.close()
            raise DatabaseUnavailable("cut")
        return await run(operation, *args, **options)

    monkeypatch.setattr(scheduler._line, "run", fails_once)
    await scheduler.run_once()
    for _ in range(3):
        with pytest.raises(DatabaseUnavailable):
            await scheduler.run_once()
    assert scheduler.leads
    assert made(connection) == 1
    broken = False
    await scheduler.run_once()
    assert one(connection, "select zones from sereno.leases") == VERSION
    await scheduler.stop()


async def test_much_to_plan_anew_does_not_keep_a_new_leader_from_leading(
    app: Sereno, work: Work, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page at a time, between looks that keep the lease."""
    monkeypatch.setattr(replanner, "PAGE", 2)
    for number in range(7):
        app.schedules.upsert(f"k{number}", work.job("a"), Daily("03:00", tz="Europe/Riga"))
        fake_next(connection, f"k{number}", now(connection) + timedelta(hours=2))
    connection.execute(
        "insert into sereno.leases (name, holder, since, until, zones) values ('scheduler', 'x', now(), now(), '2001a')"
    )
    scheduler = Scheduler(app.url, app.settings)
    await scheduler.run_once()
    assert scheduler.leads
    until_at = []
    while one(connection, "select zones from sereno.leases") != VERSION:
        await scheduler.run_once()
        until_at.append(one(connection, "select until from sereno.leases"))
    assert len(set(until_at)) >= 4
    assert one(connection, "select count(distinct next_run_at) from sereno.schedules") == 1
    await scheduler.stop()


# When it wakes


async def test_it_is_told_of_a_schedule_that_is_due_before_it_means_to_wake(
    app: Sereno, work: Work, connection: Connection
) -> None:
    async with scheduling(app) as scheduler:
        await auntil(lambda: scheduler.leads)
        await asleep(connection)
        await app.schedules.aupsert("k", work.job("a"), Every("200ms"))
        await auntil(lambda: made(connection), patience=3)


async def test_it_is_told_by_sql_as_well(app: Sereno, work: Work, connection: Connection) -> None:
    async with scheduling(app) as scheduler:
        await auntil(lambda: scheduler.leads)
        await asleep(connection)
        connection.execute("select sereno.schedule('k', 'work', '{}', every => interval '0.2 seconds')")
        await auntil(lambda: made(connection), patience=3)


async def test_it_finds_out_by_itself_without_notify(
    app: Sereno, work: Work, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REST", 0.5)
    async with scheduling(app, notify=False) as scheduler:
        await auntil(lambda: scheduler.leads)
        await app.schedules.aupsert("k", work.job("a"), Every("100ms"))
        await auntil(lambda: made(connection))


async def test_a_schedule_of_a_slow_transaction_is_found_below_the_floor(
    app: Sereno, work: Work, connection: Connection
) -> None:
    """Its first instant was long past when it became visible; other schedules had moved the floor on meanwhile."""
    app.schedules.upsert("busy", work.job("busy"), Every("300ms"), overlap="allow")
    async with scheduling(app) as scheduler, app.database.aconnection() as slow:
        await auntil(lambda: made(connection, "busy"))
        async with slow.transaction():
            await slow.execute("select sereno.schedule('late', 'work', '{}', every => interval '1 hour')")
            await slow.execute(
                "update sereno.schedules set next_run_at = sereno.now() - interval '10 minutes', planned = true "
                "where key = 'late'"
            )
            before = made(connection, "busy")
            await auntil(lambda: made(connection, "busy") > before + 1)
            await auntil(lambda: scheduler._floor > 0)
        await auntil(lambda: made(connection, "late"), patience=3)


async def test_a_clock_that_was_set_back_delays_nothing_that_is_due_by_it(
    app: Sereno, work: Work, connection: Connection
) -> None:
    """The floor is a moment of the clock before; whatever is due between the two must be seen all the same."""
    app.schedules.upsert("k", work.job("a"), Every("1h"))
    async with scheduling(app) as scheduler:
        await auntil(lambda: scheduler.leads)
        advance(connection, 3601)
        scheduler.wake()
        await auntil(lambda: made(connection, "k"))
        await auntil(lambda: scheduler._floor > 0)
        advance(connection, -7200)
        await app.schedules.aupsert("new", work.job("b"), Every("500ms"))
        await auntil(lambda: made(connection, "new"), patience=5)
        assert made(connection, "k") == 1


# Runs that end


async def ran(app: Sereno, connection: Connection, key: str, number: int) -> None:
    await auntil(lambda: app.schedules.get(key).succeeded >= number)


async def test_an_interval_that_counts_from_the_end_is_planned_from_the_end(
    app: Sereno, connection: Connection
) -> None:
    go_on = asyncio.Event()

    @app.task
    async def slow() -> None:
        await go_on.wait()

    app.schedules.upsert("k", slow.job(), Every("1h", count_from="end"))
    advance(connection, 3601)
    async with app.working():
        await auntil(lambda: one(connection, "select count(*) from sereno.jobs where state = 'running'"))
        row = app.schedules.get("k")
        assert (row.state, row.next_run_at) == ("enabled", None)
        advance(connection, 10_000)
        go_on.set()
        await ran(app, connection, "k", 1)
    row = app.schedules.get("k")
    assert row.last_finished_at is not None
    assert row.next_run_at == row.last_finished_at + timedelta(hours=1)
    assert one(connection, "select finished_at from sereno.history") == row.last_finished_at
    # The time that it ran was not missed.
    assert (row.fired, row.missed_count, row.skipped) == (1, 0, {})


async def test_a_late_start_of_such_an_interval_stands_for_itself_alone(
    app: Sereno, work: Work, connection: Connection
) -> None:
    app.schedules.upsert("k", work.job("a"), Every("1h", count_from="end"))
    advance(connection, 100 * 3600)
    app.schedules.tick()
    assert one(connection, "select stands_for from sereno.fires") == 1
    assert app.schedules.get("k").missed_count == 0


@pytest.mark.parametrize("overlap", ["queue_one", "cancel_previous"])
async def test_a_fire_that_waited_goes_when_the_run_before_it_has_ended(
    app: Sereno, connection: Connection, overlap: Overlap
) -> None:
    go_on = asyncio.Event()
    began: list[str] = []

    @app.task
    async def slow() -> None:
        began.append("")
        if len(began) == 1:
            await go_on.wait()

    app.schedules.upsert("k", slow.job(), Every("1h"), overlap=overlap)
    advance(connection, 3601)
    async with app.working():
        await auntil(lambda: began)
        second = app.schedules.get("k").next_run_at
        advance(connection, 3601)
        connection.execute("select pg_notify('sereno.schedule', '')")
        if overlap == "queue_one":
            await auntil(lambda: app.schedules.get("k").held_at == second)
            assert made(connection) == 1
            go_on.set()
        await auntil(lambda: len(began) == 2)
        await ran(app, connection, "k", 1)
    row = app.schedules.get("k")
    assert (row.held_at, row.fired, row.skipped) == (None, 2, {})
    states = [row[0] for row in connection.execute("select state from sereno.history order by id")]
    assert states == [{"queue_one": "succeeded", "cancel_previous": "cancelled"}[overlap], "succeeded"]
    assert one(connection, "select max(planned_at) from sereno.history") == second


@pytest.mark.parametrize("overlap", ["queue_one", "cancel_previous"])
async def test_what_waited_goes_although_the_next_instant_has_come_too(
    app: Sereno, work: Work, connection: Connection, overlap: Overlap
) -> None:
    """No scheduler was there when the run ended: both are to be done at once, and neither may block the other."""
    app.schedules.upsert("k", work.job("a"), Every("1h"), overlap=overlap)
    advance(connection, 3601)
    app.schedules.tick()
    connection.execute("update sereno.jobs set state = 'running', session_id = 1, attempt = 1, claimed_at = now()")
    advance(connection, 3600)
    app.schedules.tick()
    assert app.schedules.get("k").held_at is not None
    connection.execute("delete from sereno.jobs")
    advance(connection, 3600)
    for _ in range(6):
        app.schedules.tick()
        advance(connection, 3600)
        connection.execute("delete from sereno.jobs")
    fires = connection.execute("select planned_at, reason from sereno.fires order by planned_at").fetchall()
    made_jobs = [planned for planned, reason in fires if reason is None]
    assert len(made_jobs) >= 6
    steps = {later - earlier for (earlier, _), (later, _) in pairwise(fires)}
    assert steps == {timedelta(hours=1)}


async def test_a_paused_schedule_keeps_what_waited_to_itself_until_it_is_resumed(
    app: Sereno, work: Work, connection: Connection
) -> None:
    app.schedules.upsert("k", work.job("a"), Every("1h"), overlap="queue_one")
    for _ in range(2):
        advance(connection, 3601)
        app.schedules.tick()
    until = now(connection) + timedelta(days=1)
    assert app.schedules.get("k").held_at is not None
    for pause_until in (None, until):
        app.schedules.pause("k", until=pause_until, note="holiday")
        with line(app.url) as own:
            do(own, ticks.end_runs())
        app.schedules.tick()
        row = app.schedules.get("k")
        assert row.held_at is not None
        assert row.note == "holiday"
        assert row.paused_until == pause_until
        assert row.state == ("paused" if pause_until is None else "enabled")
    connection.execute("delete from sereno.jobs")
    app.schedules.resume("k")
    async with scheduling(app):
        await auntil(lambda: app.schedules.get("k").held_at is None)
    assert one(connection, "select count(*) from sereno.jobs") == 1
    assert app.schedules.get("k").state == "enabled"


def test_runs_of_schedules_that_are_being_changed_hold_up_nobody(
    app: Sereno, work: Work, connection: Connection
) -> None:
    made = [app.schedules.upsert(key, work.job("a"), Every("1h")) for key in ("locked", "free")]
    for schedule, count in zip(made, (1500, 1), strict=True):
        connection.execute(
            "insert into sereno.schedule_ends (schedule_id, job_id, state, finished_at) "
            "select %s, n, 'succeeded', sereno.now() from generate_series(1, %s) as n",
            [schedule.id, count],
        )
    with line(app.url) as other, other.transaction():
        other.execute("select from sereno.schedules where key = 'locked' for update")
        app.schedules.tick()
        assert app.schedules.get("free").succeeded == 1
    app.schedules.tick()
    assert app.schedules.get("locked").succeeded == 1500


async def test_a_schedule_that_fails_too_often_is_disabled_and_counts_go_on(
    app: Sereno, connection: Connection
) -> None:
    outcomes = [True, False, False, True, False, False, False]

    @app.task(retry=0)
    async def moody() -> None:
        if not outcomes.pop(0):
            raise OSError("no line")

    app.schedules.upsert("k", moody.job(), Every("1h"), disable_after=3)
    async with app.working():
        for number in range(1, 8):
            advance(connection, 3601)
            connection.execute("select pg_notify('sereno.schedule', '')")
            await auntil(lambda: one(connection, "select succeeded + failed from sereno.schedules") == number)  # noqa: B023
    row = app.schedules.get("k")
    assert (row.state, row.next_run_at, row.fired) == ("disabled", None, 7)
    assert (row.succeeded, row.failed, row.failed_in_row) == (2, 5, 3)
    assert (row.last_state, row.last_error) == ("dead", "OSError: no line")
    assert row.note == "disabled after 3 failed runs in a row: OSError: no line"


# What is broken does not stop the rest


def poison_priority(connection: Connection) -> None:
    """Written the quick way, with the rest of the batch."""
    connection.execute("alter table sereno.schedules drop constraint schedules_priority_check")
    connection.execute("update sereno.schedules set priority = 99 where key = 'poison'")


def poison_check(connection: Connection) -> None:
    """Written the careful way: a limit makes it so."""
    connection.execute("alter table sereno.jobs add constraint no_poison check (args ->> 'name' <> 'poison')")
    connection.execute("update sereno.schedules set max_fires = 100")


def poison_format(connection: Connection) -> None:
    """A format that nobody checked: it would fill the memory."""
    connection.execute(
        """update sereno.schedules set templated = true, args = '{"name": "{fire:%999999999d}"}' where key = 'poison'"""
    )


def poison_number(connection: Connection) -> None:
    """A number that is none of ours, in a row that is read with the rest of the batch."""
    connection.execute(
        "update sereno.schedules set templated = true, args = jsonb_build_object('name', 1e400 + 0.5) "
        "where key = 'poison'"
    )


def poison_depth(connection: Connection) -> None:
    deep = '{"name": ' + 2000 * "[" + 2000 * "]" + "}"
    connection.execute("update sereno.schedules set templated = true, args = %s where key = 'poison'", [deep])


def poison_window(connection: Connection) -> None:
    connection.execute("update sereno.schedules set missed_window = 'infinity' where key = 'poison'")


def poison_held(connection: Connection) -> None:
    """What waits is broken, not what is due."""
    connection.execute("alter table sereno.jobs add constraint no_poison check (args ->> 'name' <> 'poison')")
    connection.execute(
        "update sereno.schedules set held_at = sereno.now(), held_free = true, next_run_at = null where key = 'poison'"
    )


POISONS = (
    poison_priority,
    poison_check,
    poison_format,
    poison_number,
    poison_depth,
    poison_window,
    poison_held,
)


@pytest.mark.parametrize("poison", POISONS, ids=[poison.__name__ for poison in POISONS])
async def test_a_row_that_cannot_be_fired_is_parked_and_its_neighbours_fire(
    app: Sereno, work: Work, connection: Connection, poison: Callable[[Connection], None]
) -> None:
    others = [f"k{number}" for number in range(6)]
    app.schedules.upsert_many(
        [app.schedules.new(key, work.job(key), Every("1h")) for key in (*others[:3], "poison", *others[3:])]
    )
    poison(connection)
    advance(connection, 3601)
    async with scheduling(app) as scheduler:
        # Asked by SQL: such a row cannot be shown otherwise.
        await auntil(lambda: one(connection, "select note from sereno.schedules where state = 'parked'"))
        await auntil(lambda: made(connection) == len(others))
        await auntil(lambda: scheduler.figures.parked == 1)
        assert one(connection, "select count(*) from sereno.schedules where state = 'enabled'") == len(others)
        # And everything goes on as before.
        advance(connection, 3601)
        connection.execute("delete from sereno.jobs")
        scheduler.wake()
        await auntil(lambda: made(connection) == len(others))


@pytest.fixture
def small_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH", 20)
    monkeypatch.setattr(module, "MUCH", 40)


@pytest.mark.usefixtures("small_passes")
async def test_much_to_do_is_shared_with_a_second_connection(app: Sereno, work: Work, connection: Connection) -> None:
    app.schedules.upsert_many([app.schedules.new(f"k{n}", work.job("a"), Cron("0 * * * *")) for n in range(1000)])
    advance(connection, 3601)
    async with scheduling(app) as scheduler:
        await auntil(lambda: made(connection) == 1000)
        assert scheduler._second_ticker._next, "it took nothing"
        # Counted once the commit is answered.
        await auntil(lambda: scheduler.figures.fires >= 1000)
        assert scheduler.figures.fires == 1000
        await asleep(connection)
        await auntil(lambda: scheduler._second_line._connection is None)
    assert one(connection, "select sum(fired) from sereno.schedules") == 1000


@pytest.mark.usefixtures("small_passes")
@pytest.mark.parametrize("place", [45, 65, 199])
async def test_what_the_second_connection_cannot_fire_is_met_by_the_first(
    app: Sereno, work: Work, connection: Connection, place: int
) -> None:
    keys = [f"k{number:03}" for number in range(200)]
    app.schedules.upsert_many([app.schedules.new(key, work.job(key), Every("1h")) for key in keys])
    connection.execute(
        f"alter table sereno.jobs add constraint no_poison check (args ->> 'name' <> 'k{place:03}')".encode()
    )
    advance(connection, 3601)
    async with scheduling(app):
        await auntil(lambda: made(connection) == 199)
        await auntil(lambda: app.schedules.get(f"k{place:03}").state == "parked")
    assert one(connection, "select count(*) from sereno.schedules where state = 'enabled' and fired = 1") == 199


async def test_moments_that_never_come_are_moments_too(app: Sereno, work: Work, connection: Connection) -> None:
    """SQL knows infinity: an end that never comes, a start that always was, a next time that never is."""
    for key in ("endless", "ever", "never"):
        app.schedules.upsert(key, work.job(key), Every("1h"))
    connection.execute("update sereno.schedules set ends_at = 'infinity' where key = 'endless'")
    connection.execute("update sereno.schedules set starts_at = '-infinity' where key = 'ever'")
    connection.execute(
        "update sereno.schedules set next_run_at = 'infinity', max_lateness = 'infinity' where key = 'never'"
    )
    assert {row.key for row in app.schedules.list() if row.ends_at is None and row.max_lateness is None} == {
        "endless",
        "ever",
        "never",
    }
    async with scheduling(app) as scheduler:
        await auntil(lambda: scheduler.leads)
        advance(connection, 3601)
        scheduler.wake()
        await auntil(lambda: made(connection) == 2)
        connection.execute("delete from sereno.schedules where key <> 'never'")
        scheduler.wake()
        await asleep(connection)
    assert scheduler._failures == 0


async def test_a_schema_that_is_out_of_order_parks_nobody(app: Sereno, work: Work, connection: Connection) -> None:
    """A missing table or a missing right is no fault of any schedule."""
    for number in range(3):
        app.schedules.upsert(f"k{number}", work.job("a"), Every("1h"))
    connection.execute("alter table sereno.fires rename to fires_away")
    advance(connection, 3601)
    async with scheduling(app) as scheduler:
        await auntil(lambda: scheduler._failures >= 2)
        assert one(connection, "select error from sereno.leases") is not None
        connection.execute("alter table sereno.fires_away rename to fires")
        await auntil(lambda: made(connection) == 3)
    assert one(connection, "select count(*) from sereno.schedules where state = 'enabled'") == 3


async def test_a_pass_that_takes_too_long_is_followed_by_smaller_ones(
    app: Sereno, work: Work, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same pass again would take too long again, for ever."""
    app.schedules.upsert_many([app.schedules.new(f"k{n}", work.job("a"), Every("1h")) for n in range(40)])
    advance(connection, 3601)
    limits: list[int] = []
    tick = Ticker.tick

    def slow(self: Ticker, floor: int = 0, limit: int = 0, *, look_at_held: bool = True) -> Any:
        limits.append(limit)
        done = yield from tick(self, floor, limit, look_at_held=look_at_held)
        if done.taken > 35:
            yield Statement("select pg_sleep(600)")
        return done

    monkeypatch.setattr(Ticker, "tick", slow)
    monkeypatch.setattr(module, "TICK_TIMEOUT", 0.5)
    async with scheduling(app):
        await auntil(lambda: made(connection) == 40)
    assert limits[0] > 40
    assert min(limits) <= 35


async def test_a_locked_schedule_stops_nobody_and_fires_when_it_is_released(
    app: Sereno, work: Work, connection: Connection
) -> None:
    for key in ("locked", "free"):
        app.schedules.upsert(key, work.job(key), Every("1h"), overlap="allow")
    async with scheduling(app) as scheduler:
        await auntil(lambda: scheduler.leads)
        with locked(app.url, "locked"):
            for number in range(1, 4):
                advance(connection, 3601)
                scheduler.wake()
                await auntil(lambda: made(connection, "free") == number)  # noqa: B023
            assert made(connection, "locked") == 0
        await auntil(lambda: made(connection, "locked"), patience=5)
    assert (
        one(
            connection,
            "select stands_for from sereno.jobs j join sereno.schedules s on s.id = j.schedule_id where key = 'locked'",
        )
        == 3
    )


# Zone data, healing


def fake_next(connection: Connection, key: str, at: datetime) -> None:
    connection.execute("update sereno.schedules set next_run_at = %s where key = %s", [at, key])


async def test_newer_zone_data_moves_what_depends_on_it_and_nothing_else(
    app: Sereno, work: Work, connection: Connection
) -> None:
    riga, begins = "Europe/Riga", now(connection) + timedelta(days=30)
    app.schedules.upsert("daily", work.job("a"), Daily("03:00", tz=riga))
    app.schedules.upsert("steady", work.job("a"), Every("5h", tz=riga))
    app.schedules.upsert("due", work.job("a"), Daily("03:00", tz=riga))
    app.schedules.upsert("later", work.job("a"), Daily("03:00", tz=riga), starts_at=begins)
    app.schedules.upsert("spread", work.job("a"), Cron("0 3 * * *", tz=riga, spread="1h"))
    right = {row.key: row.next_run_at for row in app.schedules.list()}
    wrong = now(connection) + timedelta(hours=2, minutes=1)
    past = now(connection) - timedelta(minutes=1)
    for key in ("daily", "spread"):
        fake_next(connection, key, wrong)
    fake_next(connection, "due", past)
    fake_next(connection, "steady", wrong)
    async with scheduling(app, scheduler=True) as first:
        await auntil(lambda: one(connection, "select zones from sereno.leases") == VERSION)
        assert first.leads
        # It was there from the beginning: nothing was to be moved.
        assert app.schedules.get("daily").next_run_at == wrong
    connection.execute("update sereno.leases set zones = '2001a'")
    async with scheduling(app) as second:
        await auntil(lambda: second.leads)
        await auntil(lambda: made(connection, "due"))
        await auntil(lambda: one(connection, "select zones from sereno.leases") == VERSION)
    found = {row.key: row.next_run_at for row in app.schedules.list()}
    assert one(connection, "select zones from sereno.leases") == VERSION
    assert (found["daily"], found["spread"], found["later"]) == (right["daily"], right["spread"], right["later"])
    assert found["steady"] == wrong
    assert one(connection, "select planned_at from sereno.fires") == past


async def test_older_zone_data_moves_nothing_back(app: Sereno, work: Work, connection: Connection) -> None:
    app.schedules.upsert("daily", work.job("a"), Daily("03:00", tz="Europe/Riga"))
    wrong = now(connection) + timedelta(hours=2, minutes=1)
    fake_next(connection, "daily", wrong)
    async with scheduling(app) as first:
        await auntil(lambda: first.leads)
    connection.execute("update sereno.leases set zones = '2999z'")
    async with scheduling(app) as second:
        await auntil(lambda: second.leads)
    assert app.schedules.get("daily").next_run_at == wrong
    assert one(connection, "select zones from sereno.leases") == "2999z"


async def test_a_schedule_whose_run_was_removed_by_hand_is_planned_anew(
    app: Sereno, work: Work, connection: Connection
) -> None:
    app.schedules.upsert("end", work.job("a"), Every("1h", count_from="end"))
    app.schedules.upsert("waits", work.job("a"), Every("1h"), overlap="queue_one", max_fires=2)
    app.schedules.upsert("runs", work.job("a"), Every("1h", count_from="end"))
    for _ in range(2):
        advance(connection, 3601)
        app.schedules.tick()
    assert one(connection, "select count(*) from sereno.schedules where next_run_at is null and state = 'enabled'") == 3
    connection.execute(
        "delete from sereno.jobs where schedule_id in (select id from sereno.schedules where key <> 'runs')"
    )
    async with scheduling(app) as scheduler:
        await auntil(lambda: scheduler.leads)
        await auntil(lambda: app.schedules.get("end").next_run_at is not None)
        await auntil(lambda: app.schedules.get("waits").state == "finished")
    assert app.schedules.get("runs").next_run_at is None
    assert app.schedules.get("waits").fired == 2


async def test_what_was_removed_while_somebody_leads_is_found_as_well(
    app: Sereno, work: Work, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HEAL_EVERY", 0.2)
    app.schedules.upsert("end", work.job("a"), Every("1h", count_from="end"))
    app.schedules.upsert("held", work.job("a"), Every("1h"), overlap="queue_one")
    async with scheduling(app) as scheduler:
        for _ in range(2):
            advance(connection, 3601)
            scheduler.wake()
            await auntil(
                lambda: one(connection, "select count(*) from sereno.schedules where next_run_at <= sereno.now()") == 0
            )
        assert app.schedules.get("held").held_at is not None
        connection.execute("delete from sereno.jobs")
        await auntil(lambda: app.schedules.get("end").next_run_at is not None)
        await auntil(lambda: app.schedules.get("held").held_at is None)


# A fire happens once


def test_a_moment_that_was_fired_before_is_not_counted_again(app: Sereno, work: Work, connection: Connection) -> None:
    """A clock that was set back, and a schedule that was planned anew: its instants come again."""
    app.schedules.upsert("quick", work.job("a"), Cron("0 * * * *"), overlap="allow")
    app.schedules.upsert("careful", work.job("a"), Cron("0 * * * *"), overlap="allow", max_fires=100)
    advance(connection, 3601)
    app.schedules.tick()
    before = {row.key: row for row in app.schedules.list()}
    advance(connection, -3601)
    connection.execute("update sereno.schedules set next_run_at = last_planned_at")
    advance(connection, 3601)
    assert app.schedules.tick().fires == 0
    for key, row in before.items():
        again = app.schedules.get(key)
        assert (again.fired, again.last_job_id, again.next_run_at) == (1, row.last_job_id, row.next_run_at)
    assert made(connection) == 2


def test_duplicates_are_counted_one_by_one(app: Sereno, work: Work, connection: Connection) -> None:
    keyed = work.using(unique_key="{date}", unique_for="forever")
    app.schedules.upsert("k", keyed.job("a"), Every("1h", count_from="clock"), missed="all", overlap="allow")
    advance(connection, 30 * 3600)
    done = app.schedules.tick()
    row = app.schedules.get("k")
    jobs = one(connection, "select count(*) from sereno.jobs")
    fires = one(connection, "select count(*) from sereno.fires where reason is null")
    duplicates = one(connection, "select count(*) from sereno.fires where reason = 'duplicate'")
    assert row.fired == fires == jobs == done.fires
    assert row.skipped["duplicate"] == duplicates
    assert fires + duplicates + row.skipped.get("missed", 0) in (29, 30)


def test_a_once_by_sql_that_came_while_nobody_looked_is_fired(app: Sereno, work: Work, connection: Connection) -> None:
    connection.execute("select sereno.schedule('k', 'work', '{}', at => sereno.now() + interval '1 second')")
    advance(connection, 600)
    for _ in range(2):
        app.schedules.tick()
    assert made(connection) == 1
    assert app.schedules.get("k").state == "finished"


def test_a_policy_that_only_sql_can_write_is_obeyed(app: Sereno, work: Work, connection: Connection) -> None:
    """`missed="all"` with an overlap that allows one run: one runs, the others are said to overlap."""
    connection.execute(
        "select sereno.schedule('k', 'work', '{}', cron => '0 * * * *', missed => 'all', overlap => 'skip')"
    )
    app.schedules.tick()
    for _ in range(2):
        advance(connection, 5 * 3600)
        app.schedules.tick()
    assert made(connection) == 1
    assert app.schedules.get("k").skipped == {"overlap": 9}


SLOW_CLOCK = """
create or replace function sereno.now() returns timestamptz language plpgsql stable as $$
begin
    perform pg_advisory_xact_lock_shared(42);
    return pg_catalog.now() + coalesce((select ahead from sereno.clock), interval '0');
end $$
"""


def test_what_changed_after_the_snapshot_and_before_the_lock_is_seen(
    app: Sereno, work: Work, connection: Connection
) -> None:
    """A statement sees the database as it was when it began, a lock the row as it is: the two must not be mixed."""
    app.schedules.upsert("k", work.job("a"), Every("1h"))
    for _ in range(2):
        advance(connection, 3601)
        app.schedules.tick()
    assert app.schedules.get("k").skipped == {"overlap": 1}
    advance(connection, 3601)
    connection.execute(SLOW_CLOCK)
    connection.execute("select pg_advisory_lock(42)")
    with ThreadPoolExecutor(1) as other:
        ticking = other.submit(app.schedules.tick)
        until(lambda: one(connection, "select count(*) from pg_stat_activity where wait_event = 'advisory'"))
        connection.execute("""update sereno.schedules set skipped = '{"overlap": 10}', max_fires = 1""")
        connection.execute("select pg_advisory_unlock(42)")
        assert ticking.result(30).taken == 1
    row = app.schedules.get("k")
    assert row.skipped == {"overlap": 11}
    assert row.state == "finished", "it has made all the fires that it may"


def test_a_row_that_moved_after_the_snapshot_is_fired_where_it_is(
    app: Sereno, work: Work, connection: Connection
) -> None:
    """Every change writes the row at another place: the one to be written is where the lock found it."""
    app.schedules.upsert("k", work.job("a"), Cron("0 * * * *"), overlap="allow")
    advance(connection, 3600)
    connection.execute(SLOW_CLOCK)
    connection.execute("select pg_advisory_lock(42)")

    def one_pass() -> Ticked:
        with line(app.url) as own, own.transaction():
            return do(own, Ticker().tick())

    with ThreadPoolExecutor(1) as other:
        ticking = other.submit(one_pass)
        until(lambda: one(connection, "select count(*) from pg_stat_activity where wait_event = 'advisory'"))
        before = one(connection, "select ctid::text from sereno.schedules")
        connection.execute("""update sereno.schedules set args = '{"name": "b"}'""")
        assert one(connection, "select ctid::text from sereno.schedules") != before
        connection.execute("select pg_advisory_unlock(42)")
        done = ticking.result(30)
    assert (done.fires, done.parked) == (1, [])
    assert one(connection, "select args ->> 'name' from sereno.jobs") == "b"
    assert app.schedules.get("k").fired == 1


# The cost of a look


def rows_read(connection: Connection, floor: int) -> int:
    """Pages that a take touches on the index of what is due."""
    explain = f"explain (analyze, buffers, format json) {queries('ticks')['take']}".encode()
    with connection.transaction(force_rollback=True):
        found = connection.execute(explain, {"floor": floor, "limit": 100, "look_at_held": False}).fetchone()
    assert found is not None
    (scan,) = (node for node in nodes(found[0][0]["Plan"]) if node.get("Index Name") == "schedules_due")
    assert "Index Cond" in scan
    return int(scan["Shared Hit Blocks"] + scan["Shared Read Blocks"])


def test_under_a_pinned_snapshot_a_floor_keeps_a_take_flat(app: Sereno, work: Work, connection: Connection) -> None:
    app.schedules.upsert_many(
        [app.schedules.new(f"k{n}", work.job("a"), Every("1h", spread="1h"), overlap="allow") for n in range(3000)]
    )
    with line(app.url) as pinning, line(app.url) as own, pinning.transaction():
        pinning.execute("set transaction isolation level repeatable read")
        pinning.execute("select count(*) from sereno.schedules")
        ticker = Ticker()
        for _ in range(12):
            advance(connection, 1200)
            with own.transaction():
                do(own, ticker.tick(limit=5000))
        current = one(connection, "select sereno.micros(sereno.now())") - module.MARGIN
        with_floor, without = rows_read(own, current), rows_read(own, 0)
    assert without > 10 * with_floor


def test_the_past_of_a_row_is_not_walked_when_the_floor_is_in_the_future(
    app: Sereno, work: Work, connection: Connection
) -> None:
    app.schedules.upsert("k", work.job("a"), Every("1h"))
    advance(connection, 3601)
    ahead = one(connection, "select sereno.micros(sereno.now() + interval '1 hour')")
    late = one(connection, "select sereno.micros(next_run_at) from sereno.schedules")
    with line(app.url) as own, own.transaction():
        assert do(own, Ticker().tick(floor=ahead)).taken == 0
        assert do(own, Ticker().tick(floor=late)).taken == 1
