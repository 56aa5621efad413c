"""Fixtures: one PostgreSQL server for a test run, and for each test a database that is copied from a template."""

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
from tests.facts import TIMEOUT, one
from tests.manual_worker import manual  # noqa: F401 - a fixture
from tests.shared_server import shared_server

# No deadline for an example: a busy machine must not fail a test.
settings.register_profile("sereno", deadline=None)
settings.load_profile("sereno")

# Directory of the programs of another PostgreSQL than the embedded one.
POSTGRES_BIN = os.environ.get("SERENO_TEST_POSTGRES_BIN")


@pytest.fixture(scope="session", autouse=True)
def _own_environment() -> None:
    """Delete the settings of the shell: the tests choose their databases."""
    for name in list(os.environ):
        if name == "DATABASE_URL" or (name.startswith("SERENO_") and not name.startswith("SERENO_TEST_")):
            del os.environ[name]


@pytest.fixture(scope="session")
def server_url(worker_id: str) -> Iterator[str]:
    """Return the URL of one server for all processes of a test run."""
    with shared_server(Path(POSTGRES_BIN) if POSTGRES_BIN else None) as url:
        yield url


def _named(url: str, database: str) -> str:
    return url.replace("/postgres?", f"/{database}?", 1)


@pytest.fixture(scope="session")
def template_of_today(server_url: str) -> Iterator[Callable[[], str]]:
    """Return a function that names a migrated database to copy: a new one each day, because partitions have dates."""
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
    """Return the template for databases that the tests of a module share."""
    return template_of_today()


@pytest.fixture
def empty_database_url(server_url: str) -> Iterator[str]:
    """Return the URL of a database without a schema."""
    yield from _database(server_url, "template1")


@pytest.fixture
def database_url(server_url: str, template_of_today: Callable[[], str]) -> Iterator[str]:
    """Return the URL of a migrated database that belongs to the test."""
    yield from _database(server_url, template_of_today())


def _database(server_url: str, template: str) -> Iterator[str]:
    name = f"test_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(server_url, autocommit=True) as connection:
        # With fsync off, copying files is cheaper than writing each page to the log.
        connection.execute(f"create database {name} template {template} strategy file_copy")
        yield _named(server_url, name)
        _drop(connection, name)


def _drop(connection: psycopg.Connection, name: str) -> None:
    """Terminate all connections first: while one is left, PostgreSQL checks again only after 0.1 s."""
    terminate = "select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = %s"
    end = time.monotonic() + TIMEOUT
    while connection.execute(terminate, [name]).fetchone() != (0,) and time.monotonic() < end:
        time.sleep(0.001)
    connection.execute(f"drop database {name} with (force)")


@pytest.fixture
def connection(database_url: str) -> Iterator[psycopg.Connection]:
    """Return a plain connection for the queries of the test."""
    with psycopg.connect(database_url, autocommit=True) as opened:
        yield opened


@pytest.fixture
def app(database_url: str) -> Iterator[Sereno]:
    """Return an application without tasks, on the database of the test."""
    made = Sereno(database_url)
    yield made
    made.close()
