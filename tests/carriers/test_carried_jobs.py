"""Jobs of a carried queue, from enqueue to outcome: the happy path and a bad day."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
import pytest

from sereno import Backoff, Context, JetStream, Sereno
from tests.facts import TIMEOUT, auntil

pytestmark = pytest.mark.asyncio


async def eventually(question: Callable[[], Awaitable[Any]]) -> None:
    """Ask until the answer is true."""
    async with asyncio.timeout(TIMEOUT):
        while not await question():
            pass


def rows(url: str, sql: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as connection:
        return connection.execute(sql.encode()).fetchall()


async def test_direct_jobs_run_without_a_row_in_postgresql(database_url: str, jetstream: JetStream) -> None:
    app = Sereno(database_url)
    app.queue("clicks", carrier=jetstream, direct=True)
    seen: Counter[int] = Counter()

    @app.task(queue="clicks", history=False)
    async def click(number: int) -> None:
        seen[number] += 1

    async with app.working():
        one = await click.aenqueue(1)
        many = await app.aenqueue_many([click.job(number) for number in range(2, 1200)])
        await auntil(lambda: len(seen) == 1199)
    await app.aclose()

    assert set(seen.values()) == {1}
    assert len({one.id, *(job.id for job in many)}) == 1199
    assert rows(database_url, "select count(*) from sereno.jobs") == [(0,)]
    assert rows(database_url, "select count(*) from sereno.history") == [(0,)]


@pytest.mark.slow
async def test_a_job_of_a_transaction_is_relayed(database_url: str, jetstream: JetStream) -> None:
    app = Sereno(database_url)
    app.queue("clicks", carrier=jetstream)
    seen: Counter[int] = Counter()

    @app.task(queue="clicks", history=False)
    async def click(number: int) -> None:
        seen[number] += 1

    async with app.working() as worker:
        await auntil(lambda: worker.carried._relay is not None and worker.carried._relay._shares["clicks"])
        jobs = await app.aenqueue_many([click.job(number) for number in range(700)])
        await auntil(lambda: len(seen) == 700)
        client = await worker.carried._client(jetstream)
        await eventually(lambda: client.acknowledged("clicks"))
    await app.aclose()
    assert len(jobs) == 700
    assert set(seen.values()) == {1}
    assert rows(database_url, "select count(*) from sereno.relay_batches") == [(0,)]


async def test_failures_come_home(database_url: str, jetstream: JetStream) -> None:
    app = Sereno(database_url)
    app.queue("clicks", carrier=jetstream, direct=True)
    tries: Counter[str] = Counter()

    @app.task(queue="clicks", history=False, retry=Backoff(1, delays=["100ms"]))
    async def flaky(name: str) -> None:
        tries[name] += 1
        if name == "twice" and tries[name] == 1:
            raise ValueError("at first")
        if name == "never":
            raise ValueError("always")

    async with app.working():
        dead = await flaky.aenqueue("never")
        await flaky.aenqueue("twice")
        await flaky.aenqueue("once")
        await auntil(lambda: rows(database_url, "select count(*) from sereno.history where state = 'dead'") == [(1,)])
        await auntil(lambda: tries == {"never": 2, "twice": 2, "once": 1})
    await app.aclose()
    found = rows(database_url, "select id, attempt, failures, error_message from sereno.history")
    assert found == [(dead.id, 2, 2, "always")]
    assert rows(database_url, "select count(*) from sereno.jobs") == [(0,)]


@pytest.mark.slow
async def test_a_transaction_settles_a_carried_job_once(database_url: str, jetstream: JetStream) -> None:
    app = Sereno(database_url)
    app.queue("clicks", carrier=jetstream, direct=True)
    with psycopg.connect(database_url) as connection:
        connection.execute("create table effects (number integer)")

    @app.task(queue="clicks")
    async def click(ctx: Context, number: int) -> None:
        async with ctx.transaction() as connection:
            await connection.execute("insert into effects values (%s)", [number])

    async with app.working():
        for number in range(5):
            await click.aenqueue(number)
        await auntil(lambda: rows(database_url, "select count(*) from sereno.history") == [(5,)])
    await app.aclose()
    assert rows(database_url, "select number from effects order by number") == [(n,) for n in range(5)]


@pytest.mark.slow
async def test_steps_work_in_a_carried_job(database_url: str, jetstream: JetStream) -> None:
    app = Sereno(database_url)
    app.queue("clicks", carrier=jetstream, direct=True)
    calls: Counter[str] = Counter()

    def once() -> int:
        calls["step"] += 1
        return 7

    @app.task(queue="clicks", retry=Backoff(2, delays=["50ms"]))
    async def steps(ctx: Context) -> int:
        number = await ctx.step("first", once)
        calls["runs"] += 1
        if calls["runs"] == 1:
            raise ValueError("after the step")
        return number

    async with app.working():
        job = await steps.aenqueue()
        assert await job.aresult("20s") == 7
    await app.aclose()
    assert calls == {"step": 1, "runs": 2}
