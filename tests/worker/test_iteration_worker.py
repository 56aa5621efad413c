"""Iterations in a real worker: shutdowns, timeouts and killed processes are not charged to a job that advances."""

import asyncio
import time
from collections.abc import Iterator

import psycopg
import pytest

from sereno import Context, Sereno
from sereno.testing.kit import Kit
from sereno.worker.worker import Worker
from tests.facts import auntil, one
from tests.monitoring.verify_steps import broken
from tests.worker import iteration_app

COUNTS = "select (state, attempt, failures, crashes, releases)::text from sereno.history"
EFFECTS = "select array_agg(id order by id, attempt) from effects"


@pytest.fixture
def shared(database_url: str, connection: psycopg.Connection) -> Iterator[Sereno]:
    """Return the application of a module, because other processes import it."""
    made = iteration_app.app
    made.override(database_url=database_url)
    made.database.forget_url()
    connection.execute("create table effects (id integer, attempt integer)")
    connection.execute("create table rows (id integer primary key, kills text)")
    yield made
    made.close()


async def test_a_worker_that_stops_releases_an_iteration_at_its_next_commit(
    shared: Sereno, connection: psycopg.Connection
) -> None:
    """Long before the grace period ends: a deployment does not wait for hours of work."""
    await iteration_app.waits.aenqueue()
    async with shared.working():
        await auntil(lambda: one(connection, "select count(*) from effects") == 6)
    assert one(connection, "select (state, attempt, failures, crashes, releases)::text from sereno.jobs") == (
        "(ready,1,0,0,1)"
    )
    async with shared.working():
        await auntil(lambda: one(connection, "select count(*) from sereno.history") == 1)
    await shared.aclose()
    assert one(connection, EFFECTS) == list(range(10))
    assert one(connection, COUNTS) == "(succeeded,2,0,0,1)"
    assert one(connection, "select count(*) from sereno.steps") == 0


@pytest.mark.slow
@pytest.mark.parametrize("is_async", [True, pytest.param(False, marks=pytest.mark.slow)])
async def test_a_timeout_is_free_if_the_attempt_advanced(
    app: Sereno, connection: psycopg.Connection, is_async: bool
) -> None:
    seen: list[tuple[int, int]] = []
    app.override(poll=0.05)

    @app.task(name="async", retry=0)
    async def asynchronous(ctx: Context) -> None:
        async for number in ctx.iterate("numbers", [1, 2, 3], commit_every=1):
            seen.append((number, ctx.attempt))
            if number == 2 and ctx.attempt == 1:
                await asyncio.Event().wait()

    @app.task(name="sync", retry=0)
    def synchronous(ctx: Context) -> None:
        for number in ctx.run_iterate("numbers", [1, 2, 3], commit_every=1):
            seen.append((number, ctx.attempt))
            while number == 2 and ctx.attempt == 1:
                time.sleep(0.001)

    job = await (asynchronous if is_async else synchronous).aenqueue()
    async with app.working() as worker:
        await auntil(lambda: len(seen) == 2)
        _expire(worker, job.id)
        await auntil(lambda: one(connection, "select count(*) from sereno.history") == 1)
    await app.aclose()
    assert seen == [(1, 1), (2, 1), (2, 2), (3, 2)]
    assert one(connection, COUNTS) == "(succeeded,2,0,0,1)"
    reason = one(connection, "select reason from sereno.attempts")
    assert reason == "ran longer than 600 s; its iteration had advanced, and continues"


@pytest.mark.slow
async def test_a_timeout_of_an_attempt_that_did_not_advance_is_charged(
    app: Sereno, connection: psycopg.Connection
) -> None:
    begun = asyncio.Event()

    @app.task(retry=0)
    async def stuck(ctx: Context) -> None:
        async for _ in ctx.iterate("numbers", [1, 2, 3], commit_every=1):
            begun.set()
            await asyncio.Event().wait()

    job = await stuck.aenqueue()
    async with app.working() as worker:
        await begun.wait()
        _expire(worker, job.id)
        await auntil(lambda: one(connection, "select count(*) from sereno.history") == 1)
    await app.aclose()
    assert one(connection, COUNTS) == "(dead,1,1,0,0)"


def _expire(worker: Worker, job_id: int) -> None:
    """Let the deadline of a running job be past."""
    worker.executor.running[job_id].deadline = 0.0


@pytest.mark.slow
async def test_an_isolated_process_that_is_killed_is_free_if_it_advanced(
    shared: Sereno, connection: psycopg.Connection
) -> None:
    """The second row kills the process of the first attempt, and the deadline that of the second at the third row."""
    shared.override(poll=0.05)
    connection.execute("insert into rows values (1, null), (2, 'process'), (3, 'time'), (4, null)")
    job = await iteration_app.isolated.aenqueue()
    async with shared.working() as worker:
        await auntil(lambda: one(connection, "select count(*) from effects") == 4)
        _expire(worker, job.id)
        await auntil(lambda: one(connection, "select count(*) from sereno.history") == 1)
    await shared.aclose()
    assert one(connection, EFFECTS) == [1, 2, 2, 3, 3, 4]
    assert one(connection, COUNTS) == "(succeeded,3,0,0,2)"


@pytest.mark.slow
async def test_an_isolated_process_that_never_advances_is_charged(
    shared: Sereno, connection: psycopg.Connection
) -> None:
    connection.execute("insert into rows values (1, 'process')")
    job = await iteration_app.isolated.aenqueue()
    async with shared.working():
        await auntil(lambda: one(connection, "select crashes from sereno.jobs where id = %s", job.id) == 1)
    await shared.aclose()
    assert one(connection, "select outcome from sereno.attempts") == "crash"


@pytest.mark.slow
def test_each_row_has_one_effect_although_its_worker_is_killed(shared: Sereno, connection: psycopg.Connection) -> None:
    """Killed with SIGKILL in the middle of three batches, after some of their writes and before their commit."""
    stops = (18, 60, 100)
    connection.execute("insert into rows select generate_series(1, 150)")
    connection.execute("create table barriers (id integer primary key)")
    connection.execute("insert into barriers select unnest(%s)", [list(stops)])
    kit = Kit(shared)
    iteration_app.copies.enqueue()
    waiting = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    for stop in stops:
        with psycopg.connect(shared.url) as barrier:
            barrier.execute("select from barriers where id = %s for update", [stop])
            with kit.crash_worker("tests.worker.iteration_app:app") as worker:
                worker.until(lambda: one(connection, waiting))
                worker.kill()
        kit.lose_leases()
    kit.drain()
    assert one(connection, EFFECTS) == list(range(1, 151))
    assert one(connection, "select count(distinct attempt) from effects") == len(stops) + 1
    assert one(connection, COUNTS) == "(succeeded,4,0,0,3)"
    assert broken(shared) == {}
