"""From Python, a database that sereno cannot use is an error of sereno that says what to do, as on the command line."""

import asyncio
import re
import socket
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from sereno import DatabaseUnavailable, Every, PermissionDenied, SchemaError, Sereno, SerenoError, in_app
from tests.jobs.enqueue.ways import ASYNC_METHODS, SYNC_METHODS


@dataclass
class Paid:
    order: int


def declare(url: str) -> tuple[Sereno, Any, Any]:
    app = Sereno(url, pool_size=1)

    @app.task
    def work(number: int) -> None: ...

    return app, work, app.event("order.paid", Paid, channels=[in_app])


def sync_calls(url: str) -> tuple[Sereno, Mapping[str, Callable[[], object]]]:
    app, work, paid = declare(url)
    return app, {
        "enqueue": lambda: work.enqueue(1),
        "enqueue with options": lambda: work.using(unique_key="a").enqueue(1),
        "enqueue_many": lambda: app.enqueue_many([work.job(1), work.job(2)]),
        "enqueue_many of a generator": lambda: app.enqueue_many(work.job(number) for number in range(3)),
        "jobs.get": lambda: app.jobs.get(1),
        "jobs.find": lambda: list(app.jobs.find("state:dead")),
        "jobs.find.count": lambda: app.jobs.find("state:dead").count(),
        "queues": lambda: app.queues.pause("default"),
        "schedules.upsert": lambda: app.schedules.upsert("hourly", work.job(1), Every("1h")),
        "schedules.list": app.schedules.list,
        "recipients": lambda: app.recipients.upsert("user:7", {}),
        "notify": lambda: paid.notify(Paid(1), to="user:7"),
        "declare": app.declare,
    }


def async_calls(url: str) -> tuple[Sereno, Mapping[str, Callable[[], Awaitable[object]]]]:
    app, work, paid = declare(url)

    async def found() -> list[object]:
        return [job async for job in app.jobs.find("state:dead")]

    return app, {
        "aenqueue": lambda: work.aenqueue(1),
        "aenqueue with options": lambda: work.using(unique_key="a").aenqueue(1),
        "aenqueue_many": lambda: app.aenqueue_many([work.job(1), work.job(2)]),
        "aenqueue_many of a generator": lambda: app.aenqueue_many(work.job(number) for number in range(3)),
        "jobs.aget": lambda: app.jobs.aget(1),
        "jobs.find": found,
        "schedules.aupsert": lambda: app.schedules.aupsert("hourly", work.job(1), Every("1h")),
        "recipients": lambda: app.recipients.aupsert("user:7", {}),
        "anotify": lambda: paid.anotify(Paid(1), to="user:7"),
        "adeclare": app.adeclare,
    }


def assert_explained(subtests: pytest.Subtests, url: str, kind: type[SerenoError], remedy: str) -> None:
    app, calls = sync_calls(url)
    for name, call in calls.items():
        with subtests.test(name), pytest.raises(kind, match=remedy):
            call()
    app.close()
    aapp, acalls = async_calls(url)

    async def all_fail() -> None:
        for name, call in acalls.items():
            with subtests.test(name), pytest.raises(kind, match=remedy):
                await call()
        await aapp.aclose()

    asyncio.run(all_fail())


@pytest.fixture
def stranger_url(database_url: str, connection: psycopg.Connection) -> Iterator[str]:
    """Return the address with a role that has no privileges."""
    role = f"stranger_{uuid.uuid4().hex[:12]}"
    connection.execute(f"create role {role} login")
    yield make_conninfo(database_url, user=role)
    connection.execute(f"drop role {role}")


@pytest.mark.slow
def test_a_missing_schema(empty_database_url: str, subtests: pytest.Subtests) -> None:
    assert_explained(subtests, empty_database_url, SchemaError, "the schema 'sereno' is missing.* run `sereno migrate`")


def test_a_missing_privilege(stranger_url: str, subtests: pytest.Subtests) -> None:
    remedy = "permission denied .*: connect with a role that has it; see `sereno migrate --roles print`"
    assert_explained(subtests, stranger_url, PermissionDenied, remedy)


def test_an_address_that_is_none(subtests: pytest.Subtests) -> None:
    for url in ("junk", "http://shop.example", "postgresql://%zz", "postgresql://h/x?foo=1"):
        remedy = "not a valid connection string.*; write postgresql://user@host/database"
        assert_explained(subtests, url, DatabaseUnavailable, remedy)


def test_a_server_that_does_not_answer(subtests: pytest.Subtests) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        remedy = re.escape(f"no connection to PostgreSQL at dbname=shop host=127.0.0.1 port={port}: ")
        assert_explained(subtests, f"postgresql://127.0.0.1:{port}/shop", DatabaseUnavailable, remedy)


@pytest.mark.slow
def test_a_missing_schema_on_a_connection_of_the_caller(empty_database_url: str, subtests: pytest.Subtests) -> None:
    app, work, paid = declare(empty_database_url)
    for name, opens in SYNC_METHODS.items():
        refused = pytest.raises(SchemaError, match="sereno migrate")
        with subtests.test(name, call="enqueue"), refused, opens(empty_database_url) as connection:
            work.using(connection).enqueue(1)
        refused = pytest.raises(SchemaError, match="sereno migrate")
        with subtests.test(name, call="notify"), refused, opens(empty_database_url) as connection:
            paid.notify(Paid(1), to="user:7", conn=connection)
    for name, aopens in ASYNC_METHODS.items():

        async def enqueue(aopens: Any = aopens) -> None:
            async with aopens(empty_database_url) as connection:
                await work.using(connection).aenqueue(1)

        with subtests.test(name, call="aenqueue"), pytest.raises(SchemaError, match="sereno migrate"):
            asyncio.run(enqueue())
    app.close()


def test_a_missing_privilege_on_a_connection_of_the_caller(stranger_url: str, subtests: pytest.Subtests) -> None:
    app, work, _ = declare(stranger_url)
    for name, opens in SYNC_METHODS.items():
        refused = pytest.raises(PermissionDenied, match="sereno migrate --roles print")
        with subtests.test(name), refused, opens(stranger_url) as connection:
            work.using(connection).enqueue(1)
    app.close()


def test_an_error_in_the_statement_of_a_handler_stays_as_it_is(app: Sereno) -> None:
    """A missing table of the user is nothing that sereno can explain."""
    with pytest.raises(psycopg.errors.UndefinedTable) as raised, app.database.connection() as connection:
        connection.execute("select from public.orders")
    assert not isinstance(raised.value, SerenoError)
