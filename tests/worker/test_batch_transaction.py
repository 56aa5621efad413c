"""`ctx.transaction()` in a batch task settles all jobs of the batch in the commit of their effects, or none."""

from typing import Any

import psycopg
import pytest

from sereno import Backoff, Context, Retry, Sereno
from tests.facts import auntil, one, state

COUNT = 5
BOOK = "insert into booked (n) values (%s)"


@pytest.fixture(autouse=True)
def booked(connection: psycopg.Connection) -> None:
    connection.execute("create table booked (n integer)")


def effects(connection: psycopg.Connection) -> list[int]:
    return [n for (n,) in connection.execute("select n from booked order by n").fetchall()]


async def test_the_effects_of_a_batch_happen_once(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task(batch=COUNT)
    async def book(ctx: Context, orders: list[int]) -> None:
        async with ctx.transaction() as own:
            for order in orders:
                await own.execute(BOOK, [order])

    @app.task(batch=COUNT, history=False)
    def book_in_a_thread(ctx: Context, orders: list[int]) -> None:
        with ctx.transaction() as own:
            for order in orders:
                own.execute(BOOK, [order])

    jobs = await app.aenqueue_many([book.job(n) for n in range(COUNT)])
    await app.aenqueue_many([book_in_a_thread.job(n) for n in range(COUNT, 2 * COUNT)])
    async with app.working():
        await auntil(lambda: one(connection, "select count(*) from sereno.jobs") == 0)
    assert effects(connection) == list(range(2 * COUNT))
    assert {state(connection, job.id) for job in jobs} == {"succeeded"}
    rows = connection.execute("select attempt, started_at between created_at and finished_at from sereno.history")
    assert rows.fetchall() == [(1, True)] * COUNT


@pytest.mark.slow
async def test_a_batch_that_lost_one_job_is_rolled_back(app: Sereno, connection: psycopg.Connection) -> None:
    """The batch fails as a whole: the others are retried, and the lost job runs in its new session."""
    lost: list[int] = []
    sizes: list[int] = []

    @app.task(batch=COUNT, retry=Backoff(3, first=0, jitter=0))
    async def book(ctx: Context, orders: list[int]) -> None:
        sizes.append(len(orders))
        async with ctx.transaction() as own:
            for order in orders:
                await own.execute(BOOK, [order])
            if not lost:
                lost.append(max(ids))
                connection.execute(
                    "update sereno.jobs set state = 'ready', session_id = null, "
                    "ready_seq = nextval('sereno.ready_seq') where id = %s",
                    lost,
                )

    ids = [job.id for job in await app.aenqueue_many([book.job(n) for n in range(COUNT)])]
    async with app.working():
        await auntil(lambda: one(connection, "select count(*) from sereno.history") == COUNT)
    assert sizes[0] == COUNT
    assert effects(connection) == list(range(COUNT))
    assert {state(connection, job_id) for job_id in ids} == {"succeeded"}
    errors = connection.execute("select job_id, outcome, error_type from sereno.attempts order by job_id").fetchall()
    assert errors == [(job_id, "retry", "LeaseLost") for job_id in ids if job_id != lost[0]]


@pytest.mark.slow
async def test_a_job_excluded_from_the_batch_is_not_settled_with_it(
    app: Sereno, connection: psycopg.Connection
) -> None:
    @app.task(batch=COUNT)
    async def book(ctx: Context, orders: list[int]) -> None:
        async with ctx.transaction() as own:
            for order in orders:
                await own.execute(BOOK, [order])

    wrong = one(connection, "select sereno.enqueue('book', '{\"item\": \"no number\"}')")
    jobs = await app.aenqueue_many([book.job(n) for n in range(COUNT - 1)])
    async with app.working():
        await auntil(lambda: one(connection, "select count(*) from sereno.jobs") == 0)
    assert state(connection, wrong) == "dead"
    assert {state(connection, job.id) for job in jobs} == {"succeeded"}
    assert effects(connection) == list(range(COUNT - 1))


@pytest.mark.slow
async def test_an_outcome_after_the_commit_is_only_logged(
    app: Sereno, connection: psycopg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task(batch=2)
    async def returns(ctx: Context, orders: list[int]) -> list[Any]:
        async with ctx.transaction():
            pass
        return [Retry("again"), None]

    @app.task(batch=2)
    async def raises(ctx: Context, orders: list[int]) -> None:
        async with ctx.transaction():
            pass
        raise ValueError("too late")

    @app.task
    async def single(ctx: Context) -> Retry:
        async with ctx.transaction():
            pass
        return Retry("again")

    jobs = await app.aenqueue_many([returns.job(1), returns.job(2), raises.job(1), raises.job(2), single.job()])
    async with app.working():
        await auntil(lambda: {state(connection, job.id) for job in jobs} == {"succeeded"})
    logged = [r for r in caplog.records if getattr(r, "event", "") == "job.error_after_success"]
    ids = [job.id for job in jobs]
    assert sorted(r.sereno_fields["job_id"] for r in logged) == [ids[0], *ids[2:]]  # type: ignore[attr-defined]
    assert not [r for r in caplog.records if getattr(r, "event", "") == "job.retry"]
