"""Workers vacuum the job tables before autovacuum does, for a small share of the time."""

from collections.abc import AsyncIterator

import psycopg
import pytest

from sereno import Sereno
from sereno.database import vacuum as storage_queries
from sereno.database.connect import ServiceConnection
from sereno.database.statement import run
from sereno.worker.maintenance import vacuum
from sereno.worker.maintenance.vacuum import Vacuum
from tests.facts import auntil, one

VACUUMS = "select vacuum_count from pg_stat_user_tables where relid = 'sereno.jobs'::regclass"
OPEN = "select count(*) from pg_stat_activity where application_name = 'sereno vacuum' and datname = current_database()"


@pytest.fixture
async def service(app: Sereno) -> AsyncIterator[Vacuum]:
    made = Vacuum(ServiceConnection(app.database.url, app.settings, "vacuum"), app.settings)
    yield made
    await made.stop()


def make_dead_rows(connection: psycopg.Connection, rows: int = storage_queries.DEAD_ROWS + 1) -> None:
    """Make dead rows that the server's statistics know of and autovacuum does not clean first."""
    connection.execute("alter table sereno.jobs set (autovacuum_enabled = off)")
    connection.execute(
        "insert into sereno.jobs (task, state, ready_seq) "
        "select 'work', 'ready', nextval('sereno.ready_seq') from generate_series(1, %s)",
        [rows],
    )
    connection.execute("delete from sereno.jobs")
    connection.execute("select pg_stat_force_next_flush()")


@pytest.mark.slow
async def test_many_dead_rows_are_vacuumed(connection: psycopg.Connection, service: Vacuum) -> None:
    make_dead_rows(connection)
    assert run(connection, storage_queries.tables_to_vacuum()) == ["jobs"]
    service.settled(vacuum.ENOUGH)
    await service.run_once()
    await auntil(lambda: one(connection, VACUUMS) == 1)
    assert run(connection, storage_queries.tables_to_vacuum()) == []


async def test_few_dead_rows_are_left_to_autovacuum(connection: psycopg.Connection, service: Vacuum) -> None:
    make_dead_rows(connection, 100)
    service.settled(vacuum.ENOUGH)
    await service.run_once()
    assert one(connection, VACUUMS) == 0


@pytest.mark.slow
async def test_a_worker_that_settles_few_jobs_opens_no_vacuum_connection(
    connection: psycopg.Connection, service: Vacuum
) -> None:
    make_dead_rows(connection)
    service.settled(vacuum.ENOUGH - 1)
    await service.run_once()
    assert one(connection, OPEN) == 0
    service.settled(1)
    await service.run_once()
    assert one(connection, OPEN) == 1
    await service.run_once()
    await auntil(lambda: one(connection, OPEN) == 0)


@pytest.mark.slow
async def test_vacuums_take_a_bounded_share_of_the_time(
    app: Sereno, connection: psycopg.Connection, service: Vacuum, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a pinned snapshot nothing is cleaned, and the next check finds as many dead rows."""
    monkeypatch.setattr(vacuum, "POLL_INTERVAL", 0.0)
    monkeypatch.setattr(vacuum, "SHARE", 1e-9)
    with psycopg.connect(app.url) as pinning:
        pinning.execute("set transaction isolation level repeatable read")
        pinning.execute("select 1")
        make_dead_rows(connection)
        for _ in range(3):
            service.settled(vacuum.ENOUGH)
            await service.run_once()
        await auntil(lambda: one(connection, VACUUMS) == 1)
        assert run(connection, storage_queries.tables_to_vacuum()) == ["jobs"]
    assert one(connection, "select done_at > sereno.now() from sereno.duties where name = 'vacuum jobs'")


@pytest.mark.slow
def test_tables_without_the_vacuum_privilege_are_skipped(connection: psycopg.Connection) -> None:
    make_dead_rows(connection)
    role = f"reader_of_{connection.info.dbname}"
    connection.execute(f"create role {role}; grant usage on schema sereno to {role}; set role {role}".encode())
    try:
        assert run(connection, storage_queries.tables_to_vacuum()) == []
    finally:
        connection.execute(f"reset role; drop owned by {role}; drop role {role}".encode())


def test_only_hot_tables_are_vacuumed(connection: psycopg.Connection) -> None:
    for table in storage_queries.HOT:
        run(connection, storage_queries.vacuum(table))
    with pytest.raises(ValueError, match="not one of the tables"):
        run(connection, storage_queries.vacuum("jobs; drop table sereno.jobs"))


@pytest.mark.slow
async def test_a_worker_vacuums_after_its_jobs(
    app: Sereno, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vacuum, "POLL_INTERVAL", 0.05)
    monkeypatch.setattr(vacuum, "ENOUGH", 1)
    monkeypatch.setattr(storage_queries, "DEAD_ROWS", 50)
    connection.execute("alter table sereno.jobs set (autovacuum_enabled = off)")

    @app.task
    async def work() -> None: ...

    def is_vacuumed() -> bool:
        """Enqueue more jobs until it is vacuumed: statistics arrive late, and checks follow settled jobs only."""
        work.enqueue()
        return bool(one(connection, VACUUMS))

    async with app.working():
        for _ in range(100):
            await work.aenqueue()
        await auntil(is_vacuumed)
