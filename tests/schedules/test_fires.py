"""Schedules on a real PostgreSQL: written, fired once, advanced; missed, overlapping, limited, failing."""

from datetime import UTC, datetime, timedelta
from typing import get_args

import psycopg
import pytest

from sereno import Cron, Daily, Every, InvalidSchedule, Once, Sereno
from sereno.database.statement import run
from sereno.jobs.filters import ScheduleFilter
from sereno.jobs.task_handle import Task
from sereno.jobs.transitions import cancel
from sereno.schedules import operations
from sereno.schedules.firing import Missed, Overlap
from tests.facts import advance, one, ten_past
from tests.schedules.schedule_steps import now


def jobs(connection: psycopg.Connection) -> list[tuple[str, int]]:
    rows = connection.execute("select args ->> 'name', stands_for from sereno.jobs order by id").fetchall()
    return [(row[0], row[1]) for row in rows]


def test_a_due_schedule_makes_one_job_and_advances(
    app: Sereno, work: Task[[str], None], connection: psycopg.Connection
) -> None:
    made = app.schedules.upsert("k", work.job("a"), Every("1h"))
    assert (made.what, made.state) == ("created", "enabled")
    assert app.schedules.tick().fires == 0

    advance(connection, 3601)
    assert app.schedules.tick().fires == 1
    assert app.schedules.tick().fires == 0

    assert jobs(connection) == [("a", 1)]
    row = app.schedules.get("k")
    assert (row.fired, row.skipped) == (1, {})
    assert made.next_run_at is not None
    assert row.last_planned_at == made.next_run_at
    assert row.next_run_at == made.next_run_at + timedelta(hours=1)
    assert one(connection, "select schedule_id from sereno.jobs") == made.id


@pytest.mark.parametrize(
    ("missed", "fires", "stands_for", "skipped"),
    [
        ("latest", 1, 5, {}),
        ("skip", 1, 1, {"missed": 4}),
        ("all", 5, 1, {}),
    ],
)
def test_missed_instants_are_handled_by_policy(
    app: Sereno,
    work: Task[[str], None],
    connection: psycopg.Connection,
    missed: Missed,
    fires: int,
    stands_for: int,
    skipped: dict[str, int],
) -> None:
    overlap: Overlap = "allow" if missed == "all" else "skip"
    app.schedules.upsert("k", work.job("a"), Every("1h"), missed=missed, overlap=overlap)
    advance(connection, 5 * 3600 + 10)

    done = app.schedules.tick()

    assert done.fires == fires
    assert jobs(connection) == [("a", stands_for)] * fires
    row = app.schedules.get("k")
    assert row.skipped == skipped
    assert row.next_run_at is not None
    assert 0 < (row.next_run_at - now(connection)).total_seconds() <= 3600


def test_missed_instants_beyond_the_limit_are_recorded_but_not_run(
    app: Sereno, work: Task[[str], None], connection: psycopg.Connection
) -> None:
    app.schedules.upsert("k", work.job("a"), Every("1h"), missed="all", missed_limit=3, overlap="allow")
    advance(connection, 10 * 3600 + 10)
    assert app.schedules.tick().fires == 3
    assert app.schedules.get("k").skipped == {"missed": 7}
    reasons = connection.execute("select reason, stands_for from sereno.fires where reason is not null").fetchall()
    assert reasons == [("missed", 7)]


def test_an_instant_later_than_max_lateness_is_skipped(
    app: Sereno, work: Task[[str], None], connection: psycopg.Connection
) -> None:
    app.schedules.upsert("k", work.job("a"), Every("1h"), max_lateness="5m")
    advance(connection, 3600 + 301)
    done = app.schedules.tick()
    assert (done.fires, done.skips) == (0, 1)
    assert app.schedules.get("k").skipped == {"late": 1}


def test_a_live_run_holds_skips_or_cancels_by_overlap_policy(
    app: Sereno, work: Task[[str], None], connection: psycopg.Connection
) -> None:
    for overlap in get_args(Overlap):
        app.schedules.upsert(overlap, work.job(overlap), Every("1h"), overlap=overlap)
    for _ in range(3):
        advance(connection, 3601)
        app.schedules.tick()

    made = [name for name, _ in jobs(connection)]
    assert made.count("skip") == 1
    assert made.count("allow") == 3
    assert made.count("queue_one") == 1
    assert app.schedules.get("skip").skipped == {"overlap": 2}
    assert app.schedules.get("queue_one").skipped == {"overlap": 1}
    held = app.schedules.get("queue_one")
    assert held.held_at is not None
    # The first job was still waiting, so it was cancelled at once; with no run left, the third fired, not the second.
    assert made.count("cancel_previous") == 1
    assert app.schedules.get("cancel_previous").skipped == {"superseded": 1}


def test_once_fires_once_and_is_finished(app: Sereno, work: Task[[str], None], connection: psycopg.Connection) -> None:
    at = now(connection) + timedelta(hours=1)
    app.schedules.upsert("k", work.job("a"), Once(at))
    for _ in range(3):
        advance(connection, 3601)
        app.schedules.tick()
    assert jobs(connection) == [("a", 1)]
    row = app.schedules.get("k")
    assert (row.state, row.next_run_at, row.last_planned_at) == ("finished", None, at)


def test_a_past_once_is_refused_unless_it_exists(
    app: Sereno, work: Task[[str], None], connection: psycopg.Connection
) -> None:
    at = now(connection) + timedelta(hours=1)
    app.schedules.upsert("k", work.job("a"), Once(at))
    advance(connection, 7200)
    app.schedules.tick()
    assert app.schedules.upsert("k", work.job("a"), Once(at)).what == "unchanged"
    with pytest.raises(InvalidSchedule, match="all past"):
        app.schedules.upsert("other", work.job("a"), Once(at))


@pytest.mark.slow
def test_placeholders_in_a_unique_key_allow_one_job_a_month(
    app: Sereno, work: Task[[str], None], connection: psycopg.Connection
) -> None:
    app.schedules.upsert(
        "reconcile:r42",
        work.using(unique_key="{key}:{fire:%Y-%m}", unique_for="forever").job("{fire:%Y-%m} {date} {tenant}"),
        Daily("03:00", tz="America/Sao_Paulo"),
        tenant="r42",
        overlap="allow",
    )
    months = set()
    for _ in range(70):
        planned = app.schedules.get("reconcile:r42").next_run_at
        assert planned is not None
        months.add(planned.strftime("%Y-%m"))
        advance(connection, (planned - now(connection)).total_seconds() + 1)
        app.schedules.tick()
    keys = connection.execute("select unique_key, args ->> 'name' from sereno.jobs order by id").fetchall()
    assert {key for key, _ in keys} == {f"reconcile:r42:{month}" for month in months}
    assert len(keys) == len(months)
    assert keys[0][1].endswith(" r42")
    assert app.schedules.get("reconcile:r42").skipped == {"duplicate": 70 - len(months)}


def test_a_changed_rule_never_fires_a_past_instant_again(
    app: Sereno, work: Task[[str], None], connection: psycopg.Connection
) -> None:
    app.schedules.upsert("k", work.job("a"), Cron("0 * * * *"), overlap="allow")
    advance(connection, 3601)
    app.schedules.tick()
    again = app.schedules.upsert("k", work.job("a"), Cron("0,30 * * * *"), overlap="allow")
    assert again.what == "changed"
    assert again.next_run_at is not None
    assert again.next_run_at > now(connection)
    assert app.schedules.tick().fires == 0
    assert app.schedules.upsert("k", work.job("a"), Cron("0,30  *  * * *"), overlap="allow").what == "unchanged"


def test_sql_can_create_schedules_and_invalid_ones_are_parked(
    app: Sereno, work: Task[[str], None], connection: psycopg.Connection
) -> None:
    connection.execute(
        "select sereno.schedule('good', 'work', '{\"name\": \"sql\"}', cron => '0 * * * *', tz => 'Europe/Riga')"
    )
    connection.execute("select sereno.schedule('bad', 'work', '{}', cron => '61 * * * *')")
    connection.execute("select sereno.schedule('worse', 'work', '{}', every => interval '1 hour')")
    connection.execute("""update sereno.schedules set rule = '{"kind": 7}' where key = 'worse'""")

    done = app.schedules.tick()

    assert done.fires == 0
    assert {key for key, _ in done.parked} == {"bad", "worse"}
    assert app.schedules.get("bad").state == "parked"
    assert "61" in (app.schedules.get("bad").note or "")
    good = app.schedules.get("good").next_run_at
    assert good is not None
    assert good > now(connection)
    advance(connection, 3601)
    assert app.schedules.tick().fires == 1
    assert jobs(connection) == [("sql", 1)]


def test_a_schedule_is_written_in_the_callers_transaction(
    app: Sereno, work: Task[[str], None], connection: psycopg.Connection
) -> None:
    with connection.transaction(force_rollback=True):
        app.schedules.upsert("k", work.job("a"), Every("1h"), connection=connection)
        assert one(connection, "select count(*) from sereno.schedules") == 1
    assert one(connection, "select count(*) from sereno.schedules") == 0


def test_a_pause_ends_at_its_time_or_by_a_resume(
    app: Sereno, work: Task[[str], None], connection: psycopg.Connection
) -> None:
    app.schedules.upsert("k", work.job("a"), Cron("0 * * * *"))
    until = now(connection) + timedelta(days=2)
    assert app.schedules.pause("k*", until=until, note="holiday") == 1
    advance(connection, 86400)
    assert app.schedules.tick().fires == 0
    advance(connection, 86401)
    app.schedules.tick()
    row = app.schedules.get("k")
    assert (row.paused_until, row.note) == (None, None)
    assert row.next_run_at is not None
    assert row.next_run_at >= until
    assert app.schedules.pause("k") == 1
    assert app.schedules.get("k").next_run_at is None
    assert app.schedules.resume("k") == 1
    app.schedules.tick()
    assert app.schedules.get("k").next_run_at is not None


def test_a_schedule_finishes_after_max_fires_or_at_its_end(
    app: Sereno, work: Task[[str], None], connection: psycopg.Connection
) -> None:
    app.schedules.upsert("three", work.job("three"), Every("1h"), max_fires=3, overlap="allow")
    app.schedules.upsert(
        "day", work.job("day"), Every("1h"), ends_at=now(connection) + timedelta(hours=2, minutes=1), overlap="allow"
    )
    for _ in range(5):
        advance(connection, 3601)
        app.schedules.tick()
    made = [name for name, _ in jobs(connection)]
    assert (made.count("three"), made.count("day")) == (3, 2)
    assert {app.schedules.get("three").state, app.schedules.get("day").state} == {"finished"}


def test_a_manual_run_makes_a_job_at_once(app: Sereno, work: Task[[str], None], connection: psycopg.Connection) -> None:
    app.schedules.upsert("k", work.job("at {fire:%Y}"), Cron("0 0 1 1 *"))
    job = app.schedules.run("k")
    assert one(connection, "select args ->> 'name' from sereno.jobs where id = %s", job.id) == (
        f"at {datetime.now(UTC):%Y}"
    )
    assert [fire.job_id for fire in app.schedules.history("k")] == [job.id]


def test_a_change_does_not_end_a_pause(app: Sereno, work: Task[[str], None], connection: psycopg.Connection) -> None:
    app.schedules.upsert("k", work.job("a"), Cron("0 * * * *"))
    until = now(connection) + timedelta(days=2)
    app.schedules.pause("k", until=until)
    assert app.schedules.upsert("k", work.job("a"), Cron("30 * * * *")).next_run_at == until
    advance(connection, 86400)
    assert app.schedules.tick().fires == 0
    advance(connection, 86401)
    app.schedules.tick()
    row = app.schedules.get("k")
    assert row.next_run_at is not None
    assert (row.next_run_at.minute, row.paused_until) == (30, None)


def test_a_change_right_after_a_resume_skips_no_instant(
    app: Sereno, work: Task[[str], None], connection: psycopg.Connection
) -> None:
    app.schedules.upsert("k", work.job("a"), Cron("0 * * * *"))
    app.schedules.pause("k")
    app.schedules.resume("k")
    app.schedules.upsert("k", work.job("a"), Cron("30 * * * *"))
    advance(connection, 3600)
    assert app.schedules.tick().fires == 1


def test_a_new_spread_does_not_fire_the_same_day_again(
    app: Sereno, work: Task[[str], None], connection: psycopg.Connection
) -> None:
    app.schedules.upsert("menu:42", work.job("a"), Daily("03:00"), overlap="allow")
    app.schedules.upsert("menu:43", work.job("a"), Daily("03:00"), overlap="allow")
    planned = app.schedules.get("menu:42").next_run_at
    assert planned is not None
    advance(connection, (planned - now(connection)).total_seconds() + 60)
    assert app.schedules.tick().fires == 2

    app.schedules.upsert("menu:42", work.job("a"), Daily("03:00", spread="20m"), overlap="allow")
    with app.database.connection() as ours:
        run(ours, operations.spread(ScheduleFilter.of("menu:43"), "20m"))

    assert app.schedules.tick().fires == 0
    for _ in range(3):
        advance(connection, 3600)
        assert app.schedules.tick().fires == 0
    for key in ("menu:42", "menu:43"):
        row = app.schedules.get(key)
        assert row.next_run_at is not None
        assert row.shift > 0
        assert row.next_run_at == planned + timedelta(days=1, microseconds=row.shift)


def test_a_spread_does_not_end_a_pause(app: Sereno, work: Task[[str], None], connection: psycopg.Connection) -> None:
    app.schedules.upsert("k", work.job("a"), Daily("03:00"))
    until = now(connection) + timedelta(days=2)
    app.schedules.pause("k", until=until)
    with app.database.connection() as ours:
        run(ours, operations.spread(ScheduleFilter.of("k"), "20m"))
    app.schedules.tick()
    assert app.schedules.get("k").paused_until == until


def test_a_skipped_instant_can_be_backfilled(
    app: Sereno, work: Task[[str], None], connection: psycopg.Connection
) -> None:
    # Ten minutes past the hour: three and a half hours later, even the latest missed instant is beyond max_lateness.
    ten_past(connection)
    app.schedules.upsert("k", work.job("a"), Cron("0 * * * *"), max_lateness="1m", overlap="allow")
    start = now(connection)
    advance(connection, 3 * 3600 + 1800)
    app.schedules.tick()
    with app.database.connection() as ours:
        wanted = run(ours, operations.backfill_plan("k", start, now(connection)))
        made = run(ours, operations.backfill("k", wanted.instants))
        again = run(ours, operations.backfill("k", wanted.instants))
    assert len(made) == len(wanted.instants) == 3
    assert again == []


def test_lateness_is_recorded(app: Sereno, work: Task[[str], None], connection: psycopg.Connection) -> None:
    app.schedules.upsert("k", work.job("a"), Every("1h"))
    assert app.schedules.get("k").late_p99 is None
    advance(connection, 3600 + 100)
    app.schedules.tick()
    late = app.schedules.get("k").late_p99
    assert late is not None
    assert 100 <= late < 200


def test_a_valid_rule_clears_the_note_of_an_invalid_one(
    app: Sereno, work: Task[[str], None], connection: psycopg.Connection
) -> None:
    connection.execute("select sereno.schedule('k', 'work', '{\"name\": \"a\"}', cron => '61 * * * *')")
    app.schedules.tick()
    app.schedules.upsert("k", work.job("a"), Cron("0 * * * *"))
    assert (app.schedules.get("k").state, app.schedules.get("k").note) == ("enabled", None)


def test_a_tick_without_a_scheduler_counts_ended_runs(
    app: Sereno, work: Task[[str], None], connection: psycopg.Connection
) -> None:
    app.schedules.upsert("k", work.job("a"), Every("1h", count_from="end"))
    for _ in range(3):
        advance(connection, 3601)
        assert app.schedules.tick().fires == 1
        assert app.schedules.get("k").next_run_at is None
        with app.database.connection() as ours:
            run(ours, cancel([one(connection, "select id from sereno.jobs")], "over"))
        app.schedules.tick()
    assert app.schedules.get("k").fired == 3
