"""What handlers of carried jobs can use: batches, hooks, transactions of batches, chunks, threads, a single slot."""

import asyncio
import threading
from collections import Counter
from typing import Any

import psycopg
import pytest

from sereno import Backoff, Context, JetStream, Sereno
from tests.facts import auntil

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]


def carried(url: str, carrier: JetStream) -> Sereno:
    app = Sereno(url)
    app.queue("clicks", carrier=carrier, direct=True)
    return app


def rows(url: str, sql: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as connection:
        return connection.execute(sql.encode()).fetchall()


async def test_a_batch_task_settles_each_job(database_url: str, jetstream: JetStream) -> None:
    app = carried(database_url, jetstream)
    seen: Counter[int] = Counter()

    @app.task(queue="clicks", history=False, batch=10, retry=Backoff(0))
    async def click(numbers: list[int]) -> list[Any]:
        seen.update(numbers)
        return [ValueError("odd") if number % 2 else None for number in numbers]

    async with app.working():
        await app.aenqueue_many([click.job(number) for number in range(40)])
        await auntil(lambda: rows(database_url, "select count(*) from sereno.history where state = 'dead'") == [(20,)])
        await auntil(lambda: len(seen) == 40)
    await app.aclose()
    assert set(seen.values()) == {1}
    assert rows(database_url, "select count(*) from sereno.jobs") == [(0,)]


async def test_a_batch_commits_in_one_transaction(database_url: str, jetstream: JetStream) -> None:
    app = carried(database_url, jetstream)
    with psycopg.connect(database_url) as connection:
        connection.execute("create table effects (number integer)")

    @app.task(queue="clicks", history=False, batch=5)
    async def click(ctx: Context, numbers: list[int]) -> None:
        async with ctx.transaction() as connection:
            for number in numbers:
                await connection.execute("insert into effects values (%s)", [number])

    async with app.working() as worker:
        await app.aenqueue_many([click.job(number) for number in range(20)])
        await auntil(lambda: rows(database_url, "select count(*) from effects") == [(20,)])
        await auntil(lambda: worker.carried.outcomes.held_messages == 0)
        assert not worker.claimer.held
    await app.aclose()
    assert rows(database_url, "select count(distinct number) from effects") == [(20,)]


async def test_hooks_are_called_for_successes_and_failures(database_url: str, jetstream: JetStream) -> None:
    app = carried(database_url, jetstream)
    events: Counter[str] = Counter()

    @app.on("job.succeeded", "job.dead")
    async def count(event: Any) -> None:
        events[event.name] += 1

    @app.task(queue="clicks", history=False, retry=Backoff(0))
    async def click(number: int) -> None:
        if number % 5 == 0:
            raise ValueError("five")

    async with app.working():
        await app.aenqueue_many([click.job(number) for number in range(50)])
        await auntil(lambda: events == {"job.succeeded": 40, "job.dead": 10})
    await app.aclose()


async def test_steps_then_a_transaction_leave_nothing_behind(database_url: str, jetstream: JetStream) -> None:
    app = carried(database_url, jetstream)

    @app.task(queue="clicks", history=False)
    async def click(ctx: Context, number: int) -> None:
        await ctx.step("one", lambda: number)
        async with ctx.transaction() as connection:
            await connection.execute("select 1")

    async with app.working() as worker:
        await app.aenqueue_many([click.job(number) for number in range(20)])
        await auntil(lambda: worker.carried.executor.ended_jobs == 20)
        await auntil(lambda: rows(database_url, "select count(*) from sereno.jobs") == [(0,)])
        await auntil(lambda: not worker.claimer.held)
    await app.aclose()
    assert rows(database_url, "select count(*) from sereno.steps") == [(0,)]


async def test_a_worker_with_one_slot_runs_one_handler_at_a_time(database_url: str, jetstream: JetStream) -> None:
    app = carried(database_url, jetstream)
    running: list[int] = [0, 0]
    lock = threading.Lock()
    done: Counter[int] = Counter()

    @app.task(queue="clicks", history=False)
    def click(number: int) -> None:
        with lock:
            running[0] += 1
            running[1] = max(running)
        done[number] += 1
        with lock:
            running[0] -= 1

    async with app.working(queues={"clicks": 1}):
        await app.aenqueue_many([click.job(number) for number in range(100)])
        with psycopg.connect(database_url) as connection:
            app.enqueue_many([click.job(number) for number in range(100, 150)], connection=connection)
        await auntil(lambda: len(done) == 150)
    await app.aclose()
    assert set(done.values()) == {1}
    assert running[1] == 1


async def test_a_stopped_worker_gives_back_what_it_has_not_run(database_url: str, jetstream: JetStream) -> None:
    app = carried(database_url, jetstream)
    done: Counter[int] = Counter()

    @app.task(queue="clicks", history=False)
    async def click(number: int) -> None:
        await asyncio.sleep(0.05)
        done[number] += 1

    await app.aenqueue_many([click.job(number) for number in range(200)])
    async with app.working(queues={"clicks": 5}):
        await auntil(lambda: len(done) >= 20)
    assert len(done) < 200
    async with app.working(queues={"clicks": 50}):
        await auntil(lambda: len(done) == 200)
    await app.aclose()
    assert set(done.values()) == {1}


async def test_chunks_and_progress_of_a_running_job_are_stored(database_url: str, jetstream: JetStream) -> None:
    app = carried(database_url, jetstream)
    proceed = asyncio.Event()

    @app.task(queue="clicks")
    async def work(ctx: Context) -> None:
        ctx.emit("one")
        await proceed.wait()
        ctx.emit("two")

    async with app.working():
        job = await work.aenqueue()
        count = "select coalesce(sum(jsonb_array_length(chunks)), 0)::int from sereno.job_chunks"
        await auntil(lambda: rows(database_url, count) == [(1,)])
        assert rows(database_url, "select id, state from sereno.jobs") == [(job.id, "running")]
        proceed.set()
        await auntil(lambda: rows(database_url, "select state from sereno.history") == [("succeeded",)])
        assert rows(database_url, count) == [(2,)]
    await app.aclose()


async def test_a_paused_queue_and_a_paused_task_do_not_run(database_url: str, jetstream: JetStream) -> None:
    app = carried(database_url, jetstream)
    done: Counter[str] = Counter()

    @app.task(queue="clicks", history=False)
    async def first() -> None:
        done["first"] += 1

    @app.task(queue="clicks", history=False)
    async def second() -> None:
        done["second"] += 1

    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(
            "insert into sereno.pauses (kind, name, paused_by) "
            "values ('queue', 'clicks', 'test'), ('task', 'second', 'test')"
        )
        async with app.working() as worker:
            await auntil(lambda: worker.carried._relay is not None and worker.carried._relay.rounds > 0)
            consumer = worker.carried._consumers["clicks"]
            rounds = consumer.rounds
            await app.aenqueue_many([task.job() for task in (first, second) for _ in range(10)])
            await auntil(lambda: consumer.rounds > rounds + 3)
            assert not done
            connection.execute("delete from sereno.pauses where kind = 'queue'")
            await auntil(lambda: done == {"first": 10})
            waiting = "select count(*) from sereno.jobs where task = 'second' and state = 'ready'"
            await auntil(lambda: rows(database_url, waiting) == [(10,)])
            connection.execute("delete from sereno.pauses")
            await auntil(lambda: done == {"first": 10, "second": 10})
    await app.aclose()
