"""Any exception of a handler settles its job and frees its slot."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from sereno import Backoff, Sereno
from sereno.jobs.handle import Job
from sereno.jobs.task_handle import Task
from tests.facts import auntil, one, state
from tests.worker.isolation import isolated_tasks
from tests.worker.isolation.isolated_tasks import EXITS

ONCE = Backoff(0)


async def assert_all_settle(app: Sereno, connection: psycopg.Connection, task: Task[Any, Any], is_sync: bool) -> None:
    """Run one job per exception in one slot: an exception that does not free the slot would block all others."""
    jobs = await enqueue_exits(app, task)
    async with app.working({"default": 1}):
        await auntil(lambda: one(connection, "select count(*) from sereno.jobs") == 0, timeout=60)
    assert_settled(connection, jobs, is_sync=is_sync)


async def enqueue_exits(app: Sereno, task: Task[Any, Any]) -> dict[str, Job[Any]]:
    """Enqueue one job per exception; return them by the name of the exception."""
    return dict(zip(EXITS, await app.aenqueue_many([task.job(name) for name in EXITS]), strict=True))


def assert_settled(connection: psycopg.Connection, jobs: dict[str, Job[Any]], *, is_sync: bool) -> None:
    assert {name: state(connection, job.id) for name, job in jobs.items()} == dict.fromkeys(EXITS, "dead")
    rows = connection.execute("select id, error_type, error_message, crashes, attempt from sereno.history").fetchall()
    found = {name: row[1:] for name, job in jobs.items() for row in rows if row[0] == job.id}
    expected = {name: (kind.__qualname__, name, 0, 1) for name, kind in EXITS.items()}
    if not is_sync:
        # Python converts StopIteration in coroutines.
        expected["stop"] = ("RuntimeError", "coroutine raised StopIteration", 0, 1)
    assert found == expected


@pytest.mark.slow
async def test_anything_raised_by_an_async_handler_settles_its_job(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task(retry=ONCE, timeout=None)
    async def fails(name: str) -> None:
        raise EXITS[name](name)

    await assert_all_settle(app, connection, fails, is_sync=False)


@pytest.mark.slow
async def test_anything_raised_by_a_sync_handler_settles_its_job(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task(retry=ONCE, timeout=None)
    def fails(name: str) -> None:
        raise EXITS[name](name)

    await assert_all_settle(app, connection, fails, is_sync=True)


@pytest.mark.slow
async def test_anything_raised_by_an_async_batch_settles_its_jobs(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task(batch=1, retry=ONCE, timeout=None)
    async def fails(names: list[str]) -> None:
        raise EXITS[names[0]](names[0])

    await assert_all_settle(app, connection, fails, is_sync=False)


@pytest.mark.slow
async def test_anything_raised_by_a_sync_batch_settles_its_jobs(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task(batch=1, retry=ONCE, timeout=None)
    def fails(names: list[str]) -> None:
        raise EXITS[names[0]](names[0])

    await assert_all_settle(app, connection, fails, is_sync=True)


@pytest.mark.slow
async def test_anything_raised_by_an_isolated_handler_settles_its_job(
    app: Sereno, connection: psycopg.Connection
) -> None:
    """In a coroutine, in a thread, and in an asyncio task that the handler awaits."""
    isolated_tasks.adopt(app)
    in_coroutines = await enqueue_exits(app, isolated_tasks.raises_in_a_coroutine)
    in_threads = await enqueue_exits(app, isolated_tasks.raises_in_a_thread)
    (child,) = await app.aenqueue_many([isolated_tasks.child_exits.job("exit")])
    async with app.working({"default": 1}):
        await auntil(lambda: one(connection, "select count(*) from sereno.jobs") == 0, timeout=60)
    assert_settled(connection, in_coroutines, is_sync=False)
    assert_settled(connection, in_threads, is_sync=True)
    found = connection.execute(
        "select state, error_type, failures, crashes from sereno.history where id = %s", [child.id]
    ).fetchone()
    assert found == ("dead", "SystemExit", 1, 0)


async def test_a_batch_that_returns_an_invalid_iterable_fails_its_jobs(
    app: Sereno, connection: psycopg.Connection
) -> None:
    def broken() -> Iterator[None]:
        yield None
        raise isolated_tasks.Panic

    def endless() -> Iterator[None]:
        while True:
            yield None

    results: dict[str, Callable[[], Any]] = {"broken": broken, "endless": endless, "number": lambda: 7}

    @app.task(batch=1, retry=ONCE)
    async def returns(names: list[str]) -> Any:
        return results[names[0]]()

    jobs = await app.aenqueue_many([returns.job(name) for name in results])
    async with app.working():
        await auntil(lambda: {state(connection, job.id) for job in jobs} == {"dead"})


class Proxy:
    """Behaves like a proxy of a web framework outside a request."""

    @property  # type: ignore[misc]  # the point
    def __class__(self) -> Any:
        raise RuntimeError("outside of a request")


async def test_returning_a_value_whose_class_raises_is_a_success(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task
    async def returns_a_proxy() -> Any:
        return Proxy()

    job = await returns_a_proxy.aenqueue()
    async with app.working():
        await auntil(lambda: state(connection, job.id) == "succeeded")


async def test_a_discarded_coroutine_settles_nothing(app: Sereno, connection: psycopg.Connection) -> None:
    begun = asyncio.Event()

    @app.task
    async def waits() -> None:
        begun.set()
        await asyncio.Event().wait()

    # When the worker stops, it waits for this job no longer than that.
    app.override(grace=0.1)
    job = await waits.aenqueue()
    async with app.working() as worker:
        await begun.wait()
        running = worker.executor.running[job.id]
        assert running.task is not None
        coroutine: Any = running.task.get_coro()
        before = worker.executor.ended_jobs
        # As the interpreter does with coroutines of a closed loop.
        await asyncio.to_thread(_discard, coroutine)
        assert worker.executor.ended_jobs == before
        assert job.id in worker.executor.running


def _discard(coroutine: Any) -> None:
    coroutine.close()
