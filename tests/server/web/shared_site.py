"""One database, application and server for all tests of a module. For tests that only read: they see the same rows.

A module imports these fixtures in place of those of the same names, and fills the database in a fixture of its own with
the scope of a module. Tokens are the only rows that its tests may add.
"""

import psycopg
import pytest

from sereno import Sereno
from tests.server.api.conftest import Ask, Served

__all__ = ["app", "ask", "connection", "database_url", "served"]


@pytest.fixture(scope="module")
def database_url(shared_database_url: str) -> str:
    return shared_database_url


@pytest.fixture(scope="module")
def connection(shared_connection: psycopg.Connection) -> psycopg.Connection:
    return shared_connection


@pytest.fixture(scope="module")
def app(shared_app: Sereno) -> Sereno:
    return shared_app


@pytest.fixture(scope="module")
def served(shared_served: Served) -> Served:
    return shared_served


@pytest.fixture(scope="module")
def ask(shared_ask: Ask) -> Ask:
    return shared_ask
