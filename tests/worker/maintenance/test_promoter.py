"""The promoter notices due jobs and a changed clock, also after a slow look-back."""

import psycopg
import pytest

from sereno import Sereno
from sereno.database.connect import ServiceConnection
from sereno.worker.claiming import floor
from sereno.worker.maintenance import housekeeping, promoter
from sereno.worker.maintenance.duties import Maintenance
from sereno.worker.maintenance.promoter import RESCUE_EVERYWHERE, Promoter
from sereno.worker.sessions import due_work
from tests.facts import advance, auntil, one, state
from tests.jobs.job_steps import do


async def test_a_clock_change_is_noticed_between_rare_look_backs(
    app: Sereno, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs that became due long ago are found by a look-back, and the last one was expensive."""
    monkeypatch.setattr(floor, "SHORTEST", 3600.0)
    monkeypatch.setattr(floor, "LONGEST", 3600.0)

    @app.task
    async def work() -> None: ...

    job = await work.using(delay="10m").aenqueue()
    async with app.working():
        await auntil(lambda: one(connection, "select count(*) from sereno.sessions where state = 'alive'"))
        advance(connection, 3600)
        await auntil(lambda: state(connection, job.id) == "succeeded")


async def test_duties_are_also_taken_in_rounds_with_due_jobs(app: Sereno, connection: psycopg.Connection) -> None:
    """Rounds with and without due jobs alternate; duties must not depend on the kind of round."""

    @app.task
    async def work() -> None: ...

    job = await work.using(delay="10m").aenqueue()
    advance(connection, 3600)
    line = ServiceConnection(app.database.url, app.settings, "test")
    maintenance = Maintenance("test", line, [RESCUE_EVERYWHERE, *housekeeping.duties(app.settings)])
    try:
        await Promoter(line, lambda: None).run_once()
        await maintenance.run_once()
    finally:
        await maintenance.stop()
    assert state(connection, job.id) == "ready"
    assert one(connection, "select array_agg(name order by name) from sereno.duties") == [
        "chunks",
        "housekeeping",
        "reread_lanes",
        "rescue",
        "unknown_tasks",
        "unmet_requirements",
    ]


@pytest.mark.slow
async def test_a_notification_about_a_job_due_soon_replaces_the_poll(
    app: Sereno, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any payload of another sender is harmless."""
    monkeypatch.setattr(promoter, "POLL_INTERVAL", 3600.0)
    monkeypatch.setattr(promoter, "OVERDUE_EVERY", 3600.0)

    @app.task
    async def work() -> None: ...

    async with app.working():
        await auntil(lambda: one(connection, "select idle from sereno.sessions where state = 'alive'"))
        for payload in ("", "soon default", "- default", "1e9 default", "1.2.3 default", "² default", "9" * 400, "1"):
            connection.execute("select pg_notify('sereno.due', %s)", [payload])
        job = await work.using(delay="0.5s").aenqueue()
        await auntil(lambda: state(connection, job.id) == "succeeded")


def test_jobs_of_other_queues_count_as_due_later(connection: psycopg.Connection) -> None:
    def next_due(queues: list[str] | None) -> float | None:
        return do(connection, due_work(queues=queues, elsewhere=2.0)).next_due

    assert next_due(["own"]) is None
    connection.execute(
        "insert into sereno.jobs (task, queue, state, run_at, args) "
        "select 'work', 'other', 'scheduled', now() + interval '10 seconds' + number * interval '1 second', '{}' "
        "from generate_series(0, 9) as number"
    )
    assert next_due(None) == pytest.approx(10, abs=1)
    assert next_due(["other"]) == pytest.approx(10, abs=1)
    assert next_due(["own"]) == pytest.approx(12, abs=1)
    connection.execute(
        "insert into sereno.jobs (task, queue, state, run_at, args) "
        "values ('work', 'own', 'scheduled', now() + interval '11 seconds', '{}')"
    )
    assert next_due(["own"]) == pytest.approx(11, abs=0.9)


def test_an_own_job_behind_many_others_is_not_late(connection: psycopg.Connection) -> None:
    connection.execute(
        "insert into sereno.jobs (task, queue, state, run_at, args) "
        "select 'work', case when number <= 150 then 'other' else 'own' end, 'scheduled', "
        "       now() + interval '10 seconds' + number * interval '1 millisecond', '{}' "
        "from generate_series(1, 151) as number"
    )
    found = do(connection, due_work(queues=["own"], elsewhere=60.0)).next_due
    assert found is not None
    assert found < 10.15
