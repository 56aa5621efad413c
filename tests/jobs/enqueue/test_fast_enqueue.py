"""The fast path for one plain job on sereno's own connection behaves like the driver's cursor."""

import os
import signal
import threading

import psycopg
import pytest

from sereno import Sereno
from sereno.errors import DatabaseUnavailable
from tests.facts import one, until

CLIENT_CONNECTIONS = "from pg_stat_activity where datname = current_database() and application_name = 'sereno client'"


def test_arguments_larger_than_a_socket_buffer_are_stored(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task
    def work(text: str) -> None: ...

    job = work.enqueue("x" * 1_000_000)

    assert one(connection, "select length(args ->> 'text') from sereno.jobs where id = %s", job.id) == 1_000_000


def test_a_statement_that_fails_raises_the_error_of_the_driver(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task
    def work() -> None: ...

    work.enqueue()
    connection.execute("alter table sereno.jobs add constraint no_more check (false) not valid")
    with pytest.raises(psycopg.errors.CheckViolation, match="no_more"):
        work.enqueue()
    connection.execute("alter table sereno.jobs drop constraint no_more")
    assert work.enqueue().created
    assert one(connection, f"select count(*) {CLIENT_CONNECTIONS}") == 1, (
        "an error in a statement closed the connection"
    )


def test_a_connection_that_the_server_ended_is_replaced(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task
    def work() -> None: ...

    work.enqueue()
    connection.execute(f"select pg_terminate_backend(pid) {CLIENT_CONNECTIONS}")
    until(lambda: one(connection, f"select count(*) {CLIENT_CONNECTIONS}") == 0)

    assert work.enqueue().created


def test_a_connection_that_breaks_during_a_call_raises(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task
    def work() -> None: ...

    work.enqueue()
    terminate = threading.Thread(target=_terminate_when_waiting, args=[app.url])
    with connection.transaction():
        connection.execute("lock table sereno.jobs in exclusive mode")
        terminate.start()
        with pytest.raises(DatabaseUnavailable, match="terminating connection"):
            work.enqueue()
    terminate.join()
    assert work.enqueue().created


def _terminate_when_waiting(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        until(lambda: one(connection, f"select count(*) {CLIENT_CONNECTIONS} and wait_event_type = 'Lock'"))
        connection.execute(f"select pg_terminate_backend(pid) {CLIENT_CONNECTIONS}")


def test_a_signal_interrupts_a_waiting_enqueue(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task
    def work() -> None: ...

    work.enqueue()
    interrupt = threading.Thread(target=_interrupt_when_waiting, args=[app.url])
    with connection.transaction():
        connection.execute("lock table sereno.jobs in exclusive mode")
        interrupt.start()
        with pytest.raises(KeyboardInterrupt):
            work.enqueue()
    interrupt.join()
    assert work.enqueue().created


def _interrupt_when_waiting(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        until(lambda: one(connection, f"select count(*) {CLIENT_CONNECTIONS} and wait_event_type = 'Lock'"))
    os.kill(os.getpid(), signal.SIGINT)


def test_behind_a_transaction_pooler_nothing_is_prepared(database_url: str, connection: psycopg.Connection) -> None:
    app = Sereno(database_url, transaction_pooler=True)

    @app.task
    def work(number: int) -> None: ...

    for number in range(20):
        work.enqueue(number)
    with app.database.connection() as own:
        assert one(own, "select count(*) from pg_prepared_statements") == 0
    assert one(connection, "select count(*) from sereno.jobs") == 20
    app.close()


@pytest.mark.slow
def test_a_job_is_enqueued_in_another_schema(empty_database_url: str) -> None:
    app = Sereno(empty_database_url, schema="elsewhere")
    app.migrate()

    @app.task
    def work() -> None: ...

    job = work.enqueue()
    with psycopg.connect(empty_database_url) as connection:
        assert one(connection, "select id from elsewhere.jobs") == job.id
    app.close()
