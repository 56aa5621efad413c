"""What a handler emits reaches the database in order, whatever the kind of handler and however its attempt ends."""

import asyncio
import threading
from typing import Any

import psycopg
import pytest

from sereno import Backoff, ConfigurationError, Context, InvalidArguments, Sereno
from sereno.jobs import chunks
from tests.facts import advance, auntil, one, state
from tests.server.web.outages import unavailable
from tests.worker.isolation import isolated_tasks


def emitted(connection: psycopg.Connection, job_id: int) -> list[Any]:
    rows = connection.execute(
        "select attempt, chunk from sereno.job_chunks, jsonb_array_elements(chunks) with ordinality as c(chunk, place) "
        "where job_id = %s order by attempt, number, place",
        [job_id],
    ).fetchall()
    return [tuple(row) for row in rows]


@pytest.mark.slow
async def test_chunks_are_stored_while_a_job_runs_and_when_it_ends(app: Sereno, connection: psycopg.Connection) -> None:
    proceed = asyncio.Event()

    @app.task
    async def work(ctx: Context) -> None:
        ctx.emit("one")
        ctx.emit({"two": [2, None]})
        await proceed.wait()
        ctx.emit("three")

    job = await work.aenqueue()
    async with app.working():
        await auntil(lambda: emitted(connection, job.id) == [(1, "one"), (1, {"two": [2, None]})])
        proceed.set()
        await auntil(lambda: state(connection, job.id) == "succeeded")
        # In the transaction of the settlement.
        assert emitted(connection, job.id)[2:] == [(1, "three")]
    assert one(connection, "select count(*) from sereno.steps") == 0


@pytest.mark.slow
async def test_a_sync_handler_emits_from_several_threads(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task
    def work(ctx: Context) -> None:
        def emit_all() -> None:
            for number in range(50):
                ctx.emit(number)

        threads = [threading.Thread(target=emit_all) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    job = await work.aenqueue()
    async with app.working():
        await auntil(lambda: state(connection, job.id) == "succeeded")
    assert sorted(value for _, value in emitted(connection, job.id)) == sorted(list(range(50)) * 4)
    assert one(connection, "select max(number) from sereno.job_chunks") == 200


@pytest.mark.slow
async def test_a_retry_starts_a_new_sequence(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task(retry=Backoff(1, first="1m", jitter=0))
    async def work(ctx: Context) -> None:
        ctx.emit(f"attempt {ctx.attempt}")
        if ctx.attempt == 1:
            raise ValueError("no luck")

    job = await work.aenqueue()
    async with app.working():
        await auntil(lambda: one(connection, "select failures from sereno.jobs where id = %s", job.id) == 1)
        assert emitted(connection, job.id) == [(1, "attempt 1")]
        advance(connection, 60)
        await auntil(lambda: state(connection, job.id) == "succeeded")
    assert emitted(connection, job.id) == [(2, "attempt 2")]


@pytest.mark.slow
async def test_the_handlers_own_transaction_stores_its_chunks(app: Sereno, connection: psycopg.Connection) -> None:
    refusals: list[str] = []

    @app.task
    async def work(ctx: Context) -> None:
        ctx.emit(1)
        async with ctx.transaction():
            ctx.emit(2)
        try:
            ctx.emit(3)
        except ConfigurationError as error:
            refusals.append(str(error))

    @app.task(batch=10)
    async def together(ctx: Context, items: list[int]) -> None:
        ctx.emit(items)

    job = await work.aenqueue()
    other = await together.aenqueue(1)
    async with app.working():
        await auntil(lambda: state(connection, job.id) == "succeeded")
        await auntil(lambda: one(connection, "select error_message from sereno.attempts where job_id = %s", other.id))
    assert emitted(connection, job.id) == [(1, 1), (1, 2)]
    assert refusals == [f"job {job.id}: ctx.transaction() has settled it: emit before"]
    assert "a batch task cannot emit" in one(
        connection, "select error_message from sereno.attempts where job_id = %s", other.id
    )


async def test_an_attempt_emits_a_bounded_number_of_chunks(
    app: Sereno, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sereno.worker.emitted_chunks.MOST_CHUNKS", 3)
    refusals: list[str] = []

    @app.task
    async def work(ctx: Context) -> None:
        for number in range(4):
            try:
                ctx.emit(number)
            except InvalidArguments as error:
                refusals.append(str(error))

    job = await work.aenqueue()
    async with app.working():
        await auntil(lambda: state(connection, job.id) == "succeeded")
    assert [value for _, value in emitted(connection, job.id)] == [0, 1, 2]
    assert len(refusals) == 1
    assert f"job {job.id}: attempt 1 has emitted 3 chunks" in refusals[0]
    assert chunks.MOST_CHUNKS * chunks.LARGEST_CHUNK > chunks.MOST_BYTES


@pytest.mark.slow
async def test_chunks_of_an_outage_are_stored_afterwards(
    app: Sereno, connection: psycopg.Connection, server_url: str, database_url: str
) -> None:
    proceed, emitting = asyncio.Event(), asyncio.Event()

    @app.task
    async def work(ctx: Context) -> None:
        ctx.emit(0)
        await emitting.wait()
        for number in range(1, 500):
            ctx.emit(number)
        await proceed.wait()
        ctx.emit(500)

    job = await work.aenqueue()
    async with app.working() as worker:
        await auntil(lambda: emitted(connection, job.id) == [(1, 0)])
        connection.close()
        with unavailable(server_url, database_url):
            emitting.set()
            # A write has failed.
            await auntil(lambda: worker._stats._failures)
            proceed.set()
            await auntil(lambda: not worker.executor.running)
        with psycopg.connect(database_url, autocommit=True) as back:
            await auntil(lambda: state(back, job.id) == "succeeded")
            assert emitted(back, job.id) == [(1, number) for number in range(501)]


@pytest.mark.slow
async def test_an_isolated_task_emits(app: Sereno, connection: psycopg.Connection) -> None:
    isolated_tasks.adopt(app)
    (job,) = await app.aenqueue_many([isolated_tasks.emits.job()])
    async with app.working():
        await auntil(lambda: state(connection, job.id) == "succeeded")
    assert emitted(connection, job.id) == [(1, number) for number in range(3)]
