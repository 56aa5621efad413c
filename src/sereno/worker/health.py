"""The worker's health port: `/livez`, `/readyz`, `/metrics` and `/autoscale` over a minimal HTTP server.

`/livez` and `/readyz` reveal only whether the worker is live and ready, so they may be reachable from outside. Beyond
loopback, `/metrics` and `/autoscale` require the token of the setting `metrics_token`.
"""

import asyncio
import hmac
import ipaddress
from collections.abc import Awaitable, Callable

from sereno.errors import DatabaseUnavailable, InvalidArguments
from sereno.settings import Settings

# Bytes of a request, and seconds until it must be complete.
REQUEST_LIMIT = 16 * 1024
REQUEST_TIMEOUT = 5.0
# Open connections: probes and scrapers need a few, and a client must not exhaust the worker's file descriptors.
MOST_CONNECTIONS = 50

Probe = Callable[[], bool]


class HealthServer:
    """Serves the probes, the metrics and the wanted number of workers. `autoscale`: returns the response to a query."""

    def __init__(
        self,
        settings: Settings,
        *,
        is_live: Probe,
        is_ready: Probe,
        metrics: Callable[[], bytes],
        autoscale: Callable[[str], Awaitable[bytes]],
    ) -> None:
        self._settings = settings
        self._is_live = is_live
        self._is_ready = is_ready
        self._metrics = metrics
        self._autoscale = autoscale
        self._server: asyncio.Server | None = None
        # Oldest first.
        self._connections: dict[asyncio.StreamWriter, None] = {}
        self._is_stopped = False
        self.port = 0

    async def start(self) -> None:
        """Listen on the health port; do nothing if none is set. Port 0 means any free port."""
        if self._settings.health_port is None:
            return
        self._server = await asyncio.start_server(
            self._serve, self._settings.health_host, self._settings.health_port, limit=REQUEST_LIMIT
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Listen no more, and end the open connections."""
        self._is_stopped = True
        if self._server is not None:
            self._server.close()
            for writer in self._connections:
                writer.transport.abort()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_stopped:
            writer.transport.abort()
            return
        if len(self._connections) >= MOST_CONNECTIONS:
            # Drop the connection that has been open longest, so that probes still get a response.
            oldest = next(iter(self._connections))
            del self._connections[oldest]
            oldest.transport.abort()
        self._connections[writer] = None
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(await self._respond(head))
                await writer.drain()
        except TimeoutError:
            writer.transport.abort()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            pass
        finally:
            self._connections.pop(writer, None)
            writer.close()

    async def _respond(self, head: bytes) -> bytes:
        request, *lines = head.decode("latin-1").split("\r\n")
        method, _, rest = request.partition(" ")
        path, _, query = rest.partition(" ")[0].partition("?")
        if method not in ("GET", "HEAD"):
            return _response(405, b"only GET\n")
        if path in ("/metrics", "/autoscale") and not self._may_see_metrics(lines):
            text = f"beyond loopback, {path} requires the bearer token of SERENO_METRICS_TOKEN\n"
            return _response(401, text.encode())
        match path:
            case "/livez":
                return _response(200, b"ok\n") if self._is_live() else _response(503, b"not live\n")
            case "/readyz":
                return _response(200, b"ok\n") if self._is_ready() else _response(503, b"not ready\n")
            case "/metrics":
                return _response(200, self._metrics(), "text/plain; version=0.0.4; charset=utf-8")
            case "/autoscale":
                return await self._respond_autoscale(query)
            case _:
                return _response(404, b"/livez, /readyz, /metrics, /autoscale\n")

    async def _respond_autoscale(self, query: str) -> bytes:
        try:
            return _response(200, await self._autoscale(query), "application/json")
        except InvalidArguments as error:
            return _response(400, f"{error}\n".encode(errors="replace"))
        except DatabaseUnavailable:
            return _response(503, b"the database does not respond\n")

    def _may_see_metrics(self, lines: list[str]) -> bool:
        token = self._settings.metrics_token
        if token is None:
            return _is_loopback(self._settings.health_host)
        received = next(
            (line.partition(":")[2].strip() for line in lines if line.lower().startswith("authorization:")), ""
        )
        return hmac.compare_digest(received.encode(), f"Bearer {token}".encode())


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


_REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    503: "Service Unavailable",
}


def _response(status: int, body: bytes, kind: str = "text/plain; charset=utf-8") -> bytes:
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        "X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
