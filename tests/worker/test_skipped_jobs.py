"""Any number of jobs that a worker has to skip does not delay other jobs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic

import psycopg
import pytest

from sereno import Limit, Sereno
from sereno.worker.claiming import claim_ranges
from sereno.worker.worker import Worker
from tests.facts import auntil, one, state

pytestmark = pytest.mark.slow

MANY = 6000
WIDTH = 200


@pytest.fixture
def large_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat every index as large, and use small ranges."""
    monkeypatch.setattr(claim_ranges, "SMALL_INDEX", 0)
    monkeypatch.setattr(claim_ranges, "NARROWEST", WIDTH)
    monkeypatch.setattr(claim_ranges, "WIDEST", 2 * WIDTH)


def enqueue(connection: psycopg.Connection, count: int, *, task: str = "work", tenant: str | None = None) -> None:
    connection.execute(
        "insert into sereno.jobs (task, args, queue, priority, tenant, state, ready_seq) "
        "select %s, '{}', 'default', 5, %s, 'ready', nextval('sereno.ready_seq') from generate_series(1, %s)",
        [task, tenant, count],
    )


@asynccontextmanager
async def working(app: Sereno) -> AsyncIterator[Worker]:
    worker = app.worker({"default": 4})
    running = asyncio.create_task(worker.run())
    await worker.registered.wait()
    yield worker
    worker.stop(hurry=True)
    await running


@pytest.mark.usefixtures("large_index")
@pytest.mark.parametrize("kind", ["tenant", "task", "unknown task"])
async def test_jobs_behind_many_that_cannot_run_are_claimed(
    app: Sereno, connection: psycopg.Connection, kind: str
) -> None:
    @app.task
    async def work() -> None: ...

    @app.task
    async def other() -> None: ...

    enqueue(connection, MANY, task="unknown" if kind == "unknown task" else "work", tenant="big")
    if kind != "unknown task":
        name = "big" if kind == "tenant" else "work"
        connection.execute("insert into sereno.pauses (kind, name, paused_by) values (%s, %s, 'me')", [kind, name])
    async with working(app) as worker:
        first = await other.aenqueue()
        await auntil(lambda: state(connection, first.id) == "succeeded")
        await auntil(lambda: worker.floors.of("default", 5) >= MANY)
        for _ in range(3):
            job = await other.aenqueue()
            await auntil(lambda job=job: state(connection, job.id) == "succeeded")  # type: ignore[misc]
    assert one(connection, "select count(*) from sereno.jobs where state = 'ready'") == MANY


async def test_jobs_of_one_key_behind_many_of_a_paused_tenant_run(
    app: Sereno, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are more of them than a worker skips before it rests."""
    monkeypatch.setattr("sereno.jobs.limits.lane_claim.MOST_ROWS", 25)
    monkeypatch.setattr("sereno.jobs.limits.lane_claim.FEWEST_ROWS", 25)

    @app.task(concurrency=Limit(2))
    async def work() -> None: ...

    await app.aenqueue_many([work.using(tenant="big").job() for _ in range(1000)])
    connection.execute("insert into sereno.pauses (kind, name, paused_by) values ('tenant', 'big', 'me')")
    behind = await work.aenqueue()
    async with working(app):
        await auntil(lambda: state(connection, behind.id) == "succeeded")
        assert one(connection, "select count(*) from sereno.jobs where state = 'ready'") == 1000
        connection.execute("delete from sereno.pauses")
        await auntil(lambda: one(connection, "select count(*) from sereno.jobs") == 0)


@pytest.mark.usefixtures("large_index")
async def test_jobs_below_the_floor_run_when_a_pause_ends(app: Sereno, connection: psycopg.Connection) -> None:
    ran: list[None] = []

    @app.task(history=False)
    async def work() -> None:
        ran.append(None)

    enqueue(connection, 3 * WIDTH, tenant="big")
    connection.execute("insert into sereno.pauses (kind, name, paused_by) values ('tenant', 'big', 'me')")
    async with working(app) as worker:
        await auntil(lambda: worker.floors.of("default", 5) >= 3 * WIDTH)
        assert not ran
        connection.execute("delete from sereno.pauses")
        await auntil(lambda: len(ran) == 3 * WIDTH)


async def test_ordinary_claims_continue_after_a_look_back_that_timed_out(
    app: Sereno, connection: psycopg.Connection
) -> None:
    """The time limit is the statement timeout of the server here; a lock blocks the look-back."""

    @app.task
    async def work() -> None: ...

    name = one(connection, "select current_database()")
    connection.execute(f"alter database {name} set statement_timeout = '2s'".encode())
    async with working(app) as worker:
        first = await work.aenqueue()
        await auntil(lambda: state(connection, first.id) == "succeeded")
        with psycopg.connect(connection.info.dsn) as holder:
            holder.execute("lock table sereno.pauses in access exclusive mode")
            await auntil(lambda: worker.claimer._look_back.due_in(monotonic()) > 1.0)
            holder.rollback()
        second = await work.aenqueue()
        await auntil(lambda: state(connection, second.id) == "succeeded")
