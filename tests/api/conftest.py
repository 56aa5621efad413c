"""A real server on a real socket, and somebody who asks it."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
import uvicorn

from sereno import Sereno
from sereno.operations.tokens import create
from sereno.server import asgi
from tests.facts import until

Ask = Callable[..., httpx.Client]


class Served:
    """A server in a thread of its own."""

    def __init__(self, app: Sereno, **options: Any) -> None:
        config = uvicorn.Config(asgi(app, **options), host="127.0.0.1", port=0, log_level="error", lifespan="off")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=lambda: asyncio.run(self._server.serve()), daemon=True)
        self._thread.start()
        until(lambda: self._server.started)
        self.url = f"http://127.0.0.1:{self._server.servers[0].sockets[0].getsockname()[1]}"

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(30)


@pytest.fixture
def serve(app: Sereno) -> Iterator[Callable[..., Served]]:
    """Start one, with other options than usual."""
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
    """`ask("viewer")`, `ask("operator", tenant="r42")`: a client with a token of that kind; `ask(None)` has none."""
    clients: list[httpx.Client] = []

    def client(role: str | None = "admin", tenant: str | None = None) -> httpx.Client:
        headers = {}
        if role is not None:
            made = app.database.run(create(f"{role} {tenant} {len(clients)}", role, tenant=tenant, actor="test"))
            headers["Authorization"] = f"Bearer {made.secret}"
        clients.append(httpx.Client(base_url=f"{served.url}/api/v1", headers=headers, timeout=30))
        return clients[-1]

    yield client
    for each in clients:
        each.close()
