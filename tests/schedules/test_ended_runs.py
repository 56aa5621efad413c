"""Ended runs: intervals counted from their end, fires held for it, and their outcomes."""

import asyncio
from datetime import timedelta
from itertools import pairwise

import pytest

from sereno import Every, Sereno
from sereno.jobs.transitions import cancel
from sereno.schedules import tick
from sereno.schedules.firing import Overlap
from tests.facts import advance, auntil, one
from tests.jobs.job_steps import do, line
from tests.schedules.schedule_steps import Connection, Work, made, now, scheduling

# Ended runs


async def wait_for_runs(app: Sereno, connection: Connection, key: str, number: int) -> None:
    await auntil(lambda: app.schedules.get(key).succeeded >= number)


@pytest.mark.slow
async def test_an_interval_that_counts_from_the_end_is_planned_from_the_end(
    app: Sereno, connection: Connection
) -> None:
    release = asyncio.Event()

    @app.task
    async def slow() -> None:
        await release.wait()

    app.schedules.upsert("k", slow.job(), Every("1h", count_from="end"))
    advance(connection, 3601)
    async with app.working():
        await auntil(lambda: one(connection, "select count(*) from sereno.jobs where state = 'running'"))
        row = app.schedules.get("k")
        assert (row.state, row.next_run_at) == ("enabled", None)
        advance(connection, 10_000)
        release.set()
        await wait_for_runs(app, connection, "k", 1)
    row = app.schedules.get("k")
    assert row.last_finished_at is not None
    assert row.next_run_at == row.last_finished_at + timedelta(hours=1)
    assert one(connection, "select finished_at from sereno.history") == row.last_finished_at
    # The time of the run does not count as missed.
    assert (row.fired, row.missed_count, row.skipped) == (1, 0, {})


async def test_a_late_fire_counted_from_the_end_stands_only_for_itself(
    app: Sereno, work: Work, connection: Connection
) -> None:
    app.schedules.upsert("k", work.job("a"), Every("1h", count_from="end"))
    advance(connection, 100 * 3600)
    app.schedules.tick()
    assert one(connection, "select stands_for from sereno.fires") == 1
    assert app.schedules.get("k").missed_count == 0


@pytest.mark.slow
@pytest.mark.parametrize("overlap", ["queue_one", pytest.param("cancel_previous", marks=pytest.mark.slow)])
async def test_a_held_fire_goes_when_the_previous_run_ends(
    app: Sereno, connection: Connection, overlap: Overlap
) -> None:
    release = asyncio.Event()
    began: list[str] = []

    @app.task
    async def slow() -> None:
        began.append("")
        if len(began) == 1:
            await release.wait()

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
            release.set()
        await auntil(lambda: len(began) == 2)
        await wait_for_runs(app, connection, "k", 1)
    row = app.schedules.get("k")
    assert (row.held_at, row.fired, row.skipped) == (None, 2, {})
    states = [row[0] for row in connection.execute("select state from sereno.history order by id")]
    assert states == [{"queue_one": "succeeded", "cancel_previous": "cancelled"}[overlap], "succeeded"]
    assert one(connection, "select max(planned_at) from sereno.history") == second


@pytest.mark.parametrize("overlap", ["queue_one", pytest.param("cancel_previous", marks=pytest.mark.slow)])
async def test_a_held_fire_goes_even_if_the_next_instant_is_due(
    app: Sereno, work: Work, connection: Connection, overlap: Overlap
) -> None:
    """No scheduler ran when the run ended: both fires are due at once, and neither may block the other."""
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


@pytest.mark.slow
async def test_a_paused_schedule_holds_its_fire_until_it_is_resumed(
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
            do(own, tick.end_runs())
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


def test_a_held_fire_waits_for_the_end_of_a_pause(app: Sereno, work: Work, connection: Connection) -> None:
    """The run before it ends while the schedule is paused."""
    app.schedules.upsert("k", work.job("a"), Every("1h"), overlap="queue_one")
    for _ in range(2):
        advance(connection, 3601)
        app.schedules.tick()
    app.schedules.pause("k")
    with line(app.url) as own:
        do(own, cancel([one(own, "select id from sereno.jobs")], "over"))
    assert app.schedules.tick().fires == 0
    assert one(connection, "select held_free from sereno.schedules")
    app.schedules.resume("k")
    assert sum(app.schedules.tick().fires for _ in range(2)) == 1
    assert app.schedules.get("k").held_at is None


def test_ended_runs_of_locked_schedules_do_not_delay_others(app: Sereno, work: Work, connection: Connection) -> None:
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


@pytest.mark.slow
async def test_a_schedule_that_fails_too_often_is_disabled_and_counts_continue(
    app: Sereno, connection: Connection
) -> None:
    outcomes = [True, False, False, True, False, False, False]

    @app.task(retry=0)
    async def sometimes_fails() -> None:
        if not outcomes.pop(0):
            raise OSError("no line")

    @app.task(retry=0)
    async def always_fails() -> None:
        raise OSError("no power")

    app.schedules.upsert("k", sometimes_fails.job(), Every("1h"), disable_after=3)
    app.schedules.upsert("strict", always_fails.job(), Every("1h"), disable_after=1)
    ended = "select succeeded + failed from sereno.schedules where key = 'k'"
    async with app.working():
        for number in range(1, 8):
            advance(connection, 3601)
            connection.execute("select pg_notify('sereno.schedule', '')")
            await auntil(lambda: one(connection, ended) == number)  # noqa: B023
    row = app.schedules.get("k")
    assert (row.state, row.next_run_at, row.fired) == ("disabled", None, 7)
    assert (row.succeeded, row.failed, row.failed_in_row) == (2, 5, 3)
    assert (row.last_state, row.last_error) == ("dead", "OSError: no line")
    assert row.note == "disabled after 3 failed runs in a row: OSError: no line"
    assert app.schedules.get("strict").note == "disabled after a failed run: OSError: no power"
