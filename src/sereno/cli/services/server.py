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
@click.option(
    "--shard",
    "shards",
    multiple=True,
    metavar="NAME=URL",
    help="Show this database, read-only; repeatable, the first one has the tokens.  [env: SERENO_SHARDS]",
)
@context_options
def server(context: "CommandContext", host: str | None, port: int | None, shards: tuple[str, ...]) -> None:
    """Serve the dashboard and the HTTP API until TERM or Ctrl-C. Enqueueing over HTTP needs an application."""
    import asyncio  # noqa: PLC0415 - slow to import; --help needs none

    from sereno.cli.services.serving import HTTPServer  # noqa: PLC0415 - see above
    from sereno.telemetry.log_events import configure  # noqa: PLC0415 - see above

    apps = _shards(context, shards) or {"": _application(context)}
    app = next(iter(apps.values()))
    try:
        serving = HTTPServer(app, host, port, shards=apps if "" not in apps else None)
        configure(app.settings.log_level, app.settings.log_format)
        asyncio.run(_run_until_stopped(serving))
    finally:
        for each in apps.values():
            each.close()


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


def _shards(context: "CommandContext", words: tuple[str, ...]) -> "dict[str, Sereno]":
    """Return an application for each shard, without tasks and read-only; none if no shard is named."""
    from msgspec.structs import replace  # noqa: PLC0415 - slow to import; --help needs none

    from sereno.app import Sereno  # noqa: PLC0415 - see above
    from sereno.errors import ConfigurationError  # noqa: PLC0415 - see above
    from sereno.shard_urls import parse_shard_options  # noqa: PLC0415 - see above

    shards = parse_shard_options(words)
    chosen = [name for name in ("app", "database_url") if context.sources.get(name) == "given"]
    if shards and chosen:
        raise ConfigurationError("--shard excludes -a and --database-url: name every database with --shard")
    # An application or a database on the command line wins over the setting.
    shards = shards or ({} if chosen else context.settings.shards or {})
    apps = {}
    for name, url in shards.items():
        apps[name] = app = Sereno(url, schema=context.settings.schema, read_only=True)
        # Each shard has an archive of its own, which this server does not know.
        app.settings = replace(app.settings, archive_url=None)
        app.database.configure(app.settings)
    return apps
