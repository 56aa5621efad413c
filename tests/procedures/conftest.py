"""A schema of reports, and a role that can call what is in it and nothing else."""

import uuid
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, NamedTuple

import psycopg
import pytest
from psycopg import conninfo, sql

from sereno import Sereno
from sereno.procedures import operations as procedures
from sereno.procedures.rows import AllowedProcedure
from tests.facts import auntil, state

PASSWORD = "only-for-procedures"  # noqa: S105 - of a role that lives as long as its test


class Login(NamedTuple):
    """A database role and the address with which it connects."""

    name: str
    url: str


@pytest.fixture
def login(database_url: str, connection: psycopg.Connection) -> Iterator[Login]:
    """The role for procedures: it has usage on the schema `reporting` and no other privileges."""
    name = f"caller_{uuid.uuid4().hex[:12]}"
    role, schema = sql.Identifier(name), sql.Identifier("reporting")
    connection.execute(sql.SQL("create role {} login password {}").format(role, sql.Literal(PASSWORD)))
    connection.execute(sql.SQL("create schema {}").format(schema))
    connection.execute(sql.SQL("grant usage on schema {} to {}").format(schema, role))
    yield Login(name, conninfo.make_conninfo(database_url, user=name, password=PASSWORD))
    connection.execute(sql.SQL("drop owned by {}").format(role))
    connection.execute(sql.SQL("drop role {}").format(role))


@pytest.fixture
def reporting(database_url: str, login: Login) -> Iterator[Sereno]:
    """An application that calls its procedures with that role."""
    made = Sereno(database_url, procedure_url=login.url)
    yield made
    made.close()


Allow = Callable[..., Awaitable[AllowedProcedure]]


@pytest.fixture
def allow(reporting: Sereno) -> Allow:
    """Allow a procedure as an operator does, with the options of the command."""

    async def allowed(name: str, **options: Any) -> AllowedProcedure:
        return await allow_on(reporting, name, **options)

    return allowed


async def allow_on(app: Sereno, name: str, *, target: str = "here", **options: Any) -> AllowedProcedure:
    board = procedures.ProcedureOperations(app.settings, lambda: app.database.url)
    signature = await board.resolve(target, name, params=options.pop("params", None), kind=options.pop("kind", None))
    return await app.database.arun(procedures.allow(target, signature, actor="maria", **options))


async def run(app: Sereno, connection: psycopg.Connection, job: int) -> str:
    """Run a worker until the job has ended. Return its state."""
    (found,) = await run_all(app, connection, [job])
    return found


async def run_all(app: Sereno, connection: psycopg.Connection, jobs: Sequence[int]) -> list[str]:
    """Run a worker until these jobs have ended. Return their states."""
    async with app.working():
        return [await ended(connection, job) for job in jobs]


async def ended(connection: psycopg.Connection, job: int) -> str:
    """Wait until the job has ended, while a worker runs. Return its state."""
    await auntil(lambda: state(connection, job) in ("succeeded", "dead", "cancelled"))
    found = state(connection, job)
    assert found is not None
    return found


def reason(connection: psycopg.Connection, job: int) -> str:
    row = connection.execute("select reason, error_message from sereno.history where id = %s", [job]).fetchone()
    assert row is not None
    return " ".join(str(part) for part in row if part)


def result(connection: psycopg.Connection, job: int) -> dict[str, Any]:
    """Return the result of its newest call."""
    row = connection.execute(
        "select result from sereno.procedure_runs where job_id = %s order by attempt desc", [job]
    ).fetchone()
    assert row is not None
    found: dict[str, Any] = row[0]
    return found
