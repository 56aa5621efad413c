"""A row that cannot be fired, and rows that are locked: the others still fire."""

from collections.abc import Callable
from typing import Any

import pytest

from sereno import Cron, Every, Sereno
from sereno.database.statement import Statement
from sereno.schedules import scheduler as module
from sereno.schedules.scheduler import Scheduler
from sereno.schedules.ticker import Ticker, TickResult
from tests.facts import advance, auntil, one, ten_past
from tests.schedules.schedule_steps import Connection, Work, locked, made, scheduling, wait_until_asleep

# Broken rows do not stop the others


def poison_priority(connection: Connection) -> None:
    """Fired on the common path, with the rest of the batch."""
    connection.execute("alter table sereno.schedules drop constraint schedules_priority_check")
    connection.execute("update sereno.schedules set priority = 99 where key = 'poison'")


def poison_check(connection: Connection) -> None:
    """Fired on the careful path, because of max_fires."""
    connection.execute("alter table sereno.jobs add constraint no_poison check (args ->> 'name' <> 'poison')")
    connection.execute("update sereno.schedules set max_fires = 100")


def poison_format(connection: Connection) -> None:
    """An unchecked format that would exhaust memory."""
    connection.execute(
        """update sereno.schedules set templated = true, args = '{"name": "{fire:%999999999d}"}' where key = 'poison'"""
    )


def poison_number(connection: Connection) -> None:
    """A number out of range, in a row that is decoded with the rest of the batch."""
    connection.execute(
        "update sereno.schedules set templated = true, args = jsonb_build_object('name', 1e400 + 0.5) "
        "where key = 'poison'"
    )


def poison_depth(connection: Connection) -> None:
    connection.execute("alter domain sereno.bounded_json drop constraint nested_at_most_100_deep")
    deep = '{"name": ' + 2000 * "[" + 2000 * "]" + "}"
    connection.execute("update sereno.schedules set templated = true, args = %s where key = 'poison'", [deep])


def poison_window(connection: Connection) -> None:
    connection.execute("update sereno.schedules set missed_window = 'infinity' where key = 'poison'")


def poison_held(connection: Connection) -> None:
    """The held fire is broken, not the due one."""
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


@pytest.mark.parametrize(
    "poison",
    [POISONS[0], *(pytest.param(poison, marks=pytest.mark.slow) for poison in POISONS[1:])],
    ids=[poison.__name__ for poison in POISONS],
)
async def test_a_row_that_cannot_be_fired_is_parked_and_the_others_fire(
    app: Sereno, work: Work, connection: Connection, poison: Callable[[Connection], None]
) -> None:
    others = [f"k{number}" for number in range(6)]
    app.schedules.upsert_many(
        [app.schedules.new(key, work.job(key), Every("1h")) for key in (*others[:3], "poison", *others[3:])]
    )
    poison(connection)
    advance(connection, 3601)
    async with scheduling(app) as scheduler:
        # Read with SQL: such a row cannot be decoded.
        await auntil(lambda: one(connection, "select note from sereno.schedules where state = 'parked'"))
        await auntil(lambda: made(connection) == len(others))
        await auntil(lambda: scheduler.figures.parked == 1)
        assert one(connection, "select count(*) from sereno.schedules where state = 'enabled'") == len(others)
        # The scheduler works as before.
        advance(connection, 3601)
        connection.execute("delete from sereno.jobs")
        scheduler.wake()
        await auntil(lambda: made(connection) == len(others))


@pytest.fixture
def small_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH", 20)
    monkeypatch.setattr(module, "LARGE_BACKLOG", 40)


@pytest.mark.slow
@pytest.mark.usefixtures("small_passes")
async def test_a_large_backlog_is_shared_with_a_second_connection(
    app: Sereno, work: Work, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    tick = Scheduler._tick

    async def leaves_some(self: Scheduler, *args: Any, **options: Any) -> TickResult | None:
        """Leave rows: the first connection could finish before the second one is open."""
        if self.figures.fires >= module.LARGE_BACKLOG:
            await auntil(lambda: self._second_ticker._next)
        return await tick(self, *args, **options)

    monkeypatch.setattr(Scheduler, "_tick", leaves_some)
    # Ten minutes past the hour, so that the next instant is far away.
    ten_past(connection)
    app.schedules.upsert_many([app.schedules.new(f"k{n}", work.job("a"), Cron("0 * * * *")) for n in range(1000)])
    advance(connection, 3601)
    async with scheduling(app) as scheduler:
        await auntil(lambda: made(connection) == 1000)
        assert scheduler._second_ticker._next, "the second connection fired nothing"
        # Counted after the commit is acknowledged.
        await auntil(lambda: scheduler.figures.fires >= 1000)
        assert scheduler.figures.fires == 1000
        await wait_until_asleep(connection)
        await auntil(lambda: scheduler._second_line._connection is None)
    assert one(connection, "select sum(fired) from sereno.schedules") == 1000


@pytest.mark.slow
@pytest.mark.usefixtures("small_passes")
@pytest.mark.parametrize("place", [199, *(pytest.param(place, marks=pytest.mark.slow) for place in (45, 65))])
async def test_the_first_connection_handles_what_the_second_cannot_fire(
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


async def test_infinite_dates_are_handled(app: Sereno, work: Work, connection: Connection) -> None:
    """SQL allows infinity as an end, a start, and a next instant."""
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
        await wait_until_asleep(connection)
    assert scheduler._failures == 0


@pytest.mark.slow
async def test_a_broken_schema_parks_no_schedule(app: Sereno, work: Work, connection: Connection) -> None:
    """A missing table or privilege is not the fault of a schedule."""
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


@pytest.mark.slow
async def test_a_pass_that_times_out_is_retried_with_fewer_rows(
    app: Sereno, work: Work, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same pass again would time out again, for ever."""
    app.schedules.upsert_many([app.schedules.new(f"k{n}", work.job("a"), Every("1h")) for n in range(40)])
    advance(connection, 3601)
    limits: list[int] = []
    tick = Ticker.tick

    def slow(self: Ticker, floor: int = 0, limit: int = 0, *, check_held: bool = True) -> Any:
        limits.append(limit)
        done = yield from tick(self, floor, limit, check_held=check_held)
        if done.taken > 35:
            yield Statement("select pg_sleep(600)")
        return done

    monkeypatch.setattr(Ticker, "tick", slow)
    monkeypatch.setattr(module, "TICK_TIMEOUT", 0.5)
    async with scheduling(app):
        await auntil(lambda: made(connection) == 40)
    assert limits[0] > 40
    assert min(limits) <= 35


@pytest.mark.usefixtures("long_sleep")
@pytest.mark.slow
async def test_a_locked_schedule_does_not_stop_others_and_fires_when_released(
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
            # The scheduler has found the lock and retries.
            rounds = scheduler.rounds
            await auntil(lambda: scheduler.rounds > rounds + 3)
            assert made(connection, "locked") == 0
        await auntil(lambda: made(connection, "locked"))
    assert (
        one(
            connection,
            "select stands_for from sereno.jobs j join sereno.schedules s on s.id = j.schedule_id where key = 'locked'",
        )
        == 3
    )
