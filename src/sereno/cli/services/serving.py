"""The HTTP server of `sereno server`, `sereno run` and `sereno demo`."""

import asyncio
import logging
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from sereno.cli.services.shard_access import check_shard_access, is_loopback
from sereno.errors import ConfigurationError
from sereno.server.shared.log_rate import LogRate

if TYPE_CHECKING:
    from sereno.app import Sereno

# Seconds that open requests get when the server stops.
ENDING_SECONDS = 10
# Keep-alive of an idle connection, in seconds. Longer than the 60 s of most proxies: the proxy must close first, or it
# may send a request on a connection that the server is closing.
QUIET_SECONDS = 75

OPEN_NOTICE = (
    "No token exists yet: anyone on this machine has full access. Create one: sereno token create me --role admin"
)
CLOSED_NOTICE = (
    "No one can sign in: every token is revoked or expired. Create one on a host that can reach the database: "
    "sereno token create me --role admin"
)


class HTTPServer:
    """The HTTP server. It binds its socket on creation, so `url` is valid before `run`; `end` stops it."""

    def __init__(
        self, app: "Sereno", host: str | None, port: int | None, *, shards: "Mapping[str, Sereno] | None" = None
    ) -> None:
        """`shards`: show these databases, read-only; `app` is the first of them."""
        uvicorn, asgi, connections = _needed()
        self._apps = list(shards.values()) if shards else [app]
        host = host or app.settings.server_host
        self._notice = check_shard_access(shards, host) if shards else _check_access(app, host)
        self.is_open = self._notice == OPEN_NOTICE
        self._listener = listen(host, app.settings.server_port if port is None else port)
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._listener.getsockname()[1]}/"
        inside = _sharded(shards) if shards else asgi(app, is_open=self.is_open)
        limits = connections.ConnectionLimits(app.settings)
        rate = LogRate()
        logging.getLogger("uvicorn.error").addFilter(connections.RequestWarnings(rate))
        self._log_accept_errors = partial(connections.log_accept_errors_at_a_rate, rate=rate)
        config = uvicorn.Config(
            inside,
            http=limits.protocol(),
            ws="none",
            backlog=limits.backlog,
            log_config=None,
            access_log=False,
            server_header=False,
            # The application handles them with the setting trusted_proxies; uvicorn would trust every loopback client.
            proxy_headers=False,
            timeout_graceful_shutdown=ENDING_SECONDS,
            timeout_keep_alive=QUIET_SECONDS,
        )
        self._running = _ending(uvicorn, inside)(config)

    @property
    def start_messages(self) -> list[str]:
        """Return the lines to print at the start."""
        return [f"Listening at {self.url}. Stop it with TERM or Ctrl-C.", *([self._notice] if self._notice else [])]

    def end(self) -> None:
        self._running.should_exit = True

    async def run(self) -> None:
        """Serve until `end` is called."""
        self._log_accept_errors(asyncio.get_running_loop())
        try:
            await self._running.serve(sockets=[self._listener])
        finally:
            # Connections that belong to this event loop can only be closed while it runs.
            for app in self._apps:
                await app.aclose()


def _ending(uvicorn: Any, inside: Any) -> Any:
    """Return a uvicorn server that ends open streams before it waits for responses, and installs no signal handlers."""

    class ServerEnd(uvicorn.Server):  # type: ignore[misc]  # imported on use, so its type is unknown
        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            await inside.end()
            await super().shutdown(sockets)

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    return ServerEnd


def _sharded(shards: "Mapping[str, Sereno]") -> Any:
    from sereno.server.sharded import sharded  # noqa: PLC0415 - an extra

    return sharded(shards)


def _check_access(app: "Sereno", host: str) -> str | None:
    """Return a notice for the operator when no token is valid; refuse to listen beyond loopback then."""
    from sereno.access.authentication import token_status  # noqa: PLC0415 - slow to import; --help needs none

    app.check_schema()
    if app.settings.proxy_user_header is not None:
        return None
    status = app.database.run(token_status())
    if status.is_valid:
        return None
    if not is_loopback(host):
        raise ConfigurationError(
            f"no valid token exists, and {host} can be reached from other machines: "
            "create a token first (sereno token create me --role admin), or listen on 127.0.0.1"
        )
    return CLOSED_NOTICE if status.was_created else OPEN_NOTICE


def listen(host: str, port: int) -> socket.socket:
    """Bind the socket before the URL is printed."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family)
    except OSError as error:
        raise ConfigurationError(f"cannot listen on {host}, port {port}: {error.strerror or error}") from None


def _needed() -> tuple[Any, Any, Any]:
    try:
        import uvicorn  # noqa: PLC0415 - an extra

        from sereno.server import asgi, connections  # noqa: PLC0415 - see above
    except ImportError as error:
        if (error.name or "").startswith("sereno"):
            raise
        raise ConfigurationError(
            f"the server needs more packages ({error.name} is missing): pip install 'sereno[server]'"
        ) from None
    return uvicorn, asgi, connections
