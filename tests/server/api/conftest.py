"""A real server on a real socket, and HTTP clients for it."""

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from sereno import Sereno
from sereno.access.operations import create
from sereno.server import asgi
from tests.plain_http import NO_CERTIFICATES
from tests.server.api.adapters import known_types
from tests.serving import Serving

Ask = Callable[..., httpx.Client]


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
