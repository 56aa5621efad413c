"""A real PostgreSQL for every test that touches the store: one server a run, one database a test, from a template."""

import os
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path

import psycopg
import pytest
from hypothesis import settings

from sereno import Sereno
from sereno.database.migrate import migrate
from tests.facts import PATIENCE, one
from tests.manual_worker import manual  # noqa: F401 - a fixture
from tests.shared_server import shared_server

# A machine that is busy for a moment is no reason to fail.
settings.register_profile("house", deadline=None)
settings.load_profile("house")

# Another PostgreSQL than the embedded one: the directory of its programs.
POSTGRES_BIN = os.environ.get("SERENO_TEST_POSTGRES_BIN")


@pytest.fixture(scope="session", autouse=True)
def _own_environment() -> None:
    """The tests choose their databases; what the shell says must not leak in."""
    for name in list(os.environ):
        if name == "DATABASE_URL" or (name.startswith("SERENO_") and not name.startswith("SERENO_TEST_")):
            del os.environ[name]


@pytest.fixture(scope="session")
def server_url(worker_id: str) -> Iterator[str]:
    """One server for all processes of a test run."""
    with shared_server(Path(POSTGRES_BIN) if POSTGRES_BIN else None) as url:
        yield url


def _named(url: str, database: str) -> str:
    return url.replace("/postgres?", f"/{database}?", 1)


@pytest.fixture(scope="session")
def template_of_today(server_url: str) -> Iterator[Callable[[], str]]:
    """Gives a migrated database to be copied. Its partitions reach so many days ahead: the next day needs another."""
    made: dict[date, str] = {}
    with psycopg.connect(server_url, autocommit=True) as connection:

        def of_today() -> str:
            today: date = one(connection, "select (now() at time zone 'UTC')::date")
            if today not in made:
                name = f"template_{uuid.uuid4().hex[:12]}"
                connection.execute(f"create database {name}")
                with psycopg.connect(_named(server_url, name), autocommit=True) as inside:
                    migrate(inside)
                made[today] = name
            return made[today]

        yield of_today
        for name in made.values():
            connection.execute(f"drop database {name} with (force)")


@pytest.fixture(scope="module")
def template(template_of_today: Callable[[], str]) -> str:
    """For databases that the tests of a module share."""
    return template_of_today()


@pytest.fixture
def empty_database_url(server_url: str) -> Iterator[str]:
    """A database without a schema."""
    yield from _database(server_url, "template1")


@pytest.fixture
def database_url(server_url: str, template_of_today: Callable[[], str]) -> Iterator[str]:
    """A migrated database of the test's own."""
    yield from _database(server_url, template_of_today())


def _database(server_url: str, template: str) -> Iterator[str]:
    name = f"test_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(server_url, autocommit=True) as connection:
        # With fsync off, copying files is cheaper than writing each page to the log.
        connection.execute(f"create database {name} template {template} strategy file_copy")
        yield _named(server_url, name)
        _drop(connection, name)


def _drop(connection: psycopg.Connection, name: str) -> None:
    """Send everybody home and see them off first: where somebody is left, PostgreSQL looks again after 0.1 s only."""
    there = "select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = %s"
    end = time.monotonic() + PATIENCE
    while connection.execute(there, [name]).fetchone() != (0,) and time.monotonic() < end:
        time.sleep(0.001)
    connection.execute(f"drop database {name} with (force)")


@pytest.fixture
def connection(database_url: str) -> Iterator[psycopg.Connection]:
    """A plain connection to look with."""
    with psycopg.connect(database_url, autocommit=True) as opened:
        yield opened


@pytest.fixture
def app(database_url: str) -> Iterator[Sereno]:
    """An application without tasks, on a database of the test's own."""
    made = Sereno(database_url)
    yield made
    made.close()
