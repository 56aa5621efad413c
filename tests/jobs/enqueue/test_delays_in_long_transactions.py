"""A delay counts from the enqueue call, not from the start of the caller's transaction or statement."""

from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest

from sereno import Context, Limit, Sereno, Task
from tests.facts import auntil, one
from tests.jobs.enqueue.ways import ASYNC_METHODS, SYNC_METHODS, AsyncMethod, SyncMethod
from tests.jobs.public_sql.sql_worker import SqlWorker, outcome

Connection = psycopg.Connection[Any]
FIVE = timedelta(seconds=5)
CLOCK = "select clock_timestamp()"


@pytest.fixture
def work(app: Sereno) -> Task[[str], None]:
    @app.task
    def work(text: str) -> None: ...

    return work


def due(connection: Connection) -> list[datetime]:
    return [row[0] for row in connection.execute("select run_at from sereno.jobs order by id")]


@pytest.mark.parametrize("opens", SYNC_METHODS.values(), ids=SYNC_METHODS)
def test_a_delay_counts_from_the_enqueue_call(
    app: Sereno, work: Task[[str], None], database_url: str, connection: Connection, opens: SyncMethod
) -> None:
    with opens(database_url) as callers:
        # The transaction starts before the clock is read.
        work.using(callers).enqueue("first")
        called: datetime = one(connection, CLOCK)
        work.using(callers, delay="5s").enqueue("plain")
        work.using(callers, delay="5s", unique_key="k").enqueue("keyed")
        app.enqueue_many([work.using(delay="5s").job("a"), work.using(delay="5s", tenant="t").job("b")], callers)
        app.enqueue_many([work.using(delay="5s").job("alike")] * 20, callers)
    first, *later = due(connection)
    assert first < called
    assert len(later) == 24
    assert min(later) >= called + FIVE


@pytest.mark.slow
@pytest.mark.parametrize("opens", ASYNC_METHODS.values(), ids=ASYNC_METHODS)
async def test_a_delay_counts_from_the_aenqueue_call(
    work: Task[[str], None], database_url: str, connection: Connection, opens: AsyncMethod
) -> None:
    async with opens(database_url) as callers:
        await work.using(callers).aenqueue("first")
        called: datetime = one(connection, CLOCK)
        await work.using(callers, delay="5s").aenqueue("plain")
    assert due(connection)[1] >= called + FIVE


def test_a_delay_of_a_job_with_a_limit_counts_from_its_enqueue(
    app: Sereno, database_url: str, connection: Connection
) -> None:
    @app.task(concurrency=Limit(1, key="{tenant}"))
    def limited(text: str) -> None: ...

    with psycopg.connect(database_url) as callers:
        limited.using(callers, tenant="t").enqueue("first")
        called: datetime = one(connection, CLOCK)
        limited.using(callers, tenant="t", delay="5s").enqueue("later")
    assert due(connection)[1] >= called + FIVE


async def test_a_delay_in_the_transaction_of_a_handler_counts_from_its_enqueue(
    app: Sereno, connection: Connection
) -> None:
    called: list[datetime] = []

    @app.task(queue="elsewhere")
    async def later() -> None: ...

    @app.task
    async def parent(ctx: Context) -> None:
        async with ctx.transaction() as own:
            await own.execute("select 1")
            called.append(one(connection, CLOCK))
            await later.using(own, delay="5s").aenqueue()

    parent.enqueue()
    async with app.working({"default": 1}):
        await auntil(lambda: due(connection) and called)
    assert due(connection)[0] >= called[0] + FIVE


def test_a_job_settled_late_in_a_transaction_is_not_retried_early(connection: Connection) -> None:
    worker = SqlWorker(connection)
    for word in ("retry", "snooze"):
        job_id: int = one(connection, "select sereno.enqueue('work')")
        (job,) = worker.claim()
        with connection.transaction():
            connection.execute("select 1")
            failed: datetime = one(connection, CLOCK)
            worker.settle(outcome(job, word, delay=5))
        assert one(connection, "select run_at from sereno.jobs where id = %s", job_id) >= failed + FIVE, word
        connection.execute("delete from sereno.jobs")


def test_delays_in_one_long_statement_count_from_the_call(connection: Connection) -> None:
    """For example in a procedure of the caller that runs for minutes before it enqueues."""
    connection.execute("create table called (at timestamptz)")
    connection.execute(
        "insert into sereno.event_types (name, definition) values ('announced', %s)",
        ['{"channels": ["inbox"], "ttl": 5}'],
    )
    connection.execute(
        """
        do $$ begin
            perform pg_sleep(0.001);
            insert into called select clock_timestamp();
            perform sereno.enqueue('now');
            perform sereno.enqueue_keyed('[{"task": "later", "unique_key": "k", "delay": 5}]');
            perform sereno.schedule('k', 'work', every => interval '1 hour');
            perform sereno.notify('announced', '{}', array['user:1']);
        end $$
        """
    )
    called: datetime = one(connection, "select at from called")
    for query, delay in (
        ("select run_at from sereno.jobs where task = 'now'", timedelta(0)),
        ("select run_at from sereno.jobs where task = 'later'", FIVE),
        ("select next_run_at from sereno.schedules", timedelta(0)),
        ("select due_at from sereno.events", timedelta(0)),
        ("select expires_at from sereno.events", FIVE),
    ):
        assert one(connection, query) >= called + delay, query
    assert one(connection, "select state from sereno.jobs where task = 'now'") == "ready"


def test_both_clock_functions_follow_the_clock_of_the_tests(connection: Connection) -> None:
    connection.execute("insert into sereno.clock (ahead) values ('1 day')")
    for reading in ("sereno.now()", "sereno.clock_now()"):
        assert one(connection, f"select {reading} > clock_timestamp() + interval '23 hours'"), reading
