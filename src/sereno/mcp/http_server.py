"""The MCP server over HTTP. Every request carries the token of its own user, and is made to the API with it."""

import asyncio
import re
import signal
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

import uvicorn
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.transport_security import TransportSecuritySettings
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from sereno.access.identity import token_hash
from sereno.mcp.api_client import APIClient, Caller
from sereno.mcp.server import http_client, mcp_server

LOCAL = ("127.0.0.1", "localhost", "[::1]")
# Bytes of a request: the arguments of one call.
LARGEST_REQUEST = 256 * 1024
# Clients at once; each makes one or two requests to the API at a time.
MOST_CONNECTIONS = 64
# Seconds that open requests get when the server stops.
ENDING_SECONDS = 10
_BEARER = re.compile(r"[Bb]earer +(\S+)")


class HTTPServer(uvicorn.Server):
    """Serves until `should_exit`; the signals are those of the command."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class TokenRequired:
    """Refuses requests without a token that the API accepts, before anything else of them is read."""

    def __init__(self, inside: ASGIApp, api: APIClient) -> None:
        self._inside = inside
        self._api = api

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status = HTTPStatus.OK if scope["type"] != "http" else await self._status(Request(scope))
        if status == HTTPStatus.OK:
            await self._inside(scope, receive, send)
        elif status == HTTPStatus.UNAUTHORIZED:
            text = "send a valid token of sereno: Authorization: Bearer srn_…\n"
            await PlainTextResponse(text, status, {"WWW-Authenticate": "Bearer"})(scope, receive, send)
        else:
            text = "sereno server does not respond as it should\n"
            await PlainTextResponse(text, HTTPStatus.SERVICE_UNAVAILABLE, {"Retry-After": "1"})(scope, receive, send)

    async def _status(self, request: Request) -> int:
        caller = _caller_of(request)
        return HTTPStatus.UNAUTHORIZED if caller is None else await self._api.status(caller)


async def serve_http(
    url: str, listener: socket.socket, hosts: Sequence[str], protocol: type[asyncio.Protocol], *, allow_writes: bool
) -> None:
    """Serve until TERM or Ctrl-C. `hosts`: names under which clients reach the server, besides those of loopback.

    `protocol`: of a connection; it bounds their number and the time in which a request arrives.
    """
    async with http_client() as http:
        server = mcp_server(url, http, _caller, allow_writes=allow_writes)
        inside = server.streamable_http_app(
            # Each request stands alone: no session is kept that another user could take over.
            stateless_http=True,
            json_response=True,
            max_request_body_size=LARGEST_REQUEST,
            transport_security=rebinding_protection(hosts),
        )
        config = uvicorn.Config(
            TokenRequired(inside, APIClient(url, http, _caller)),
            lifespan="on",
            http=protocol,
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=ENDING_SECONDS,
        )
        running = HTTPServer(config)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, setattr, running, "should_exit", True)
        await running.serve(sockets=[listener])


def rebinding_protection(hosts: Sequence[str]) -> TransportSecuritySettings:
    """Return the hosts and origins that requests may carry: a page whose name resolves to this address has others."""
    names = [*LOCAL, *hosts]
    origins = [*(f"http://{name}" for name in names), *(f"https://{name}" for name in hosts)]
    return TransportSecuritySettings(
        allowed_hosts=[each for name in names for each in (name, f"{name}:*")],
        allowed_origins=[each for origin in origins for each in (origin, f"{origin}:*")],
    )


def _caller(context: Context[Any, Any]) -> Caller:
    """Return whose request calls the tool: with the token that it carries, not one that an earlier request carried."""
    request = context.request_context.request
    caller = _caller_of(request) if isinstance(request, Request) else None
    if caller is None:
        raise ToolError("401: the request has no token")
    return caller


def _caller_of(request: Request) -> Caller | None:
    found = _BEARER.fullmatch(request.headers.get("authorization", ""))
    if found is None or token_hash(found[1]) is None:
        return None
    return Caller(found[1], request.client.host if request.client else "unknown")
