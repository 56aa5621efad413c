"""`sereno server`: the API, for people and programs."""

import ipaddress
from typing import TYPE_CHECKING, Any

import click

from sereno.cli.options import desk_options
from sereno.errors import ConfigurationError

if TYPE_CHECKING:
    from sereno.app import Sereno
    from sereno.cli.desk import Desk


@click.command(epilog="Example: sereno server -a shop:app --port 8765")
@click.option("--host", help="Where to listen.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="[default: 8765]")
@desk_options
def server(desk: "Desk", host: str | None, port: int | None) -> None:
    """Answer people and programs until TERM or Ctrl-C. Without an application, tasks cannot be enqueued by it."""
    from sereno.store.migrate import check  # noqa: PLC0415 - slow to import; --help needs none
    from sereno.store.tokens import any_token  # noqa: PLC0415 - see above
    from sereno.telemetry.logs import configure  # noqa: PLC0415 - see above

    uvicorn, asgi = _needed()
    host, port = host or desk.settings.server_host, desk.settings.server_port if port is None else port
    check(desk.connection(create=True), desk.settings.schema)
    has_tokens = desk.run(any_token())
    is_open = not has_tokens and desk.settings.proxy_user_header is None
    if is_open and not _is_loopback(host):
        raise ConfigurationError(
            f"nobody could sign in, and {host} can be reached from outside: "
            "make a token first (sereno token create me --role admin), or listen at 127.0.0.1"
        )
    configure(desk.settings.log_level, desk.settings.log_format)
    app = desk.app_or_none() or _plain(desk)
    shown = f"[{host}]" if ":" in host else host
    click.echo(f"Listening at http://{shown}:{port}/api/v1/openapi.json. TERM or Ctrl-C ends it.")
    if is_open:
        click.echo("There is no token yet, so everybody on this machine may do everything: sereno token create")
    config = uvicorn.Config(
        asgi(app, is_open=is_open), host=host, port=port, log_config=None, access_log=False, server_header=False
    )
    uvicorn.Server(config).run()


def _needed() -> tuple[Any, Any]:
    try:
        import uvicorn  # noqa: PLC0415 - an extra

        from sereno.server import asgi  # noqa: PLC0415 - see above
    except ImportError as error:
        raise ConfigurationError(
            f"the server needs more packages ({error.name} is missing): pip install 'sereno[server]'"
        ) from None
    return uvicorn, asgi


def _plain(desk: "Desk") -> "Sereno":
    from sereno.app import Sereno  # noqa: PLC0415 - slow to import; --help needs none

    return Sereno(desk.url(), schema=desk.settings.schema)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
