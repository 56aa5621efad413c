"""A real server with its API, and clients of the SDK whose tools call it."""

import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from mcp import Client

from sereno import Sereno
from sereno.access.operations import create
from sereno.mcp.api_client import Caller
from sereno.mcp.server import http_client, mcp_server
from tests.server.api.conftest import Served

NewToken = Callable[..., str]


@dataclass
class Assistant:
    """A client that calls tools; a failed call raises AssertionError with what it said."""

    client: Client

    async def call(self, tool: str, **arguments: Any) -> Any:
        return msgspec.json.decode(await self.text(tool, **arguments))

    async def text(self, tool: str, **arguments: Any) -> str:
        result = await self.client.call_tool(tool, arguments)
        (content,) = result.content
        assert content.type == "text"
        assert not result.is_error, content.text
        return content.text

    async def refused(self, tool: str, **arguments: Any) -> str:
        result = await self.client.call_tool(tool, arguments)
        (content,) = result.content
        assert content.type == "text"
        assert result.is_error, content.text
        return content.text


Connect = Callable[..., AbstractAsyncContextManager[Assistant]]


@pytest.fixture
def served(app: Sereno) -> Iterator[Served]:
    started = Served(app)
    yield started
    started.stop()


@pytest.fixture
def new_token(app: Sereno) -> NewToken:
    """Return a function that creates a token: `new_token("operator")`; the first is named `operator 1`."""
    numbers = itertools.count(1)

    def made(role: str = "viewer", tenant: str | None = None) -> str:
        return app.database.run(create(f"{role} {next(numbers)}", role, tenant=tenant, actor="test")).secret

    return made


@pytest.fixture
def connect(served: Served, new_token: NewToken) -> Connect:
    """Return a function that connects a client to the tools, with a token of this role."""

    @asynccontextmanager
    async def connected(
        role: str = "viewer", *, tenant: str | None = None, allow_writes: bool = False
    ) -> AsyncIterator[Assistant]:
        caller = Caller(new_token(role, tenant))
        async with http_client() as http:
            server = mcp_server(served.url, http, lambda _: caller, allow_writes=allow_writes)
            async with Client(server) as client:
                yield Assistant(client)

    return connected
