"""Fixtures: one PostgreSQL server for a test run, and for each test a database that is copied from a template."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from hypothesis import settings

from sereno import Sereno
from tests.databases import DatabasePool
from tests.manual_worker import manual  # noqa: F401 - a fixture
from tests.shared_server import shared_server

# No deadline for an example: a busy machine must not fail a test.
settings.register_profile("sereno", deadline=None)
settings.load_profile("sereno")

# Directory of the programs of another PostgreSQL than the embedded one.
POSTGRES_BIN = os.environ.get("SERENO_TEST_POSTGRES_BIN")


@pytest.fixture(scope="session", autouse=True)
def _own_environment() -> None:
    """Delete the settings of the shell: the tests choose their databases. Ctrl-C works also in the background."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in list(os.environ):
        if name == "DATABASE_URL" or (name.startswith("SERENO_") and not name.startswith("SERENO_TEST_")):
            del os.environ[name]


@pytest.fixture(scope="session")
def server_url(worker_id: str) -> Iterator[str]:
    """Return the URL of one server for all processes of a test run."""
    with shared_server(Path(POSTGRES_BIN) if POSTGRES_BIN else None) as url:
        yield url


@pytest.fixture(scope="session")
def databases(server_url: str) -> Iterator[DatabasePool]:
    opened = DatabasePool(server_url)
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def template_of_today(databases: DatabasePool) -> Callable[[], str]:
    """Return a function that names a migrated database to copy: a new one each day, because partitions have dates."""
    return databases.template_of_today


@pytest.fixture(scope="module")
def template(template_of_today: Callable[[], str]) -> str:
    """Return the template for databases that the tests of a module share."""
    return template_of_today()


@pytest.fixture(scope="module")
def shared_database_url(databases: DatabasePool, template: str) -> Iterator[str]:
    """Return the URL of a migrated database that the tests of a module share."""
    database = databases.create(template)
    yield database.url
    databases.drop(database)


@pytest.fixture
def empty_database_url(databases: DatabasePool) -> Iterator[str]:
    """Return the URL of a database without a schema."""
    database = databases.create("template1")
    yield database.url
    databases.drop(database)


@pytest.fixture
def database_url(databases: DatabasePool, template_of_today: Callable[[], str]) -> Iterator[str]:
    """Return the URL of an empty migrated database that belongs to the test."""
    database = databases.take(template_of_today())
    yield database.url
    databases.give_back(database)


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
