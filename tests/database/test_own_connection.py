"""Enqueue through the application's own connections: durable when it returns, one statement for any number."""

import asyncio
import gc

import psycopg
import pytest

from sereno import ConfigurationError, Context, InvalidArguments, Sereno
from sereno.database.connect import connect
from tests.facts import one, until


def test_an_accepted_job_is_committed_when_enqueue_returns(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task
    def work(number: int) -> None: ...

    job = work.enqueue(7)

    found = connection.execute("select task, args, state, attempt from sereno.jobs where id = %s", [job.id]).fetchone()
    assert found == ("work", {"number": 7}, "ready", 0)
    assert job.created


async def test_an_accepted_job_is_committed_when_aenqueue_returns(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task
    async def work(number: int) -> None: ...

    job = await work.aenqueue(number=7)

    assert one(connection, "select args from sereno.jobs where id = %s", job.id) == {"number": 7}
    await app.aclose()


def numbers(connection: psycopg.Connection) -> dict[int, int]:
    """Return the argument of each job by id."""
    return {id_: args["number"] for id_, args in connection.execute("select id, args from sereno.jobs").fetchall()}


def test_ids_are_returned_in_the_order_of_the_jobs(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task
    def work(number: int) -> None: ...

    made = app.enqueue_many([work.job(number) for number in range(10_000)])

    stored: dict[int, int] = dict(
        connection.execute("select id, (args ->> 'number')::integer from sereno.jobs").fetchall()
    )
    assert [stored[job.id] for job in made] == list(range(10_000))


def test_keyed_and_plain_jobs_of_one_call_keep_their_order(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task
    def work(number: int) -> None: ...

    keyed = [work.using(unique_key=f"k{9 - number}").job(number) for number in range(10)]
    plain = [work.job(number) for number in range(10, 20)]
    mixed = [job for pair in zip(keyed, plain, strict=True) for job in pair]

    made = app.enqueue_many(mixed)

    stored: dict[int, int] = dict(
        connection.execute("select id, (args ->> 'number')::integer from sereno.jobs").fetchall()
    )
    assert [stored[job.id] for job in made] == [n for pair in zip(range(10), range(10, 20), strict=True) for n in pair]


@pytest.mark.slow
@pytest.mark.parametrize("key", [None, "k"])
def test_many_jobs_are_enqueued_in_one_statement(app: Sereno, connection: psycopg.Connection, key: str | None) -> None:
    @app.task
    def work(number: int) -> None: ...

    app.enqueue_many([work.using(unique_key=key and f"{key}{n}").job(n) for n in range(1000)])

    # One statement in autocommit mode is one transaction: every row has the same transaction id.
    assert one(connection, "select count(distinct xmin::text) from sereno.jobs") == 1
    assert one(connection, "select count(distinct created_at) from sereno.jobs") == 1


def test_an_empty_list_sends_no_statement(empty_database_url: str) -> None:
    app = Sereno(empty_database_url)
    assert app.enqueue_many([]) == []
    app.close()


async def test_an_empty_list_sends_no_statement_in_async_code(empty_database_url: str) -> None:
    app = Sereno(empty_database_url)
    assert await app.aenqueue_many([]) == []
    await app.aclose()


def test_a_refused_job_writes_nothing(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task
    def work(number: int) -> None: ...

    with pytest.raises(InvalidArguments):
        work.enqueue("seven")  # type: ignore[arg-type]  # the point of the test
    assert one(connection, "select count(*) from sereno.jobs") == 0


@pytest.mark.slow
def test_connections_of_ended_event_loops_are_closed(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task
    def work(number: int) -> None: ...

    ids = [asyncio.run(work.aenqueue(number)).id for number in range(20)]

    assert len(set(ids)) == 20

    def most_are_closed() -> bool:
        gc.collect()
        opened: int = one(
            connection,
            "select count(*) from pg_stat_activity "
            "where datname = current_database() and application_name = 'sereno client'",
        )
        return opened <= 2

    until(most_are_closed)


def test_connections_set_their_application_name(app: Sereno, connection: psycopg.Connection) -> None:
    with connect(app.database.url, app.settings, "test"):
        sessions = "select count(*) from pg_stat_activity where datname = current_database()"
        assert one(connection, f"{sessions} and application_name = 'sereno test'") == 1


def test_a_task_can_be_called_unless_it_needs_a_context(app: Sereno) -> None:
    @app.task
    def plain(number: int) -> int:
        return number + 1

    @app.task
    def needs_context(ctx: Context, number: int) -> int:
        return number

    assert plain(1) == 2
    with pytest.raises(ConfigurationError, match="only a worker has"):
        needs_context(1)
