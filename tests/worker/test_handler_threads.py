"""Calls of sync handlers reach a thread, none waits behind a long one, and every result returns."""

import asyncio
import threading
from collections.abc import AsyncIterator

import psycopg
import pytest

from sereno import Sereno
from sereno.worker.handler_threads import HandlerThreads, RaisedError
from tests.facts import auntil, one

THREADS = 5


@pytest.fixture
async def threads() -> AsyncIterator[HandlerThreads]:
    threads = HandlerThreads(THREADS)
    yield threads
    threads.close()


async def _have_been_short(threads: HandlerThreads) -> None:
    """Run short calls until one thread is woken for several of them."""
    for _ in range(200):
        await threads.start(lambda: None).result()


async def test_a_call_returns_its_result_or_what_it_raised(threads: HandlerThreads) -> None:
    def stop() -> None:
        raise SystemExit(3)

    assert await threads.start(lambda: 7).result() == 7
    raised = await threads.start(stop).result()
    assert isinstance(raised, RaisedError)
    assert isinstance(raised.error, SystemExit)


async def test_every_call_of_a_burst_returns_its_own_result(threads: HandlerThreads) -> None:
    await _have_been_short(threads)
    calls = [threads.start(lambda number=number: number) for number in range(2000)]  # type: ignore[misc]  # bound now
    assert [await call.result() for call in calls] == list(range(2000))


async def test_calls_that_wait_for_each_other_all_start(threads: HandlerThreads) -> None:
    """Also after short calls, when one thread is woken for all of them."""
    await _have_been_short(threads)
    meet = threading.Barrier(THREADS, timeout=30)
    calls = [threads.start(meet.wait) for _ in range(THREADS)]
    assert sorted([await call.result() for call in calls]) == list(range(THREADS))


async def test_a_call_can_be_awaited_again_after_a_cancellation(threads: HandlerThreads) -> None:
    may_end = threading.Event()
    call = threads.start(lambda: may_end.wait(30))
    waiting = asyncio.create_task(call.result())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    may_end.set()
    assert await call.result() is True


async def test_a_call_that_is_dropped_before_its_start_never_runs() -> None:
    threads = HandlerThreads(1)
    may_end, has_run = threading.Event(), threading.Event()
    running = threads.start(lambda: may_end.wait(30))
    dropped, closed = threads.start(has_run.set), threads.start(has_run.set)
    dropped.drop()
    threads.close()
    may_end.set()
    assert await running.result() is True
    for call in (dropped, closed):
        with pytest.raises(asyncio.CancelledError):
            await call.result()
    assert not has_run.is_set()


@pytest.mark.slow
async def test_a_long_sync_handler_delays_no_other_job(app: Sereno, connection: psycopg.Connection) -> None:
    may_end = threading.Event()

    @app.task
    def short() -> None: ...

    @app.task
    def long() -> None:
        may_end.wait(60)

    async with app.working({"default": 4}):
        await app.aenqueue_many([short.job() for _ in range(500)])
        await app.aenqueue_many([*[long.job() for _ in range(3)], *[short.job() for _ in range(500)]])
        await auntil(lambda: one(connection, "select count(*) from sereno.history where task = 'short'") == 1000)
        assert one(connection, "select count(*) from sereno.jobs where task = 'long'") == 3
        may_end.set()
        await auntil(lambda: one(connection, "select count(*) from sereno.jobs") == 0)
