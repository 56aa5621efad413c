"""Local providers: real HTTP servers that behave like the public ones, including their faults.

Each provider logs the requests that it received, so that a test checks what was sent, not what the channel reports.
"""

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Literal, Self

import msgspec
from aiohttp import web

# Faults: an HTML response, half a response, no response, a connection closed after the request was read; too many
# requests, a server error, refused credentials.
Fault = Literal["html", "half", "silence", "close", "busy", "broken", "denied"]

# Seconds in the header Retry-After of the fault "busy".
RETRY_AFTER = 7


class Request(msgspec.Struct, frozen=True):
    """One received request; header names in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class Provider:
    """One HTTP server on loopback. Subclasses implement `answer`; `fault` applies from the next request on."""

    def __init__(self) -> None:
        self.log: list[Request] = []
        self.fault: Fault | None = None
        self.url = ""
        self._runner: web.AppRunner | None = None
        self._ends = asyncio.Event()

    async def answer(self, request: Request) -> web.StreamResponse:
        """Return the response without a fault."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        application = web.Application(client_max_size=32 * 1024 * 1024)
        application.router.add_route("*", "/{tail:.*}", self._handle)
        self._runner = web.AppRunner(application, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ends.set()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _handle(self, received: web.Request) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in received.headers.items()}
        request = Request(received.method, received.path_qs, headers, await received.read())
        self.log.append(request)
        match self.fault:
            case None:
                return await self.answer(request)
            case "html" | "busy" | "broken" | "denied":
                return faulty_response(self.fault)
            case "half":
                response = web.StreamResponse(headers={"Content-Length": "1000", "Content-Type": "application/json"})
                await response.prepare(received)
                await response.write(b'{"data": [')
            case "silence":
                await self._ends.wait()
            case "close":
                pass
        # The request was read, and the client gets no response.
        if received.transport is not None:
            received.transport.abort()
        return web.Response(status=500)


def faulty_response(fault: Literal["html", "busy", "broken", "denied"]) -> web.Response:
    """Return the complete response of a fault."""
    match fault:
        case "html":
            return web.Response(text="<html><body>Welcome</body></html>", content_type="text/html")
        case "busy":
            return web.Response(status=429, headers={"Retry-After": str(RETRY_AFTER)}, text="slow down")
        case "broken":
            return web.Response(status=503, text="upstream gone")
        case "denied":
            return web.Response(status=401, text="who are you")
