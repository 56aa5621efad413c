"""A schedule that is written again, paused, spread or run manually keeps its plan, and no instant fires twice."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from sereno import Cron, Daily, Every, Sereno
from sereno.errors import InvalidArguments, Refused
from sereno.jobs.filters import ScheduleFilter
from sereno.schedules import operations, queries, store
from sereno.schedules.heatmap import heatmap
from tests.facts import advance, ten_past, until
from tests.jobs.job_steps import do, line, waits_for_a_lock
from tests.schedules.schedule_steps import Connection, Work, now

DAY = 86_400


def schedule_with_sql(connection: Connection, **changes: Any) -> None:
    given = {"args": "{}", "every": "1 hour"} | changes
    connection.execute("select sereno.schedule('k', 'work', %(args)s::jsonb, every => %(every)s::interval)", given)


# Written with SQL


def test_writing_it_again_with_sql_keeps_its_plan(app: Sereno, work: Work, connection: Connection) -> None:
    schedule_with_sql(connection)
    app.schedules.tick()
    planned = app.schedules.get("k").next_run_at
    for _ in range(3):
        advance(connection, 1500)
        schedule_with_sql(connection)
        app.schedules.tick()
    row = app.schedules.get("k")
    assert row.fired == 1
    assert planned is not None
    assert row.next_run_at == planned + timedelta(hours=1)
    schedule_with_sql(connection, args='{"name": "other"}')
    assert app.schedules.get("k").next_run_at == row.next_run_at
    assert app.schedules.get("k").args == {"name": "other"}


def test_writing_it_again_with_sql_keeps_it_paused(app: Sereno, work: Work, connection: Connection) -> None:
    schedule_with_sql(connection)
    app.schedules.tick()
    app.schedules.pause("k", until=now(connection) + timedelta(days=7), note="holiday")
    schedule_with_sql(connection, every="2 hours")
    row = app.schedules.get("k")
    assert row.paused_until is not None
    assert row.note == "holiday"
    advance(connection, 3 * 3600)
    assert app.schedules.tick().fires == 0


def test_a_valid_rule_from_sql_clears_the_note_of_an_invalid_one(
    app: Sereno, work: Work, connection: Connection
) -> None:
    connection.execute("select sereno.schedule('k', 'work', cron => 'nonsense')")
    app.schedules.tick()
    assert app.schedules.get("k").state == "parked"
    schedule_with_sql(connection)
    row = app.schedules.get("k")
    assert (row.state, row.note) == ("enabled", None)


# Written with Python


def test_changed_arguments_during_a_run_keep_the_plan_from_its_end(
    app: Sereno, work: Work, connection: Connection
) -> None:
    app.schedules.upsert("k", work.job("a"), Every("1h", count_from="end"))
    advance(connection, 3601)
    app.schedules.tick()
    app.schedules.upsert("k", work.job("b"), Every("1h", count_from="end"))
    assert app.schedules.get("k").next_run_at is None
    assert app.schedules.get("k").state == "enabled"


def test_a_declared_schedule_stays_declared_when_upserted(app: Sereno, work: Work, connection: Connection) -> None:
    do(connection, store.upsert([app.schedules.new("k", work.job("a"), Every("1h"))], "shop", declared_by="shop"))
    assert app.schedules.upsert("k", work.job("a"), Every("1h")).what == "unchanged"
    app.schedules.upsert("k", work.job("b"), Every("1h"))
    assert app.schedules.get("k").declared_by == "shop"


# Another spread


def spread_over(app: Sereno, work: Work, window: str) -> None:
    # Runs may overlap: otherwise the first one, which is still under way, would prevent a second one.
    app.schedules.upsert("k", work.job("{date}"), Daily("03:00", spread=window), overlap="allow")


@pytest.mark.parametrize(
    "how", ["upsert", *(pytest.param(how, marks=pytest.mark.slow) for how in ("paused", "spread", "paused until"))]
)
def test_a_changed_spread_does_not_fire_the_same_day_twice(
    app: Sereno, work: Work, connection: Connection, how: str
) -> None:
    spread_over(app, work, "20m")
    first = app.schedules.get("k").next_run_at
    assert first is not None
    advance(connection, (first - now(connection)).total_seconds() + 1)
    assert app.schedules.tick().fires == 1
    match how:
        case "upsert":
            spread_over(app, work, "40m")
            spread_over(app, work, "90m")
            spread_over(app, work, "6h")
        case "paused":
            app.schedules.pause("k")
            spread_over(app, work, "6h")
            app.schedules.resume("k")
        case "spread":
            for window in ("40m", "90m", "6h"):
                with connection.transaction():
                    do(connection, operations.spread(ScheduleFilter(keys=["k"]), window))
        case "paused until":
            app.schedules.pause("k", until=now(connection) + timedelta(minutes=1))
            spread_over(app, work, "6h")
    # Until shortly before the next day's instant.
    for _ in range(20):
        advance(connection, 3600)
        app.schedules.tick()
    days = [row[0] for row in connection.execute("select args ->> 'name' from sereno.jobs")]
    assert len(days) == len(set(days))
    for _ in range(12):
        advance(connection, 3600)
        app.schedules.tick()
    assert app.schedules.get("k").last_planned_at != first


def test_spreading_everything_skips_unreadable_rules(app: Sereno, work: Work, connection: Connection) -> None:
    for key in ("a", "b", "c"):
        app.schedules.upsert(key, work.job("a"), Daily("03:00"))
    connection.execute("""update sereno.schedules set rule = '{"kind": 7}' where key = 'b'""")
    with connection.transaction():
        assert do(connection, operations.spread(ScheduleFilter.of("*"), "1h")) == 2


# Pauses


def test_a_pause_until_a_past_or_invalid_moment_is_refused(app: Sereno, work: Work) -> None:
    app.schedules.upsert("k", work.job("a"), Every("1h"))
    with pytest.raises(Refused, match="which is past"):
        app.schedules.pause("k", until=datetime(2020, 1, 1, tzinfo=UTC))
    with pytest.raises(InvalidArguments, match="needs a time zone"):
        app.schedules.pause("k", until=datetime(2090, 1, 1))  # noqa: DTZ001 - a naive time, to be refused
    with pytest.raises(InvalidArguments, match="is a datetime"):
        app.schedules.pause("k", until="2h")  # type: ignore[arg-type]  # a plausible mistake
    assert app.schedules.get("k").paused_until is None


def test_a_timed_pause_counts_as_paused(app: Sereno, work: Work, connection: Connection) -> None:
    app.schedules.upsert("k", work.job("a"), Every("1h"))
    app.schedules.pause("k", until=now(connection) + timedelta(hours=2))
    assert [row.key for row in app.schedules.list(states=["paused"])] == ["k"]
    assert list(app.schedules.list(states=["enabled"])) == []
    with connection.transaction():
        assert do(connection, queries.count(ScheduleFilter())) == {"paused": 1}


@pytest.mark.slow
@pytest.mark.parametrize("stop", ["pause", "pause until", "disable"])
def test_no_instant_of_a_stop_is_caught_up(app: Sereno, work: Work, connection: Connection, stop: str) -> None:
    ten_past(connection)
    app.schedules.upsert("k", work.job("a"), Cron("0 * * * *"), overlap="allow")
    ends = now(connection) + timedelta(hours=5)
    match stop:
        case "pause":
            app.schedules.pause("k")
        case "pause until":
            app.schedules.pause("k", until=ends)
        case _:
            app.schedules.disable("k")
    advance(connection, 5 * 3600 + 1)
    if stop != "pause until":
        app.schedules.resume("k")
    assert [app.schedules.tick().fires for _ in range(2)] == [0, 0]
    following = app.schedules.get("k").next_run_at
    assert following is not None
    assert following == ends.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)


# Manual runs


def test_two_manual_runs_in_one_transaction_make_two_jobs(app: Sereno, work: Work, connection: Connection) -> None:
    app.schedules.upsert("k", work.job("a"), Every("1h"))
    with line(app.url) as own, own.transaction():
        first = do(own, operations.run_now("k"))
        second = do(own, operations.run_now("k"))
    assert first.id != second.id
    assert app.schedules.get("k").fired == 2


def test_duplicates_of_manual_runs_are_counted(app: Sereno, work: Work, connection: Connection) -> None:
    keyed = work.using(unique_key="one", unique_for="forever")
    app.schedules.upsert("k", keyed.job("a"), Cron("0 * * * *"))
    hour = now(connection).replace(minute=0, second=0, microsecond=0)
    with connection.transaction():
        do(connection, operations.backfill("k", [hour - timedelta(hours=n) for n in range(5)]))
    row = app.schedules.get("k")
    assert (row.fired, row.skipped) == (1, {"duplicate": 4})


def test_the_heatmap_counts_only_schedules_that_can_fire(app: Sereno, work: Work, connection: Connection) -> None:
    for key in ("asleep", "later", "awake"):
        starts_at = now(connection) + timedelta(days=10) if key == "later" else None
        app.schedules.upsert(key, work.job("a"), Cron("0 * * * *"), starts_at=starts_at)
    app.schedules.pause("asleep", until=now(connection) + timedelta(days=10))
    with connection.transaction():
        assert sum(cell.fires for cell in do(connection, heatmap(ScheduleFilter(), DAY)).cells) == 24


def test_concurrent_identical_upserts_make_one_schedule(
    app: Sereno, work: Work, connection: Connection, database_url: str
) -> None:
    with psycopg.connect(database_url) as other, ThreadPoolExecutor(1) as pool:
        first = app.schedules.upsert("k", work.job("a"), Every("1h"), connection=other)
        second = pool.submit(app.schedules.upsert, "k", work.job("a"), Every("1h"))
        until(lambda: waits_for_a_lock(connection))
        other.commit()
        late = second.result(30)
        assert (late.id, late.what, first.what) == (first.id, "unchanged", "created")
