"""`sereno scheduler`: a scheduler alone, for hosts without workers."""

from typing import TYPE_CHECKING, Any

import click

from sereno.cli.options import context_options
from sereno.cli.output import counted

if TYPE_CHECKING:
    from sereno.cli.context import CommandContext


@click.command(epilog="Example: sereno scheduler --database-url postgresql://db/shop --log-format json")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]))
@click.option("--log-format", type=click.Choice(["auto", "console", "json"]))
@context_options
def scheduler(context: "CommandContext", log_level: Any, log_format: Any) -> None:
    """Fire schedules until TERM or Ctrl-C. Any number may run: one leads, the others stand by. Needs no application."""
    import asyncio  # noqa: PLC0415 - slow to import; --help needs none

    from sereno.database.migrate import check  # noqa: PLC0415 - see above
    from sereno.telemetry.log_events import configure  # noqa: PLC0415 - see above

    connection = context.connection()
    check(connection, context.settings.schema)
    where = f"{connection.info.dbname} at {connection.info.host}, schema {context.settings.schema}"
    connection.close()
    configure(log_level or context.settings.log_level, log_format or context.settings.log_format)
    asyncio.run(_until_told(context, where))


async def _until_told(context: "CommandContext", where: str) -> None:
    import asyncio  # noqa: PLC0415 - slow to import; --help needs none
    import signal  # noqa: PLC0415 - beside it

    from sereno.monitoring.alerts.scheduler import scheduler_with_alerts  # noqa: PLC0415 - see above
    from sereno.worker.log_writer import LogWriter  # noqa: PLC0415 - see above

    told = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told.set)
    url = context.url()
    running = scheduler_with_alerts(url, context.settings)
    async with LogWriter(url, context.settings):
        running.start()
        click.echo(f"Scheduler {running.holder} keeps time for {where}. TERM or Ctrl-C ends it.")
        await told.wait()
        await running.stop()
    click.echo(f"Ended: {counted(running.figures.fires, 'fire')}, {running.figures.skips:,} skipped.")
