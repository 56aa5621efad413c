"""`sereno server`: the dashboard and the HTTP API."""

from typing import TYPE_CHECKING

import click

from sereno.cli.options import context_options

if TYPE_CHECKING:
    from sereno.app import Sereno
    from sereno.cli.context import CommandContext
    from sereno.cli.services.serving import HTTPServer


@click.command(epilog="Example: sereno server -a shop:app --port 8765")
@click.option("--host", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on; 0 picks a free one.  [default: 8765]")
@context_options
def server(context: "CommandContext", host: str | None, port: int | None) -> None:
    """Serve the dashboard and the HTTP API until TERM or Ctrl-C. Enqueueing over HTTP needs an application."""
    import asyncio  # noqa: PLC0415 - slow to import; --help needs none

    from sereno.cli.services.serving import HTTPServer  # noqa: PLC0415 - see above
    from sereno.telemetry.log_events import configure  # noqa: PLC0415 - see above

    app = _application(context)
    try:
        serving = HTTPServer(app, host, port)
        configure(app.settings.log_level, app.settings.log_format)
        asyncio.run(_run_until_stopped(serving))
    finally:
        app.close()


async def _run_until_stopped(serving: "HTTPServer") -> None:
    import asyncio  # noqa: PLC0415 - slow to import; --help needs none
    import signal  # noqa: PLC0415 - beside it

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, serving.end)
    for line in serving.start_messages:
        click.echo(line)
    await serving.run()


def _application(context: "CommandContext") -> "Sereno":
    """Return the named application, or one without tasks, with the database options of the command line."""
    from sereno.app import Sereno  # noqa: PLC0415 - slow to import; --help needs none

    named = ("database_url", "schema")
    given = {name: getattr(context.settings, name) for name in named if context.sources.get(name) == "given"}
    app = context.app_or_none()
    if app is None:
        return Sereno(**given)
    app.override(**given)
    return app
