"""The application's own connections: what is told when the database does not answer, and what when it does."""

import psycopg
import pytest

from sereno import DatabaseUnavailable, Sereno
from sereno.settings import Settings
from sereno.store import database
from sereno.store.connect import connect
from tests.facts import one

SECRET_URL = "postgresql://me:hunter2@127.0.0.1:1/nowhere"


def test_a_server_that_does_not_answer_is_named_without_the_password() -> None:
    with pytest.raises(DatabaseUnavailable, match=r"host=127\.0\.0\.1 port=1 dbname=nowhere") as refusal:
        connect(SECRET_URL, Settings(), "test")
    assert "hunter2" not in str(refusal.value)
    with pytest.raises(DatabaseUnavailable, match="not a valid connection string"):
        connect("host==", Settings(), "test")


async def test_an_enqueue_without_a_server_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "PATIENCE", 0.1)
    app = Sereno(SECRET_URL)

    @app.task
    def work() -> None: ...

    with pytest.raises(DatabaseUnavailable) as refusal:
        work.enqueue()
    assert "hunter2" not in str(refusal.value)
    with pytest.raises(DatabaseUnavailable):
        await work.aenqueue()
    await app.aclose()


def test_a_statement_that_failed_is_no_server_that_is_gone(app: Sereno, connection: psycopg.Connection) -> None:
    def wait_in_vain() -> None:
        with app.database.connection() as own, own.transaction():
            own.execute("set local lock_timeout = '10ms'")
            own.execute("lock table sereno.jobs")

    with connection.transaction():
        connection.execute("lock table sereno.jobs")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            wait_in_vain()


async def test_a_statement_that_failed_is_no_server_that_is_gone_in_async_code(
    app: Sereno, connection: psycopg.Connection
) -> None:
    async def wait_in_vain() -> None:
        async with app.database.aconnection() as own, own.transaction():
            await own.execute("set local lock_timeout = '10ms'")
            await own.execute("lock table sereno.jobs")

    with connection.transaction():
        connection.execute("lock table sereno.jobs")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            await wait_in_vain()
    await app.aclose()


def test_a_connection_that_was_cut_is_told_and_replaced(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task
    def work() -> None: ...

    work.enqueue()
    cut = "select pg_terminate_backend(pid, 10000) from pg_stat_activity where application_name = 'sereno client'"
    assert one(connection, f"{cut} and datname = current_database()")
    with pytest.raises(DatabaseUnavailable):
        work.enqueue()
    assert work.enqueue().created
    assert one(connection, "select count(*) from sereno.jobs") == 2


def test_nothing_connects_before_it_is_needed() -> None:
    app = Sereno(SECRET_URL)

    @app.task
    def work(number: int) -> int:
        return number + 1

    assert work(1) == 2
    assert work.job(1).args == b'{"number":1}'
    app.close()
