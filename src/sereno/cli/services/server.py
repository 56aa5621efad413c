"""`sereno server`: pages for people, and the API for programs."""

from typing import TYPE_CHECKING

import click

from sereno.cli.options import context_options

if TYPE_CHECKING:
    from sereno.app import Sereno
    from sereno.cli.context import CommandContext
    from sereno.cli.services.serving import HTTPServer


@click.command(epilog="Example: sereno server -a shop:app --port 8765")
@click.option("--host", help="Where to listen.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="0 takes a free one.  [default: 8765]")
@context_options
def server(context: "CommandContext", host: str | None, port: int | None) -> None:
    """Answer people and programs until TERM or Ctrl-C. Without an application, tasks cannot be enqueued by it."""
    import asyncio  # noqa: PLC0415 - slow to import; --help needs none

    from sereno.cli.services.serving import HTTPServer  # noqa: PLC0415 - see above
    from sereno.telemetry.log_events import configure  # noqa: PLC0415 - see above

    app = _application(context)
    try:
        serving = HTTPServer(app, host, port)
        configure(app.settings.log_level, app.settings.log_format)
        asyncio.run(_until_told(serving))
    finally:
        app.close()


async def _until_told(serving: "HTTPServer") -> None:
    import asyncio  # noqa: PLC0415 - slow to import; --help needs none
    import signal  # noqa: PLC0415 - beside it

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, serving.end)
    for words in serving.words:
        click.echo(words)
    await serving.run()


def _application(context: "CommandContext") -> "Sereno":
    """The one that is named, or one without tasks; on the database of the command line where that names one."""
    from sereno.app import Sereno  # noqa: PLC0415 - slow to import; --help needs none

    named = ("database_url", "schema")
    given = {name: getattr(context.settings, name) for name in named if context.sources.get(name) == "given"}
    app = context.app_or_none()
    if app is None:
        return Sereno(**given)
    app.override(**given)
    return app
