"""`@app.resource`: opened once in a process when a handler first needs it, closed when the worker stops."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import psycopg
import pytest

from sereno import ConfigurationError, Context, InvalidArguments, Sereno, Snooze, inject
from sereno.testing.kit import Kit
from sereno.worker.resources import OpenResources
from tests.facts import auntil, one
from tests.worker import resource_app
from tests.worker.resource_app import (
    Client,
    Session,
    Settings,
    batch_task,
    isolated_async_task,
    isolated_task,
    sync_task,
)

# Declared with a parameter for the resource and no default: type checkers do not know that `enqueue` takes none.
async_task: Any = resource_app.async_task
OPENED = ["settings open", "fast open", "session open"]
CLOSED = ["session closed", "fast closed", "settings closed"]


@pytest.fixture
def shared(database_url: str, connection: psycopg.Connection) -> Iterator[Sereno]:
    """Return the application of a module, because isolated processes import it."""
    made = resource_app.app
    made.override(database_url=database_url)
    made.database.forget_url()
    connection.execute("create table seen (number serial, pid integer, line text)")
    yield made
    made.close()


async def _run(app: Sereno, connection: psycopg.Connection, jobs: int) -> list[str]:
    """Run until all jobs have ended and the worker has stopped; return what was written."""
    async with app.working():
        await auntil(lambda: one(connection, "select count(*) from sereno.history") == jobs)
    await app.aclose()
    assert one(connection, "select count(*) from sereno.history where state <> 'succeeded'") == 0
    found: list[str] = one(connection, "select array_agg(line order by number) from seen")
    return found


async def test_handlers_share_resources_until_the_worker_stops(shared: Sereno, connection: psycopg.Connection) -> None:
    for number in range(3):
        await async_task.aenqueue(number)
    await batch_task.aenqueue(3)
    lines = await _run(shared, connection, jobs=4)
    assert lines[:3] == OPENED
    assert sorted(lines[3:7]) == [f"{number} has fast" for number in range(4)]
    assert lines[7:] == CLOSED


@pytest.mark.slow
async def test_sync_handlers_have_resources(shared: Sereno, connection: psycopg.Connection) -> None:
    await sync_task.aenqueue(1)
    assert await _run(shared, connection, jobs=1) == [
        *OPENED, "slow open", "1 has fast and slow", "slow closed", *CLOSED,
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    "task", [isolated_task, pytest.param(isolated_async_task, marks=pytest.mark.slow)], ids=lambda task: task.name
)
async def test_an_isolated_process_has_resources_of_its_own(
    shared: Sereno, connection: psycopg.Connection, task: Any
) -> None:
    await task.aenqueue(1)
    assert await _run(shared, connection, jobs=1) == [*OPENED, "1 has fast", *CLOSED]
    assert one(connection, "select count(distinct pid) from seen") == 1
    assert one(connection, "select min(pid) from seen") != os.getpid()


@pytest.mark.slow
async def test_concurrent_attempts_open_a_resource_once(app: Sereno, connection: psycopg.Connection) -> None:
    may_open, opened, used = asyncio.Event(), [], []

    @app.resource
    async def settings() -> AsyncIterator[Settings]:
        await may_open.wait()
        yield Settings()

    @app.resource
    async def client(settings: Settings) -> AsyncIterator[Client]:
        opened.append("open")
        yield Client("late", settings)
        opened.append("closed")

    @app.task
    async def work(number: int, client: Client = inject(client)) -> None:
        used.append(client)

    for number in range(5):
        await work.aenqueue(number)
    async with app.working() as worker:
        await auntil(lambda: len(worker.executor.running) == 5)
        may_open.set()
        await auntil(lambda: one(connection, "select count(*) from sereno.history") == 5)
    await app.aclose()
    assert opened == ["open", "closed"]
    assert len(used) == 5
    assert len(set(used)) == 1


@pytest.mark.slow
async def test_a_resource_that_fails_to_open_fails_the_attempt(app: Sereno, connection: psycopg.Connection) -> None:
    tries: list[int] = []

    @app.resource
    async def client() -> AsyncIterator[Client]:
        tries.append(1)
        if len(tries) == 1:
            raise OSError("connection refused")
        yield Client("works", Settings())

    @app.task(retry=0)
    async def work(client: Client = inject()) -> None:
        assert client.kind == "works"

    async with app.working():
        await work.aenqueue()
        await auntil(lambda: one(connection, "select count(*) from sereno.history") == 1)
        await work.aenqueue()
        await auntil(lambda: one(connection, "select count(*) from sereno.history") == 2)
    await app.aclose()
    assert one(connection, "select array_agg(state order by id) from sereno.history") == ["dead", "succeeded"]
    stored = one(connection, "select error_type || ': ' || error_message from sereno.history where state = 'dead'")
    assert stored == "ResourceUnavailable: resource client could not be opened: OSError: connection refused"


async def test_an_outcome_that_a_resource_raises_is_that_of_the_attempt(app: Sereno) -> None:
    @app.resource
    def client() -> Iterator[Client]:
        raise Snooze("10m")
        yield

    with pytest.raises(Snooze):
        await OpenResources({}).values({"client": client})


async def test_a_resource_that_hangs_while_it_closes_is_given_up(app: Sereno, caplog: pytest.LogCaptureFixture) -> None:
    @app.resource
    async def client() -> AsyncIterator[Client]:
        yield Client("hangs", Settings())
        await asyncio.Event().wait()

    opened = OpenResources({})
    await opened.values({"client": client})
    await opened.close(timeout=0.01)
    assert "a resource took longer than 0.01 s to close" in caplog.text


async def test_a_resource_that_does_not_close_does_not_stop_the_others(
    app: Sereno, connection: psycopg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    closed: list[str] = []

    @app.resource
    def settings() -> Iterator[Settings]:
        yield Settings()
        closed.append("settings")

    @app.resource
    async def client(settings: Settings) -> AsyncIterator[Client]:
        yield Client("bad", settings)
        raise OSError("already gone")

    @app.task
    async def work(client: Client = inject()) -> None: ...

    await work.aenqueue()
    async with app.working():
        await auntil(lambda: one(connection, "select count(*) from sereno.history") == 1)
    await app.aclose()
    assert closed == ["settings"]
    assert "resource client was not closed properly: already gone" in caplog.text


def test_a_resource_is_no_argument_of_the_job(app: Sereno) -> None:
    assert async_task.definition.arguments.names == sync_task.definition.arguments.names == ("number",)
    with pytest.raises(InvalidArguments, match="session"):
        async_task.job(number=1, session=None)


def test_a_task_is_called_with_resources_by_keyword(app: Sereno) -> None:
    @app.resource
    def client() -> Iterator[Client]:
        yield Client("real", Settings())

    @app.task
    def kind(client: Client, number: int, suffix: str = "") -> str:
        return f"{number} {client.kind}{suffix}"

    fake = Client("fake", Settings())
    call: Any = kind
    assert call(7, client=fake) == call(number=7, client=fake) == "7 fake"
    with pytest.raises(ConfigurationError, match="give its resource by keyword: client="):
        call(7)


async def test_the_test_kit_gives_other_values(shared: Sereno, connection: psycopg.Connection) -> None:
    kit = Kit(shared)
    fake = Client("fake", Settings())
    await async_task.aenqueue(1)
    with kit.override(resource_app.fast, fake):
        await kit.adrain()
    assert one(connection, "select array_agg(line order by number) from seen") == [
        "session open", "1 has fake", "session closed",
    ]  # fmt: skip
    assert shared.registry.resources.overrides == {}


# Declarations that are refused, each with its reason.


def _plain() -> Client: ...  # type: ignore[empty-body]  # never called
def _unannotated() -> Any:
    yield


def _text() -> Iterator[str]:
    yield "x"


def _itself(client: Client) -> Iterator[Client]:
    yield client


def _undeclared(session: Session) -> Iterator[Client]:
    yield session.client


def _argument(number: int) -> Iterator[Client]:
    yield Client(str(number), Settings())


REFUSED = {
    _plain: "_plain is not a generator function",
    _unannotated: "_unannotated: annotate what it yields",
    _text: "_text yields str, which arguments of jobs use too",
    _itself: "_itself: parameter client: .*Client: a resource takes itself: that is a cycle",
    _undeclared: "can only take resources that are declared above it",
    _argument: "can only take resources that are declared above it",
}


def test_wrong_resources_are_refused(app: Sereno, subtests: pytest.Subtests) -> None:
    for function, reason in REFUSED.items():
        with subtests.test(function=function.__name__), pytest.raises(ConfigurationError, match=reason):
            app.resource(function)  # type: ignore[call-overload]  # the point of the test
    assert not len(app.registry.resources)


def test_two_resources_of_one_type_must_be_named(app: Sereno) -> None:
    @app.resource
    def first() -> Iterator[Client]:
        yield Client("first", Settings())

    @app.resource
    def second() -> Iterator[Client]:
        yield Client("second", Settings())

    def unnamed(client: Client) -> None: ...
    def unknown(client: Annotated[Client, "third"]) -> None: ...
    def named(client: Annotated[Client, "second"], other: Client = inject(first)) -> None: ...
    def missing(session: Session = inject()) -> None: ...

    with pytest.raises(ConfigurationError, match="several resources yield Client: first, second; name one: Annotated"):
        app.task(unnamed)
    with pytest.raises(ConfigurationError, match="no resource named third yields Client; there are: first, second"):
        app.task(unknown)
    with pytest.raises(ConfigurationError, match="no resource yields Session"):
        app.task(missing)
    needs = app.task(named).definition.resources
    assert {name: resource.name for name, resource in needs.items()} == {"client": "second", "other": "first"}


def test_a_resource_is_declared_before_the_tasks_that_take_it(app: Sereno) -> None:
    @app.task
    def early(ctx: Context, client: Client) -> None: ...

    def late() -> Iterator[Client]:
        yield Client("late", Settings())

    with pytest.raises(ConfigurationError, match="task early takes a Client, and resource late"):
        app.resource(late)
