"""A real server on a real socket, and HTTP clients for it."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import httpx
import psycopg
import pytest

from sereno import Sereno
from sereno.access.operations import create
from sereno.server import asgi
from tests.databases import DatabasePool
from tests.plain_http import NO_CERTIFICATES
from tests.server.api.adapters import known_types
from tests.serving import Serving

Ask = Callable[..., httpx.Client]
Document = dict[str, Any]
# Options of one request to a server of the test.
PLAIN: dict[str, Any] = {"timeout": 30, "trust_env": False, "verify": NO_CERTIFICATES}


class Served(Serving):
    """A running server of an application."""

    def __init__(self, app: Sereno, **options: Any) -> None:
        with known_types():
            inside = asgi(app, **options)
        super().__init__(inside, log_level="error")


@pytest.fixture
def serve(app: Sereno) -> Iterator[Callable[..., Served]]:
    """Return a function that starts a server with the given options."""
    started: list[Served] = []

    def start(**options: Any) -> Served:
        started.append(Served(app, **options))
        return started[-1]

    yield start
    for served in started:
        served.stop()


@pytest.fixture
def served(serve: Callable[..., Served]) -> Served:
    return serve()


@pytest.fixture
def ask(app: Sereno, served: Served) -> Iterator[Ask]:
    """`ask("operator", tenant="r42")` returns a client with such a token; the client of `ask(None)` has none."""
    with clients_of(app, served) as client:
        yield client


@contextmanager
def clients_of(app: Sereno, served: Served) -> Iterator[Ask]:
    clients: list[httpx.Client] = []

    def client(role: str | None = "admin", tenant: str | None = None) -> httpx.Client:
        headers = {}
        if role is not None:
            made = app.database.run(create(f"{role} {tenant} {len(clients)}", role, tenant=tenant, actor="test"))
            headers["Authorization"] = f"Bearer {made.secret}"
        url = f"{served.url}/api/v1"
        clients.append(httpx.Client(base_url=url, headers=headers, timeout=30, verify=NO_CERTIFICATES))
        return clients[-1]

    yield client
    for each in clients:
        each.close()


@pytest.fixture(scope="session")
def document() -> Document:
    """Return the OpenAPI document. It is the same for every server, and takes a second to build."""
    app = Sereno("postgresql://127.0.0.1:1/nowhere")
    served = Served(app)
    try:
        found: Document = httpx.get(f"{served.url}/api/v1/openapi.json", **PLAIN).json()
    finally:
        served.stop()
        app.close()
    return found


# For requests that are refused or only read an empty database: one server for the whole run.


@pytest.fixture(scope="session")
def bare_app(databases: DatabasePool) -> Iterator[Sereno]:
    with databases.copy(databases.template_of_today()) as url, closing(Sereno(url)) as made:
        yield made


@pytest.fixture(scope="session")
def bare_served(bare_app: Sereno) -> Iterator[Served]:
    with _serving(bare_app) as served:
        yield served


@pytest.fixture(scope="session")
def bare_ask(bare_app: Sereno, bare_served: Served) -> Iterator[Ask]:
    with clients_of(bare_app, bare_served) as client:
        yield client


# For tests of a module that only read, or whose changes no other test of the module can see: they share one server.


@pytest.fixture(scope="module")
def shared_connection(shared_database_url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(shared_database_url, autocommit=True) as opened:
        yield opened


@pytest.fixture(scope="module")
def shared_app(shared_database_url: str) -> Iterator[Sereno]:
    with closing(Sereno(shared_database_url)) as made:
        yield made


@pytest.fixture(scope="module")
def shared_served(shared_app: Sereno) -> Iterator[Served]:
    with _serving(shared_app) as served:
        yield served


@pytest.fixture(scope="module")
def shared_ask(shared_app: Sereno, shared_served: Served) -> Iterator[Ask]:
    with clients_of(shared_app, shared_served) as client:
        yield client


@contextmanager
def _serving(app: Sereno) -> Iterator[Served]:
    served = Served(app)
    yield served
    served.stop()
