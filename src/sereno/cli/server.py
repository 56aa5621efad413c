"""`sereno server`: the API, for people and programs."""

import ipaddress
import socket
from typing import TYPE_CHECKING, Any

import click

from sereno.cli.options import desk_options
from sereno.errors import ConfigurationError

if TYPE_CHECKING:
    from sereno.app import Sereno
    from sereno.cli.desk import Desk

# Whoever is being answered when the end comes has so many seconds.
ENDING_SECONDS = 10


@click.command(epilog="Example: sereno server -a shop:app --port 8765")
@click.option("--host", help="Where to listen.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="0 takes a free one.  [default: 8765]")
@desk_options
def server(desk: "Desk", host: str | None, port: int | None) -> None:
    """Answer people and programs until TERM or Ctrl-C. Without an application, tasks cannot be enqueued by it."""
    import asyncio  # noqa: PLC0415 - slow to import; --help needs none

    from sereno.telemetry.logs import configure  # noqa: PLC0415 - see above

    uvicorn, asgi = _needed()
    app = _application(desk)
    settings = app.settings
    host, port = host or settings.server_host, settings.server_port if port is None else port
    try:
        is_open = _is_open(app, host)
        listener = _listen(host, port)
        configure(settings.log_level, settings.log_format)
        shown, port = f"[{host}]" if ":" in host else host, listener.getsockname()[1]
        config = uvicorn.Config(
            asgi(app, is_open=is_open),
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=ENDING_SECONDS,
        )
        running = uvicorn.Server(config)
        _end_on_signals(running)
        click.echo(f"Listening at http://{shown}:{port}/api/v1/openapi.json. TERM or Ctrl-C ends it.")
        if is_open:
            click.echo("There is no token yet, so everybody on this machine may do everything: sereno token create")
        asyncio.run(_serve(running, listener, app))
    finally:
        app.close()


async def _serve(running: Any, listener: socket.socket, app: "Sereno") -> None:
    try:
        await running.serve(sockets=[listener])
    finally:
        # Those of this loop can be closed while it runs only.
        await app.aclose()


def _end_on_signals(running: Any) -> None:
    """It raises a signal again when it has ended: that must not keep us from leaving in order."""
    import signal  # noqa: PLC0415 - slow to import; --help needs none

    def end(*_: object) -> None:
        running.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)


def _application(desk: "Desk") -> "Sereno":
    """The one that is named, or one without tasks; on the database of the command line where that names one."""
    from sereno.app import Sereno  # noqa: PLC0415 - slow to import; --help needs none

    named = ("database_url", "schema")
    given = {name: getattr(desk.settings, name) for name in named if desk.sources.get(name) == "given"}
    app = desk.app_or_none()
    if app is None:
        return Sereno(**given)
    app.override(**given)
    return app


def _is_open(app: "Sereno", host: str) -> bool:
    """Whether nobody has to sign in; refused where that would let in everybody."""
    from sereno.store.tokens import any_token  # noqa: PLC0415 - slow to import; --help needs none

    app.check_schema()
    if app.settings.proxy_user_header is not None or app.database.run(any_token()):
        return False
    if not _is_loopback(host):
        raise ConfigurationError(
            f"nobody could sign in, and {host} can be reached from outside: "
            "make a token first (sereno token create me --role admin), or listen at 127.0.0.1"
        )
    return True


def _listen(host: str, port: int) -> socket.socket:
    """Bound before anything is said, so that what is said is true."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family)
    except OSError as error:
        raise ConfigurationError(f"cannot listen at {host}, port {port}: {error.strerror or error}") from None


def _needed() -> tuple[Any, Any]:
    try:
        import uvicorn  # noqa: PLC0415 - an extra

        from sereno.server import asgi  # noqa: PLC0415 - see above
    except ImportError as error:
        if (error.name or "").startswith("sereno"):
            raise
        raise ConfigurationError(
            f"the server needs more packages ({error.name} is missing): pip install 'sereno[server]'"
        ) from None
    return uvicorn, asgi


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
