"""`sereno mcp`: the tools of assistants, over the API of a running server."""

import logging
import os
import re
from typing import TYPE_CHECKING, Any

import click

from sereno.errors import ConfigurationError

if TYPE_CHECKING:
    import asyncio
    import socket

URL = "http://127.0.0.1:8765"
PORT = 8766
_HOST = re.compile(r"[A-Za-z0-9.-]+(?::\d{1,5})?")


@click.command(epilog="Example: sereno mcp --url https://sereno.example.org")
@click.option("--url", metavar="URL", help=f"Address of sereno server.  [env: SERENO_URL; default: {URL}]")
@click.option("--allow-writes", is_flag=True, help="Add the tools that retry, cancel, pause, resume and requeue.")
@click.option("--allow-http", is_flag=True, help="Send the token in the clear to a server on another machine.")
@click.option("--http", "over_http", is_flag=True, help="Serve over HTTP: each client sends its own token.")
@click.option("--host", metavar="HOST", help="With --http: address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help=f"With --http: port to listen on.  [default: {PORT}]")
@click.option(
    "--allow-host", "hosts", multiple=True, metavar="HOST", help="With --http: a name that clients use; repeatable."
)
@click.option("-v", "--verbose", is_flag=True, expose_value=False, help="Show the traceback of an error.")
def mcp(
    url: str | None,
    allow_writes: bool,
    allow_http: bool,
    over_http: bool,
    host: str | None,
    port: int | None,
    hosts: tuple[str, ...],
) -> None:
    """Let an assistant read jobs, schedules and deliveries over MCP, with the rights of a token.

    Over stdin and stdout, the token is SERENO_TOKEN, or in the file SERENO_TOKEN_FILE.
    """
    import asyncio  # noqa: PLC0415 - slow to import; --help needs none

    if not over_http and (host is not None or port is not None or hosts):
        raise click.UsageError("--host, --port and --allow-host need --http")
    needed()
    from sereno.cli.services.shard_access import is_loopback  # noqa: PLC0415 - see above
    from sereno.mcp.api_client import check_url  # noqa: PLC0415 - an extra
    from sereno.mcp.server import serve_stdio  # noqa: PLC0415 - an extra

    server = check_url(url or os.environ.get("SERENO_URL") or URL, allow_http=allow_http, is_loopback=is_loopback)
    if not over_http:
        asyncio.run(serve_stdio(server, _token(), allow_writes=allow_writes))
        return
    from sereno.mcp.http_server import serve_http  # noqa: PLC0415 - an extra

    listener = _listener(host or "127.0.0.1", PORT if port is None else port, hosts)
    asyncio.run(serve_http(server, listener, hosts, _protocol(), allow_writes=allow_writes))


def needed() -> None:
    """Raise ConfigurationError if the packages of the extra are missing."""
    try:
        import httpx2  # noqa: F401, PLC0415 - an extra
        import mcp.server.mcpserver  # noqa: F401, PLC0415 - an extra
    except ImportError as error:
        raise ConfigurationError(
            f"sereno mcp needs more packages ({error.name} is missing): pip install 'sereno[mcp]'"
        ) from None


def _protocol() -> "type[asyncio.Protocol]":
    """Return the protocol of `sereno server`: slow and silent clients keep no others out."""
    from sereno.mcp.http_server import MOST_CONNECTIONS  # noqa: PLC0415 - an extra
    from sereno.server.connections import ConnectionLimits, RequestWarnings  # noqa: PLC0415 - an extra
    from sereno.server.shared.log_rate import LogRate  # noqa: PLC0415 - see above
    from sereno.settings import Settings  # noqa: PLC0415 - slow to import; --help needs none

    logging.getLogger("uvicorn.error").addFilter(RequestWarnings(LogRate()))
    return ConnectionLimits(Settings(server_connections=MOST_CONNECTIONS)).protocol()


def _token() -> str | None:
    """Return the token of the environment; None on a machine whose server has no tokens yet."""
    from sereno.access.identity import token_hash  # noqa: PLC0415 - slow to import; --help needs none
    from sereno.environment import read_value  # noqa: PLC0415 - see above

    file = os.environ.get("SERENO_TOKEN_FILE")
    token = read_value("SERENO_TOKEN_FILE", file) if file else os.environ.get("SERENO_TOKEN")
    if token and token_hash(token) is None:
        raise ConfigurationError("SERENO_TOKEN is not a token: `sereno token create` prints one, srn_…")
    return token or None


def _listener(host: str, port: int, hosts: tuple[str, ...]) -> "socket.socket":
    """Bind the socket, and print the address. Beyond loopback, the names that clients use must be known."""
    from sereno.cli.services.serving import listen  # noqa: PLC0415 - slow to import; --help needs none
    from sereno.cli.services.shard_access import is_loopback  # noqa: PLC0415 - see above

    for name in hosts:
        if _HOST.fullmatch(name) is None:
            raise ConfigurationError(
                f"--allow-host {name!r:.80}: write the host of the URL alone, such as mcp.example.org"
            )
    if not is_loopback(host) and not hosts:
        raise ConfigurationError(
            f"{host} can be reached from other machines: name the host of the clients' URLs with --allow-host"
        )
    listener = listen(host, port)
    shown: Any = f"[{host}]" if ":" in host else host
    click.echo(f"Listening at http://{shown}:{listener.getsockname()[1]}/mcp. Stop it with TERM or Ctrl-C.")
    return listener
