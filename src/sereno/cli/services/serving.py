"""A server that listens: what `sereno server` and `sereno run` share."""

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from sereno.errors import ConfigurationError

if TYPE_CHECKING:
    from sereno.app import Sereno

# Whoever is being answered when the end comes has so many seconds.
ENDING_SECONDS = 10
# A connection without a question is kept longer than proxies keep theirs, which is a minute for most: whoever hangs up
# first must not be the one who is asked.
QUIET_SECONDS = 75

OPEN_NOTICE = "There is no token yet, so everybody on this machine may do everything: sereno token create"
CLOSED_NOTICE = (
    "Nobody can sign in: every token is revoked or expired. Make one where the database can be reached: "
    "sereno token create me --role admin"
)


class HTTPServer:
    """One that has bound its socket, so that what it says of itself is true. `run` it, and `end` it."""

    def __init__(self, app: "Sereno", host: str | None, port: int | None) -> None:
        uvicorn, asgi, connections = _needed()
        self._app = app
        host = host or app.settings.server_host
        self._notice = _check_access(app, host)
        self.is_open = self._notice == OPEN_NOTICE
        self._listener = _listen(host, app.settings.server_port if port is None else port)
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._listener.getsockname()[1]}/"
        inside = asgi(app, is_open=self.is_open)
        limits = connections.ConnectionLimits(app.settings)
        rate = connections.LogRate()
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
            # The application does it, by the setting trusted_proxies; uvicorn would trust every client on loopback.
            proxy_headers=False,
            timeout_graceful_shutdown=ENDING_SECONDS,
            timeout_keep_alive=QUIET_SECONDS,
        )
        self._running = _ending(uvicorn, inside)(config)

    @property
    def words(self) -> list[str]:
        """For whoever has started it."""
        return [f"Listening at {self.url}. TERM or Ctrl-C ends it.", *([self._notice] if self._notice else [])]

    def end(self) -> None:
        self._running.should_exit = True

    async def run(self) -> None:
        """Until it is ended."""
        self._log_accept_errors(asyncio.get_running_loop())
        try:
            await self._running.serve(sockets=[self._listener])
        finally:
            # Those of this loop can be closed while it runs only.
            await self._app.aclose()


def _ending(uvicorn: Any, inside: Any) -> Any:
    """It waits for every answer to end before it ends, and streams do not end by themselves; signals are for us."""

    class ServerEnd(uvicorn.Server):  # type: ignore[misc]  # imported when it is needed, so nobody knows its type
        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            await inside.end()
            await super().shutdown(sockets)

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    return ServerEnd


def _check_access(app: "Sereno", host: str) -> str | None:
    """Return a notice for the operator when no token is valid; refused beyond loopback."""
    from sereno.access.tokens import token_status  # noqa: PLC0415 - slow to import; --help needs none

    app.check_schema()
    if app.settings.proxy_user_header is not None:
        return None
    status = app.database.run(token_status())
    if status.is_valid:
        return None
    if not _is_loopback(host):
        raise ConfigurationError(
            f"nobody could sign in, and {host} can be reached from outside: "
            "make a token first (sereno token create me --role admin), or listen at 127.0.0.1"
        )
    return CLOSED_NOTICE if status.was_created else OPEN_NOTICE


def _listen(host: str, port: int) -> socket.socket:
    """Bound before anything is said, so that what is said is true."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family)
    except OSError as error:
        raise ConfigurationError(f"cannot listen at {host}, port {port}: {error.strerror or error}") from None


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


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
