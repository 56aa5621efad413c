"""The application's own connections, and their errors."""

import psycopg
import pytest

from sereno import DatabaseUnavailable, Sereno
from sereno.database import database
from sereno.database.connect import connect
from sereno.settings import Settings
from tests.facts import one

UNREACHABLE = "postgresql://me:hunter2@127.0.0.1:1/nowhere"


def test_an_unreachable_server_is_named_without_the_password() -> None:
    with pytest.raises(DatabaseUnavailable, match=r"dbname=nowhere host=127\.0\.0\.1 port=1") as refusal:
        connect(UNREACHABLE, Settings(), "test")
    assert "hunter2" not in str(refusal.value)
    with pytest.raises(DatabaseUnavailable, match="not a valid connection string"):
        connect("hunter2", Settings(), "test")


async def test_an_enqueue_without_a_server_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "TIMEOUT", 0.1)
    app = Sereno(UNREACHABLE)

    @app.task
    def work() -> None: ...

    with pytest.raises(DatabaseUnavailable) as refusal:
        work.enqueue()
    assert "hunter2" not in str(refusal.value)
    with pytest.raises(DatabaseUnavailable):
        await work.aenqueue()
    await app.aclose()


def test_a_failed_statement_is_not_an_unavailable_server(app: Sereno, connection: psycopg.Connection) -> None:
    def wait_for_the_lock() -> None:
        with app.database.connection() as own, own.transaction():
            own.execute("set local lock_timeout = '10ms'")
            own.execute("lock table sereno.jobs")

    with connection.transaction():
        connection.execute("lock table sereno.jobs")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            wait_for_the_lock()


async def test_a_failed_statement_is_not_an_unavailable_server_in_async_code(
    app: Sereno, connection: psycopg.Connection
) -> None:
    async def wait_for_the_lock() -> None:
        async with app.database.aconnection() as own, own.transaction():
            await own.execute("set local lock_timeout = '10ms'")
            await own.execute("lock table sereno.jobs")

    with connection.transaction():
        connection.execute("lock table sereno.jobs")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            await wait_for_the_lock()
    await app.aclose()


CUT = (
    "select count(pg_terminate_backend(pid, 10000)) from pg_stat_activity "
    "where application_name = 'sereno client' and datname = current_database()"
)


def test_idle_connections_that_were_closed_are_replaced(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task
    def work() -> None: ...

    work.enqueue()
    assert one(connection, CUT) >= 1
    assert work.enqueue().created
    assert one(connection, "select count(*) from sereno.jobs") == 2


async def test_idle_connections_that_were_closed_are_replaced_in_async_code(
    app: Sereno, connection: psycopg.Connection
) -> None:
    @app.task
    def work() -> None: ...

    await work.aenqueue()
    assert one(connection, CUT) >= 1
    assert (await work.aenqueue()).created
    await app.aclose()


def test_a_connection_closed_during_a_statement_raises(app: Sereno, connection: psycopg.Connection) -> None:
    def query_after_the_cut() -> None:
        with app.database.connection() as own:
            one(connection, CUT)
            own.execute("select 1")

    with pytest.raises(DatabaseUnavailable, match="no connection to PostgreSQL"):
        query_after_the_cut()


def test_calling_a_task_and_building_a_job_need_no_connection() -> None:
    app = Sereno(UNREACHABLE)

    @app.task
    def work(number: int) -> int:
        return number + 1

    assert work(1) == 2
    assert work.job(1).args == b'{"number":1}'
    app.close()


def test_an_exhausted_pool_raises_an_error_that_names_the_setting(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "TIMEOUT", 0.01)
    app = Sereno(database_url, pool_size=1)

    @app.task
    def work() -> None: ...

    with app.database.connection(), pytest.raises(DatabaseUnavailable, match="SERENO_POOL_SIZE"):
        work.enqueue()
    app.close()


def test_a_statement_is_prepared_again_after_the_driver_has_deallocated_all(app: Sereno) -> None:
    """It does so after a rollback on a connection with prepared statements of its own."""

    @app.task
    def work(n: int) -> None: ...

    first = work.enqueue(1)
    with app.database.connection() as connection:
        for _ in range(10):
            connection.execute("select count(*) from sereno.jobs")
        with connection.transaction(force_rollback=True):
            connection.execute("select 1")
        left = connection.execute("select count(*) from pg_prepared_statements where name like 'sereno_%'").fetchone()
        assert left == (0,)
    assert work.enqueue(2).id > first.id
