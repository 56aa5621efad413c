"""One database, application and server for all tests of a module. For tests that only read: they see the same rows.

A module imports these fixtures in place of those of the same names, and fills the database in a fixture of its own with
the scope of a module. Tokens are the only rows that its tests may add.
"""

from collections.abc import Iterator

import httpx
import psycopg
import pytest

from sereno import Sereno
from sereno.access.operations import create
from tests.plain_http import NO_CERTIFICATES
from tests.server.api.conftest import Ask, Served

__all__ = ["app", "ask", "connection", "database_url", "served"]


@pytest.fixture(scope="module")
def database_url(shared_database_url: str) -> str:
    return shared_database_url


@pytest.fixture(scope="module")
def connection(database_url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database_url, autocommit=True) as opened:
        yield opened


@pytest.fixture(scope="module")
def app(database_url: str) -> Iterator[Sereno]:
    made = Sereno(database_url)
    yield made
    made.close()


@pytest.fixture(scope="module")
def served(app: Sereno) -> Iterator[Served]:
    running = Served(app)
    yield running
    running.stop()


@pytest.fixture(scope="module")
def ask(app: Sereno, served: Served) -> Iterator[Ask]:
    """`ask("operator", tenant="r42")` returns a client with such a token, the same one for each such user."""
    clients: dict[tuple[str | None, str | None], httpx.Client] = {}

    def client(role: str | None = "admin", tenant: str | None = None) -> httpx.Client:
        if (role, tenant) not in clients:
            headers = {}
            if role is not None:
                made = app.database.run(create(f"{role} {tenant} of the module", role, tenant=tenant, actor="test"))
                headers["Authorization"] = f"Bearer {made.secret}"
            clients[role, tenant] = httpx.Client(headers=headers, timeout=30, verify=NO_CERTIFICATES)
        clients[role, tenant].base_url = httpx.URL(f"{served.url}/api/v1")
        return clients[role, tenant]

    yield client
    for each in clients.values():
        each.close()
