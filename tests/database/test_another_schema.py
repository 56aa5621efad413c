"""Operations also work in a schema of another name, next to the default one."""

import asyncio
from collections.abc import Iterator

import psycopg
import pytest

from sereno import Every, Sereno
from sereno.database.driver import drive
from sereno.database.roles import script
from sereno.jobs import operations as jobs
from sereno.jobs import pauses
from sereno.jobs.filters import JobFilter
from sereno.jobs.queries import jobs as job_queries
from sereno.jobs.queries.why import why
from sereno.monitoring.doctor import doctor
from sereno.monitoring.status import status
from sereno.monitoring.verify import verify
from sereno.settings import SCHEMA_LENGTH
from sereno.testing import test_support
from sereno.worker import operations as workers
from tests.archive.archive_steps import DAY, archiver, cold_place
from tests.facts import auntil, one, until
from tests.manual_worker import ManualWorker


@pytest.fixture
def elsewhere(database_url: str) -> Iterator[Sereno]:
    app = Sereno(database_url, schema="elsewhere")
    app.migrate()

    @app.task(name="greet")
    def greet(name: str) -> None:
        """Never run in this test."""

    yield app
    app.close()


def test_operations_in_another_schema_do_not_touch_the_default_one(
    elsewhere: Sereno, connection: psycopg.Connection
) -> None:
    run = elsewhere.database.run
    manual = ManualWorker(elsewhere, connection)
    job_id = manual.enqueue(delay="1h")
    assert run(pauses.pause("queue", "default"))
    assert "paused" in " ".join(run(why(job_id)))
    assert run(pauses.resume("queue", "default"))
    assert run(status()).schema_version >= 1
    assert [line.id for line in run(jobs.list_jobs()).items] == [job_id]
    assert run(workers.list_workers()) == []
    assert run(job_queries.finished_total()) >= 0
    assert [line.task for line in run(job_queries.by_task())] == ["greet"]
    assert run(job_queries.running_now(5)) == []
    assert run(job_queries.newest_failures(5)) == []
    assert [check.name for check in run(doctor(elsewhere.settings)) if check.level == "fail"] == []
    assert all(check.holds for check in run(verify(lease=30.0)))
    assert drive(jobs.cancel(JobFilter(ids=[job_id])), elsewhere.database.run).done == [job_id]
    assert drive(jobs.retry(JobFilter(ids=[job_id]), rate=1.0), elsewhere.database.run).done == [job_id]
    assert drive(jobs.delete(JobFilter(ids=[job_id])), elsewhere.database.run).done == [job_id]
    assert connection.execute("select count(*) from sereno.audit").fetchone() == (0,)
    assert connection.execute("select count(*) from elsewhere.audit").fetchone() == (5,)


@pytest.mark.slow
async def test_every_derived_name_of_the_longest_schema_fits(database_url: str, connection: psycopg.Connection) -> None:
    """Enqueue, notify, run, schedule, cancel and archive in it."""
    schema = "s" * SCHEMA_LENGTH
    app = Sereno(database_url, schema=schema)
    app.migrate()

    @app.task(name="work")
    async def work() -> None: ...

    @app.cycle(Every("200ms"), key="cycle")
    async def cycle() -> None: ...

    @app.task(name="endless")
    async def endless() -> None:
        await asyncio.Event().wait()

    def count(query: str) -> int:
        return int(one(connection, query.replace("sereno.", f"{schema}.")))

    channels = {f"{schema}.{name}" for name in ("ready", "schedule", "cancel", "clock")}
    received: set[str] = set()
    connection.add_notify_handler(lambda notice: received.add(notice.channel))
    for channel in channels:
        connection.execute(f'listen "{channel}"')
    async with app.working({"default": 3}):
        await auntil(lambda: app.schedules.get("cycle").succeeded >= 1)
        # A cycle of 200 ms may keep a slow worker from ever being idle.
        await app.schedules.apause("cycle")
        await auntil(lambda: count("select count(*) from sereno.sessions where idle"))
        await work.aenqueue()
        connection.execute(f"select {schema}.enqueue('work'), {schema}.schedule('k', 'work', every => '1 hour')")
        await auntil(lambda: count("select count(*) from sereno.history where task = 'work'") == 2)
        stuck = await endless.aenqueue()
        await auntil(lambda: count("select count(*) from sereno.jobs where state = 'running' and task = 'endless'"))
        drive(jobs.cancel(JobFilter(ids=[stuck.id])), app.database.run)
        await auntil(lambda: count(f"select count(*) from sereno.history where id = {stuck.id}"))
    app.database.run(test_support.travel(40 * DAY))
    until(lambda: connection.execute("select 1") and received == channels)
    with cold_place() as directory:
        working = archiver(app, directory)
        moved, exported = await working.move(), await working.export()
        assert (moved.problems, exported.problems) == ([], [])
        assert exported.dropped > 0
    assert count("select sereno.make_history_partition((sereno.now() + interval '20 days')::date)::integer") == 1
    assert all(check.holds for check in app.database.run(verify(lease=30.0)))
    assert script(schema, schema)
    app.close()
