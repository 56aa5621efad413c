"""`@app.around`: generators around every attempt of async, sync, isolated and batch tasks."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from sereno import Context, Sereno
from sereno.errors import ConfigurationError
from tests.facts import auntil, one
from tests.worker import middleware_app
from tests.worker.middleware_app import async_task, batch_task, isolated_async_task, isolated_task, sync_task

TASKS = [async_task, sync_task, isolated_task, pytest.param(isolated_async_task, marks=pytest.mark.slow), batch_task]


@pytest.fixture
def app(database_url: str, connection: psycopg.Connection) -> Iterator[Sereno]:
    """Return the application of a module, because isolated processes import it."""
    made = middleware_app.app
    made.override(database_url=database_url)
    made.database.forget_url()
    connection.execute("create table seen (number serial, job bigint, line text)")
    yield made
    made.close()


# What a handler is told to do: the state of its job, and what the middlewares write after it has begun.
EXPECTED = {
    "nothing": ("succeeded", ["outer ends"]),
    "lookup": ("succeeded", ["inner ignores KeyError", "outer ends"]),
    "value": ("dead", ["outer sees Dead"]),
    "other": ("dead", ["outer sees OSError"]),
    "retry": ("dead", ["outer sees Retry"]),
}


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
async def test_middlewares_run_around_the_handler(app: Sereno, connection: psycopg.Connection, task: Any) -> None:
    jobs = {what: await task.aenqueue(what) for what in EXPECTED}
    async with app.working():
        await auntil(lambda: one(connection, "select count(*) from sereno.history") == len(EXPECTED))
    await app.aclose()
    for what, (state, lines) in EXPECTED.items():
        query = "select array_agg(line order by number) from seen where job = %s"
        assert one(connection, query, jobs[what].id) == ["outer begins", "handler", *lines]
        assert one(connection, "select state from sereno.history where id = %s", jobs[what].id) == state
    assert one(connection, "select reason from sereno.history where id = %s", jobs["value"].id) == "inner gives up"


async def test_an_error_of_a_middleware_fails_the_attempt(app: Sereno, connection: psycopg.Connection) -> None:
    other = Sereno(app.url)

    @other.around
    def broken(ctx: Context) -> Iterator[None]:
        raise LookupError("no configuration")
        yield

    @other.task(retry=0)
    async def never_called() -> None:
        connection.execute("insert into seen (line) values ('called')")

    job = await never_called.aenqueue()
    async with other.working():
        await auntil(lambda: one(connection, "select count(*) from sereno.history") == 1)
    await other.aclose()
    assert one(connection, "select error_message from sereno.history where id = %s", job.id) == "no configuration"
    assert one(connection, "select count(*) from seen") == 0


def test_a_function_that_does_not_yield_is_refused(app: Sereno) -> None:
    def plain(ctx: Context) -> None: ...

    async def awaited(ctx: Context) -> None: ...

    for function in (plain, awaited):
        with pytest.raises(ConfigurationError, match=f"{function.__name__} is not a generator function"):
            app.around(function)
    assert len(app.registry.middlewares) == 2


def test_internal_tasks_have_no_middlewares(app: Sereno) -> None:
    app.worker()
    internal = [task for task in app.registry if task.name.startswith("sereno.")]
    assert internal
    assert all(not app.registry.middlewares_of(task) for task in internal)
