"""Fair keys with a live worker: a key with few jobs does not wait for a key with many."""

import asyncio

import psycopg
import pytest

from sereno import Sereno
from sereno.database.statement import run
from sereno.jobs.limits.store import weigh
from tests.facts import auntil, one
from tests.worker.limits.limit_facts import finished


@pytest.mark.slow
@pytest.mark.parametrize("slots", [1, pytest.param(10, marks=pytest.mark.slow)])
async def test_one_job_does_not_wait_for_two_thousand_of_another_fair_key(
    app: Sereno, connection: psycopg.Connection, slots: int
) -> None:
    starts: list[str] = []

    @app.task(fair_key="{customer}")
    async def work(customer: str) -> None:
        starts.append(customer)
        await asyncio.sleep(0.001)

    await app.aenqueue_many([work.job("large") for _ in range(2000)])
    async with app.working({"default": slots}):
        await auntil(lambda: len(starts) > 50)
        await work.aenqueue("small")
        before = len(starts)
        await auntil(lambda: "small" in starts)
    # Jobs that were claimed ahead or started before the claim saw it come first; the backlog does not.
    assert starts.index("small") - before < 300


async def test_fair_keys_take_turns(app: Sereno, connection: psycopg.Connection) -> None:
    starts: list[str] = []

    @app.task(fair_key="{customer}")
    async def work(customer: str) -> None:
        starts.append(customer)

    await app.aenqueue_many([work.job(customer) for customer in "abcde" for _ in range(50)])
    async with app.working({"default": 1}):
        await auntil(lambda: finished(connection) == 250)
    among_first = [starts[:100].count(customer) for customer in "abcde"]
    assert min(among_first) >= 10, among_first


@pytest.mark.slow
async def test_weights_of_three_to_one_give_three_starts_to_one(app: Sereno, connection: psycopg.Connection) -> None:
    starts: list[str] = []

    @app.task(fair_key="{customer}")
    async def work(customer: str) -> None:
        starts.append(customer)
        await asyncio.sleep(0.001)

    run(connection, weigh("heavy", 3.0, "me"))
    await app.aenqueue_many([work.job(customer) for customer in ("light", "heavy") for _ in range(600)])
    async with app.working({"default": 2}):
        await auntil(lambda: len(starts) >= 500)
    heavy = starts[:400].count("heavy")
    assert 260 <= heavy <= 340, heavy


@pytest.mark.slow
async def test_priorities_apply_within_a_fair_key(app: Sereno, connection: psycopg.Connection) -> None:
    starts: list[tuple[str, int]] = []

    @app.task(fair_key="{customer}")
    async def work(customer: str, priority: int) -> None:
        starts.append((customer, priority))

    await app.aenqueue_many(
        [work.using(priority=p).job(customer, p) for p in (9, 5, 0) for customer in "ab" for _ in range(5)]
    )
    async with app.working({"default": 1}):
        await auntil(lambda: finished(connection) == 30)
    for customer in "ab":
        found = [priority for name, priority in starts if name == customer]
        assert found == sorted(found), found


@pytest.mark.slow
async def test_a_fair_key_of_a_queue_applies_to_all_its_tasks(app: Sereno, connection: psycopg.Connection) -> None:
    starts: list[str] = []
    app.queue("shared", fair_key="{tenant}")

    @app.task(queue="shared")
    async def one_task(name: str) -> None:
        starts.append(name)
        await asyncio.sleep(0.001)

    @app.task(queue="shared")
    async def other_task(name: str) -> None:
        starts.append(name)
        await asyncio.sleep(0.001)

    await app.aenqueue_many([one_task.using(tenant="large").job("large") for _ in range(1000)])
    await app.aenqueue_many([other_task.using(tenant="small").job("small") for _ in range(20)])
    async with app.working({"shared": 2}):
        await auntil(lambda: starts.count("small") == 20)
        assert one(connection, "select count(*) from sereno.jobs where state = 'ready'") > 500
