"""The promoter notices due jobs and a changed clock, also after a slow look-back."""

import psycopg
import pytest

from sereno import Sereno
from sereno.database.connect import ServiceConnection
from sereno.worker.claiming import floor
from sereno.worker.maintenance import housekeeping
from sereno.worker.maintenance.duties import Maintenance
from sereno.worker.maintenance.promoter import RESCUE_EVERYWHERE, Promoter
from tests.facts import advance, auntil, one, state


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
        "housekeeping",
        "reread_lanes",
        "rescue",
        "unknown_tasks",
    ]
