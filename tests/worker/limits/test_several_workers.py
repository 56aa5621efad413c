"""Limits over several workers: never exceeded, and a worker that stops leaves nothing behind."""

import asyncio

import psycopg
import pytest

from sereno import Limit, Sereno
from tests.facts import auntil, one
from tests.worker.limits.limit_facts import Inside, finished, waiting


@pytest.mark.parametrize(
    "slots", [pytest.param(1, marks=pytest.mark.slow), 3, pytest.param(10, marks=pytest.mark.slow)]
)
async def test_two_workers_never_exceed_a_limit(database_url: str, connection: psycopg.Connection, slots: int) -> None:
    inside = Inside()
    apps = [Sereno(database_url), Sereno(database_url)]
    for app in apps:

        @app.task(concurrency=[Limit(slots, name="all"), Limit(2, key="{account}", name="each")])
        async def work(account: str) -> None:
            with inside.here(account, "all"):
                await asyncio.sleep(0.002)

    await apps[0].aenqueue_many([work.job(str(n % 8)) for n in range(100)])
    async with apps[0].working(), apps[1].working():
        await auntil(lambda: finished(connection) == 100)
        await auntil(lambda: one(connection, "select count(*) from sereno.lanes where has_work") == 0)
    assert min(slots, 2) <= inside.most["all"] <= slots
    assert max(inside.most[str(n)] for n in range(8)) <= 2


@pytest.mark.slow
async def test_two_workers_never_exceed_the_limit_of_a_queue(database_url: str, connection: psycopg.Connection) -> None:
    inside = Inside()
    apps = [Sereno(database_url), Sereno(database_url)]
    for app in apps:
        app.queue("narrow", concurrency=Limit(3))

        @app.task(queue="narrow")
        async def work(n: int) -> None:
            with inside.here("all"):
                await asyncio.sleep(0.002)

    await apps[0].aenqueue_many([work.job(n) for n in range(100)])
    async with apps[0].working(), apps[1].working():
        await auntil(lambda: finished(connection) == 100)
    assert inside.most["all"] == 3


@pytest.mark.slow
async def test_a_worker_that_stops_hands_over_freed_limiters(database_url: str, connection: psycopg.Connection) -> None:
    proceed = asyncio.Event()
    ran: list[tuple[int, int]] = []
    apps = [Sereno(database_url), Sereno(database_url)]
    for number, app in enumerate(apps):

        @app.task(concurrency=Limit(1))
        async def work(n: int, number: int = number) -> None:
            ran.append((number, n))
            await proceed.wait()

    async with apps[0].working() as first:
        await apps[0].aenqueue_many([work.job(n, number=0) for n in range(2)])
        await auntil(lambda: len(ran) == 1)
        await auntil(lambda: waiting(connection) == 1)
        async with apps[1].working() as second:
            await auntil(lambda: one(connection, "select idle from sereno.sessions where id = %s", second.session))
            # No worker checks the limiter by its due time: only a notified one continues.
            postpone = "update sereno.limiters set check_at = sereno.now() + interval '1 hour'"
            await asyncio.to_thread(connection.execute, postpone)
            first.stop()
            await asyncio.sleep(0)
            proceed.set()
            await auntil(lambda: finished(connection) == 2)
            rows = connection.execute("select session_id from sereno.history order by id").fetchall()
            assert rows == [(first.session,), (second.session,)]


@pytest.mark.slow
async def test_a_stopped_worker_releases_buffered_jobs_with_limits(
    database_url: str, connection: psycopg.Connection
) -> None:
    started = asyncio.Event()
    proceed = asyncio.Event()
    ran: list[int] = []
    apps = [Sereno(database_url, grace=0.1), Sereno(database_url)]
    for app in apps:

        @app.task(batch=100, concurrency=Limit(150))
        async def batch(items: list[int]) -> None:
            started.set()
            await proceed.wait()
            ran.extend(items)

    await apps[0].aenqueue_many([batch.job(n) for n in range(200)])
    async with apps[0].working({"default": 1}):
        await started.wait()
        await auntil(lambda: one(connection, "select count(*) from sereno.jobs where state = 'running'") > 100)
    rows = connection.execute("select distinct state, failures, crashes from sereno.jobs").fetchall()
    assert rows == [("ready", 0, 0)]
    proceed.set()
    async with apps[1].working():
        await auntil(lambda: finished(connection) == 200)
    assert sorted(ran) == list(range(200))
