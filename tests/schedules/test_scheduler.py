"""Wake-ups of the scheduler, fires that happen once, and the cost of a poll."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from sereno import Cron, Every, Sereno
from sereno.database.statement import queries
from sereno.schedules import scheduler as module
from sereno.schedules.ticker import Ticker, TickResult
from tests.database.plans import nodes
from tests.facts import advance, auntil, one, until
from tests.jobs.job_steps import do, line
from tests.schedules.schedule_steps import Connection, Work, locked, made, scheduling, wait_until_asleep

# Wake-ups


@pytest.mark.usefixtures("long_sleep")
async def test_notify_wakes_the_scheduler_for_a_schedule_that_is_due_earlier(
    app: Sereno, work: Work, connection: Connection
) -> None:
    async with scheduling(app) as scheduler:
        await auntil(lambda: scheduler.leads)
        await wait_until_asleep(connection)
        await app.schedules.aupsert("k", work.job("a"), Every("200ms"))
        await auntil(lambda: made(connection))


@pytest.mark.usefixtures("long_sleep")
async def test_a_schedule_from_sql_wakes_the_scheduler(app: Sereno, work: Work, connection: Connection) -> None:
    async with scheduling(app) as scheduler:
        await auntil(lambda: scheduler.leads)
        await wait_until_asleep(connection)
        connection.execute("select sereno.schedule('k', 'work', '{}', every => interval '0.2 seconds')")
        await auntil(lambda: made(connection))


@pytest.mark.slow
async def test_a_scheduler_without_notify_polls(
    app: Sereno, work: Work, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REST", 0.5)
    async with scheduling(app, notify=False) as scheduler:
        await auntil(lambda: scheduler.leads)
        await app.schedules.aupsert("k", work.job("a"), Every("100ms"))
        await auntil(lambda: made(connection))


@pytest.mark.usefixtures("long_sleep")
@pytest.mark.slow
async def test_a_schedule_of_a_slow_transaction_is_found_below_the_floor(
    app: Sereno, work: Work, connection: Connection
) -> None:
    """Its first instant was long past when it became visible, and the floor had moved beyond it."""
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
        await auntil(lambda: made(connection, "late"))


@pytest.mark.slow
@pytest.mark.usefixtures("long_sleep")
async def test_a_clock_set_back_delays_nothing_that_is_due(app: Sereno, work: Work, connection: Connection) -> None:
    """The floor is from before the change of the clock; rows that are due below it must still be found."""
    app.schedules.upsert("k", work.job("a"), Every("1h"))
    async with scheduling(app) as scheduler:
        await auntil(lambda: scheduler.leads)
        advance(connection, 3601)
        scheduler.wake()
        await auntil(lambda: made(connection, "k"))
        await auntil(lambda: scheduler._floor > 0)
        advance(connection, -7200)
        await app.schedules.aupsert("new", work.job("b"), Every("500ms"))
        await auntil(lambda: made(connection, "new"))
        assert made(connection, "k") == 1


# Each fire happens once


def test_an_instant_that_fired_before_is_not_counted_again(app: Sereno, work: Work, connection: Connection) -> None:
    """The clock was set back and the schedule planned again: its instants come again."""
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


def test_a_once_from_sql_that_passed_without_a_scheduler_fires(app: Sereno, work: Work, connection: Connection) -> None:
    connection.execute("select sereno.schedule('k', 'work', '{}', at => sereno.now() + interval '1 second')")
    advance(connection, 600)
    for _ in range(2):
        app.schedules.tick()
    assert made(connection) == 1
    assert app.schedules.get("k").state == "finished"


def test_policies_that_only_sql_can_combine_are_obeyed(app: Sereno, work: Work, connection: Connection) -> None:
    """`missed="all"` with an overlap policy of one run: one runs, the others are skipped as overlap."""
    connection.execute(
        "select sereno.schedule('k', 'work', '{}', cron => '0 * * * *', missed => 'all', overlap => 'skip')"
    )
    app.schedules.tick()
    for _ in range(2):
        advance(connection, 5 * 3600)
        app.schedules.tick()
    assert made(connection) == 1
    assert app.schedules.get("k").skipped == {"overlap": 9}


def test_a_tick_does_not_wait_for_a_locked_schedule(app: Sereno, work: Work, connection: Connection) -> None:
    for key in ("held", "free"):
        app.schedules.upsert(key, work.job(key), Every("1h"))
    advance(connection, 3601)
    with line(app.url) as own:
        own.execute("set lock_timeout = '2s'")
        with locked(app.url, "held"), own.transaction():
            assert do(own, Ticker().tick()).fires == 1
    assert (made(connection, "held"), made(connection, "free")) == (0, 1)
    assert app.schedules.tick().fires == 1


SLOW_CLOCK = """
create or replace function sereno.now() returns timestamptz language plpgsql stable as $$
begin
    perform pg_advisory_xact_lock_shared(42);
    return pg_catalog.now() + coalesce((select ahead from sereno.clock), interval '0');
end $$
"""
WAITS = "select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'advisory'"


def test_a_change_between_snapshot_and_lock_is_seen(app: Sereno, work: Work, connection: Connection) -> None:
    """A statement reads its snapshot, a lock reads the current row: the two must not be mixed."""
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
        until(lambda: one(connection, WAITS))
        connection.execute("""update sereno.schedules set skipped = '{"overlap": 10}', max_fires = 1""")
        connection.execute("select pg_advisory_unlock(42)")
        assert ticking.result(30).taken == 1
    row = app.schedules.get("k")
    assert row.skipped == {"overlap": 11}
    assert row.state == "finished", "it has reached max_fires"


def test_a_row_updated_after_the_snapshot_is_fired_by_its_new_ctid(
    app: Sereno, work: Work, connection: Connection
) -> None:
    """Every update gives the row a new ctid: the one found by the lock must be written."""
    app.schedules.upsert("k", work.job("a"), Cron("0 * * * *"), overlap="allow")
    advance(connection, 3600)
    connection.execute(SLOW_CLOCK)
    connection.execute("select pg_advisory_lock(42)")

    def one_pass() -> TickResult:
        with line(app.url) as own, own.transaction():
            return do(own, Ticker().tick())

    with ThreadPoolExecutor(1) as other:
        ticking = other.submit(one_pass)
        until(lambda: one(connection, WAITS))
        before = one(connection, "select ctid::text from sereno.schedules")
        connection.execute("""update sereno.schedules set args = '{"name": "b"}'""")
        assert one(connection, "select ctid::text from sereno.schedules") != before
        connection.execute("select pg_advisory_unlock(42)")
        done = ticking.result(30)
    assert (done.fires, done.parked) == (1, [])
    assert one(connection, "select args ->> 'name' from sereno.jobs") == "b"
    assert app.schedules.get("k").fired == 1


# The cost of a poll


def rows_read(connection: Connection, floor: int) -> int:
    """Return the pages that a take reads from the index of due rows."""
    explain = f"explain (analyze, buffers, format json) {queries('schedules/tick')['take']}".encode()
    with connection.transaction(force_rollback=True):
        found = connection.execute(explain, {"floor": floor, "limit": 100, "check_held": False}).fetchone()
    assert found is not None
    (scan,) = (node for node in nodes(found[0][0]["Plan"]) if node.get("Index Name") == "schedules_due")
    assert "Index Cond" in scan
    return int(scan["Shared Hit Blocks"] + scan["Shared Read Blocks"])


@pytest.mark.slow
def test_a_floor_keeps_the_cost_of_a_take_flat_under_a_pinned_snapshot(
    app: Sereno, work: Work, connection: Connection
) -> None:
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


def test_rows_below_the_floor_are_not_taken(app: Sereno, work: Work, connection: Connection) -> None:
    app.schedules.upsert("k", work.job("a"), Every("1h"))
    advance(connection, 3601)
    ahead = one(connection, "select sereno.micros(sereno.now() + interval '1 hour')")
    late = one(connection, "select sereno.micros(next_run_at) from sereno.schedules")
    with line(app.url) as own, own.transaction():
        assert do(own, Ticker().tick(floor=ahead)).taken == 0
        assert do(own, Ticker().tick(floor=late)).taken == 1
