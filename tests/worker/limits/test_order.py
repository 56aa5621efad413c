"""Order keys with a live worker: jobs run one after another, in enqueue order, also while the first is retried."""

import asyncio
from collections import defaultdict

import psycopg
import pytest

from sereno import Backoff, Context, Limit, Retry, Sereno
from sereno.database.driver import adrive
from sereno.jobs import operations
from sereno.jobs.filters import JobFilter
from tests.facts import auntil, one, state
from tests.worker.limits.limit_facts import Inside, finished

QUICK = Backoff(5, delays=["20ms"], jitter=0)


async def test_jobs_of_an_order_key_run_one_by_one_in_enqueue_order(
    app: Sereno, connection: psycopg.Connection
) -> None:
    inside = Inside()
    ran: dict[str, list[int]] = defaultdict(list)

    @app.task(order_key="{account}")
    async def work(account: str, n: int) -> None:
        with inside.here(account, "all"):
            ran[account].append(n)
            await asyncio.sleep(0.002)

    # Jobs with a higher priority do not overtake: the order is that of the account, not of the queue.
    await app.aenqueue_many([work.using(priority=9 - n % 10).job("abc"[n % 3], n) for n in range(60)])
    async with app.working():
        await auntil(lambda: finished(connection) == 60)
    assert ran == {account: list(range(number, 60, 3)) for number, account in enumerate("abc")}
    assert [inside.most[account] for account in "abc"] == [1, 1, 1]
    assert inside.most["all"] > 1


@pytest.mark.slow
async def test_jobs_wait_while_the_first_of_their_order_key_is_retrying(
    app: Sereno, connection: psycopg.Connection
) -> None:
    ran: list[str] = []

    @app.task(order_key="{account}", retry=QUICK)
    async def work(ctx: Context, account: str, n: int) -> None:
        ran.append(f"{account}{n}")
        if (account, n) == ("a", 0) and ctx.attempt < 3:
            raise RuntimeError("not yet")

    await app.aenqueue_many([work.job(account, n) for n in range(4) for account in "ab"])
    async with app.working():
        await auntil(lambda: finished(connection) == 8)
    assert [name for name in ran if name[0] == "a"] == ["a0", "a0", "a0", "a1", "a2", "a3"]
    assert [name for name in ran if name[0] == "b"] == ["b0", "b1", "b2", "b3"]


@pytest.mark.slow
async def test_a_scheduled_first_job_blocks_only_its_own_order_key(app: Sereno, connection: psycopg.Connection) -> None:
    ran: list[str] = []

    @app.task(order_key="{account}")
    async def work(account: str) -> None:
        ran.append(account)

    first = await work.using(delay="1h").aenqueue("a")
    behind = await work.aenqueue("a")
    await work.aenqueue("b")
    async with app.working():
        await auntil(lambda: ran == ["b"])
        assert state(connection, behind.id) == "ready"
        await adrive(operations.delete(JobFilter(ids=[first.id])), app.database.arun)
        await auntil(lambda: state(connection, behind.id) == "succeeded")


@pytest.mark.slow
async def test_a_dead_job_does_not_block_its_order_key_by_default(app: Sereno, connection: psycopg.Connection) -> None:
    ran: list[str] = []

    @app.task(order_key="{account}", retry=Backoff(0))
    async def passes(account: str, n: int) -> None:
        ran.append(f"{account}{n}")
        if n == 0:
            raise RuntimeError("never")

    await app.aenqueue_many([passes.job("a", n) for n in range(3)])
    async with app.working():
        await auntil(lambda: finished(connection) == 3)
    assert ran == ["a0", "a1", "a2"]


@pytest.mark.slow
@pytest.mark.parametrize("freed_by", ["retry", "delete"])
async def test_a_blocking_dead_letter_is_resolved_by_retry_or_delete(
    app: Sereno, connection: psycopg.Connection, freed_by: str
) -> None:
    ran: list[str] = []
    is_fixed = False

    @app.task(order_key="{account}", dead_blocks=True, retry=Backoff(0))
    async def work(account: str, n: int) -> None:
        ran.append(f"{account}{n}")
        if (account, n) == ("a", 0) and not is_fixed:
            raise RuntimeError("never")

    made = await app.aenqueue_many([work.job(account, n) for n in range(3) for account in "ab"])
    async with app.working():
        await auntil(lambda: finished(connection) == 4)
        dead = made[0].id
        assert state(connection, dead) == "dead"
        # A later job of the key waits as well; a job of another key does not.
        late = (await app.aenqueue_many([work.job("a", 3), work.job("b", 3)]))[0]
        await auntil(lambda: finished(connection) == 5)
        assert state(connection, late.id) == "ready"
        is_fixed = True
        change = operations.retry if freed_by == "retry" else operations.delete
        await adrive(change(JobFilter(ids=[dead])), app.database.arun)
        await auntil(lambda: state(connection, late.id) == "succeeded")
    expected = ["a0", "a0", "a1", "a2", "a3"] if freed_by == "retry" else ["a0", "a1", "a2", "a3"]
    assert [name for name in ran if name[0] == "a"] == expected


@pytest.mark.slow
async def test_an_order_key_and_a_limit_apply_together(app: Sereno, connection: psycopg.Connection) -> None:
    inside = Inside()
    ran: dict[str, list[int]] = defaultdict(list)

    @app.task(order_key="{account}", concurrency=Limit(2), retry=QUICK)
    async def work(ctx: Context, account: str, n: int) -> None:
        with inside.here("all"):
            await asyncio.sleep(0.002)
            if n % 5 == 2 and ctx.attempt == 1:
                raise Retry(after="10ms")
            ran[account].append(n)

    await app.aenqueue_many([work.job(str(n % 4), n) for n in range(40)])
    async with app.working():
        await auntil(lambda: finished(connection) == 40)
    assert inside.most["all"] == 2
    assert ran == {str(key): list(range(key, 40, 4)) for key in range(4)}


@pytest.mark.slow
async def test_two_workers_keep_one_order(database_url: str, connection: psycopg.Connection) -> None:
    inside = Inside()
    ran: list[int] = []
    apps = [Sereno(database_url), Sereno(database_url)]
    for app in apps:

        @app.task(order_key="one", retry=QUICK)
        async def work(ctx: Context, n: int) -> None:
            with inside.here("one"):
                await asyncio.sleep(0.001)
                if n % 10 == 5 and ctx.attempt == 1:
                    raise RuntimeError("once")
                ran.append(n)

    await apps[0].aenqueue_many([work.job(n) for n in range(40)])
    async with apps[0].working(), apps[1].working():
        await auntil(lambda: finished(connection) == 40)
    assert ran == list(range(40))
    assert inside.most["one"] == 1
    assert one(connection, "select count(*) from sereno.lanes where has_work") == 0
