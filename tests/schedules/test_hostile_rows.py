"""One row, or one foreign transaction, never stops the other schedules."""

import json
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from sereno import Cron, Every, Sereno
from sereno.schedules import ticker
from sereno.schedules.scheduler import Scheduler
from tests.facts import advance, auntil, one
from tests.jobs.job_steps import line
from tests.schedules.schedule_steps import Connection, Work

Break: TypeAlias = Callable[[Connection], None]


def fired(connection: Connection, pattern: str) -> int:
    found: int = one(
        connection, "select coalesce(sum(fired), 0)::integer from sereno.schedules where key like %s", pattern
    )
    return found


def parked(connection: Connection) -> set[str]:
    return {row[0] for row in connection.execute("select key from sereno.schedules where state = 'parked'")}


@pytest.mark.parametrize("many", [1, pytest.param(30, marks=pytest.mark.slow)])
async def test_an_open_transaction_with_a_unique_key_delays_only_its_schedule(
    app: Sereno, work: Work, connection: Connection, many: int
) -> None:
    for number in range(many):
        keyed = work.using(unique_key=f"account {number}")
        app.schedules.upsert(f"keyed {number}", keyed.job("a"), Every("1h"), overlap="allow")
    app.schedules.upsert("also keyed", work.using(unique_key="another").job("a"), Every("1h"), overlap="allow")
    for number in range(5):
        app.schedules.upsert(f"good {number}", work.job("a"), Every("1h"))
    scheduler = Scheduler(app.url, app.settings)
    with line(app.url) as other:
        with other.transaction():
            for number in range(many):
                work.using(other, unique_key=f"account {number}").enqueue("first")
            advance(connection, 3601)
            scheduler.start()
            await auntil(lambda: fired(connection, "good%") == 5)
            await auntil(lambda: fired(connection, "also%") == 1)
            assert fired(connection, "keyed%") == 0
        scheduler.wake()
        # The other transaction has committed: it made the job, and the fire records a duplicate.
        duplicates = "select count(*) from sereno.fires where reason = 'duplicate'"
        await auntil(lambda: one(connection, duplicates) == many)
    await scheduler.stop()
    assert parked(connection) == set()
    assert one(connection, "select count(*) from sereno.jobs where unique_key like 'account%%'") == many


async def test_cancelling_the_previous_run_does_not_wait_for_a_locked_job(
    app: Sereno, work: Work, connection: Connection
) -> None:
    app.schedules.upsert("held", work.job("a"), Every("1h"), overlap="cancel_previous")
    app.schedules.upsert("good", work.job("a"), Every("1h"), overlap="allow")
    advance(connection, 3601)
    app.schedules.tick()
    with line(app.url) as other, other.transaction():
        other.execute("select from sereno.jobs for update")
        advance(connection, 3601)
        assert app.schedules.tick().fires == 1
        assert app.schedules.get("held").held_at is None
    app.schedules.tick()
    assert one(connection, "select count(*) from sereno.history where state = 'cancelled'") == 1
    app.schedules.tick()
    assert app.schedules.get("held").fired == 2


def queue_too_large(connection: Connection) -> None:
    connection.execute(
        "update sereno.schedules set queue = (select string_agg(md5(n::text), '') from generate_series(1, 300) as n) "
        "where key = 'bad'"
    )


def array_too_large(connection: Connection) -> None:
    connection.execute("update sereno.schedules set lateness = '[2147483640:2147483640]={0}' where key = 'bad'")


def expires_after_is_nan(connection: Connection) -> None:
    connection.execute("update sereno.schedules set expires_after = 'NaN', templated = true where key = 'bad'")


def missed_window_is_nan(connection: Connection) -> None:
    connection.execute("update sereno.schedules set missed_window = 'NaN' where key = 'bad'")


def next_run_at_is_infinite(connection: Connection) -> None:
    connection.execute("update sereno.schedules set next_run_at = '-infinity' where key = 'bad'")


BREAKS = (queue_too_large, array_too_large, expires_after_is_nan, missed_window_is_nan, next_run_at_is_infinite)


@pytest.mark.slow
@pytest.mark.parametrize("outside", [True, False], ids=["tick", "scheduler"])
async def test_a_row_with_extreme_values_is_parked(
    app: Sereno, work: Work, connection: Connection, outside: bool, subtests: pytest.Subtests
) -> None:
    for break_row in BREAKS:
        with subtests.test(break_row=break_row.__name__):
            connection.execute("truncate sereno.schedules, sereno.fires, sereno.jobs cascade")
            for key in ("a", "bad", "c"):
                app.schedules.upsert(key, work.job("a"), Every("1h"))
            break_row(connection)
            advance(connection, 3601)
            if outside:
                done = app.schedules.tick()
                assert (done.fires, [key for key, _ in done.parked]) == (2, ["bad"])
            else:
                scheduler = Scheduler(app.url, app.settings)
                scheduler.start()
                await auntil(lambda: fired(connection, "%") == 2)
                await auntil(lambda: parked(connection) == {"bad"})
                await scheduler.stop()
            assert parked(connection) == {"bad"}
            assert len(list(app.schedules.list())) == 3


def test_an_instant_of_long_ago_is_due(app: Sereno, work: Work, connection: Connection) -> None:
    app.schedules.upsert("k", work.job("a"), Cron("0 * * * *"))
    connection.execute("update sereno.schedules set next_run_at = '1960-01-01'")
    assert app.schedules.tick().fires == 1


def test_a_text_interval_from_sql_can_count_from_the_end(app: Sereno, work: Work, connection: Connection) -> None:
    rule = json.dumps({"kind": "every", "interval": "10m", "count_from": "end"})
    connection.execute(
        "insert into sereno.schedules (key, task, rule, next_run_at) values ('k', 'work', %s, sereno.now())", [rule]
    )
    assert app.schedules.tick().fires == 1
    connection.execute(
        "with gone as (delete from sereno.jobs returning id, schedule_id) "
        "insert into sereno.schedule_ends (schedule_id, job_id, state, finished_at) "
        "select schedule_id, id, 'succeeded', sereno.now() from gone"
    )
    app.schedules.tick()
    app.schedules.tick()
    row = app.schedules.get("k")
    assert row.state == "enabled"
    assert row.next_run_at is not None
    assert row.last_finished_at is not None
    assert (row.next_run_at - row.last_finished_at).total_seconds() == pytest.approx(600)


def test_a_large_backlog_takes_several_passes(
    app: Sereno, work: Work, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ticker, "MOST_FIRES", 50)
    for number in range(10):
        app.schedules.upsert(f"k{number}", work.job("a"), Cron("* * * * *"), missed="all", overlap="allow")
    advance(connection, 40 * 60)
    largest = "select max(n) from (select count(*) as n from sereno.fires group by xmin) as pass"
    began = one(connection, "select sereno.now()")
    done = app.schedules.tick()
    assert done.fires >= 400
    assert one(connection, largest) < 2 * 50
    # What has become due since then belongs to the next tick.
    assert one(connection, "select count(*) from sereno.schedules where next_run_at <= %s", began) == 0


async def test_an_infinite_start_does_not_prevent_leading(app: Sereno, work: Work, connection: Connection) -> None:
    app.schedules.upsert("k", work.job("a"), Cron("0 3 1 1 *", tz="Europe/Riga"))
    app.schedules.upsert("good", work.job("a"), Every("1h"))
    connection.execute("update sereno.schedules set starts_at = 'infinity' where key = 'k'")
    connection.execute(
        "insert into sereno.leases (name, holder, since, until, zones) values ('scheduler', 'x', now(), now(), '2001a')"
    )
    scheduler = Scheduler(app.url, app.settings)
    scheduler.start()
    advance(connection, 3601)
    scheduler.wake()
    await auntil(lambda: fired(connection, "good") == 1)
    await auntil(lambda: one(connection, "select zones from sereno.leases") != "2001a")
    await scheduler.stop()


def test_invalid_rules_are_not_cached() -> None:
    known = ticker.Ticker()
    assert known._remember(("x" * 10_000, 0)) is None
    assert known._next == {}


def test_a_run_created_while_rows_are_locked_counts_as_busy(app: Sereno, work: Work, connection: Connection) -> None:
    """The row is locked after the statement's snapshot was taken: whether it has a run is read after the lock."""
    app.schedules.upsert("k", work.job("a"), Every("1h"))
    advance(connection, 3601)
    with line(app.url) as own, own.transaction():
        taking = ticker.Ticker().tick()
        statement = next(taking)
        taken = own.execute(statement.text("sereno").encode(), statement.params).fetchall()
        with line(app.url) as other:
            other.execute(
                "insert into sereno.jobs (task, state, ready_seq, schedule_id) "
                "select 'work', 'ready', nextval('sereno.ready_seq'), id from sereno.schedules"
            )
        done = None
        rows: Any = taken
        while done is None:
            try:
                statement = taking.send(rows)
            except StopIteration as end:
                done = end.value
            else:
                cursor = own.execute(statement.text("sereno").encode(), statement.params)
                rows = cursor.fetchall() if cursor.description else []
    assert done.skips == 1
    assert one(connection, "select reason from sereno.fires") == "overlap"
