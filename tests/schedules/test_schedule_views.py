"""`schedules_v1` and `fires_v1` show what the operations show, and lead to the jobs."""

from datetime import timedelta
from typing import Any

import psycopg
from psycopg.rows import dict_row

from sereno import Cron, Every, Once, Sereno
from sereno.jobs.filters import ScheduleFilter
from sereno.schedules import queries
from sereno.schedules.rows import ScheduleRow
from tests.facts import advance
from tests.schedules.schedule_steps import Connection, Work, now

# How the scheduler works, and what the row of a schedule has besides.
INTERNAL = {
    *("shift", "planned", "last_base_at", "held_at", "lateness", "unique_for", "unique_forever", "on_conflict"),
    *("expires_after", "missed_limit", "missed_window"),
}


def _schedule(app: Sereno, work: Work, connection: Connection) -> None:
    """Write schedules in every state, and fire them: one waits for its run, one is disabled by it."""
    upsert = app.schedules.upsert
    upsert("fires", work.using(tags=["a"], trace="t1").job("a"), Every("1h"), tenant="r42", overlap="skip")
    upsert("missed", work.job("{fire:%H}"), Every("1h"), missed="skip", max_fires=10)
    upsert("once", work.job("b"), Once(now(connection) + timedelta(minutes=1)))
    upsert("paused", work.job("c"), Cron("0 3 * * *", tz="America/Sao_Paulo"))
    upsert("disabled", work.job("d"), Every("1h"), disable_after=2)
    app.schedules.pause("paused", note="summer")
    app.schedules.disable("disabled")
    connection.execute("select sereno.schedule('parked', 'work', cron => 'never')")
    for _ in range(3):
        advance(connection, 3600)
        app.schedules.tick()


def test_a_schedule_is_the_same_in_the_view_and_in_the_operations(
    app: Sereno, work: Work, connection: Connection
) -> None:
    _schedule(app, work, connection)
    names = set(ScheduleRow.__struct_fields__) - INTERNAL
    seen = _rows(connection, "select * from sereno.schedules_v1 order by key")
    assert {row["state"] for row in seen} == {"enabled", "paused", "disabled", "parked", "finished"}
    shown = app.database.run(queries.page(ScheduleFilter(), 100))
    assert seen == [{name: getattr(row, name) for name in names} for row in shown]


def test_every_instant_leads_to_its_job_or_has_a_reason(app: Sereno, work: Work, connection: Connection) -> None:
    _schedule(app, work, connection)
    joined = """
        select fires.schedule, fires.tenant, fires.reason, jobs.id as job_id, jobs.schedule as of_job, fires.planned_at,
               jobs.planned_at as planned_of_job, fires.stands_for
        from sereno.fires_v1 as fires left join sereno.jobs_v1 as jobs on jobs.id = fires.job_id
        order by fires.schedule, fires.planned_at
    """
    seen = _rows(connection, joined)
    assert {row["schedule"] for row in seen} == {"fires", "missed", "once"}
    assert [(row["tenant"], row["reason"]) for row in seen if row["schedule"] == "fires"] == [
        ("r42", None),
        ("r42", "overlap"),
        ("r42", "overlap"),
    ]
    for row in seen:
        if row["reason"] is None:
            assert (row["of_job"], row["planned_of_job"]) == (row["schedule"], row["planned_at"])
        else:
            assert row["job_id"] is None
    for schedule in app.database.run(queries.page(ScheduleFilter(), 100)):
        shown = app.database.run(queries.fires(schedule.id, 100))
        found = [row for row in reversed(seen) if row["schedule"] == schedule.key]
        assert [(row["planned_at"], row["job_id"], row["reason"], row["stands_for"]) for row in found] == [
            (fire.planned_at, fire.job_id, fire.reason, fire.stands_for) for fire in shown
        ]


def _rows(connection: psycopg.Connection[Any], query: str) -> list[dict[str, Any]]:
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(query.encode()).fetchall()
