"""`sereno scheduler`: a standalone scheduler, for hosts without workers."""

from typing import TYPE_CHECKING, Any

import click

from sereno.cli.options import HEALTH_OPTIONS, context_options
from sereno.cli.output import counted

if TYPE_CHECKING:
    from sereno.cli.context import CommandContext


@click.command(epilog="Example: sereno scheduler --database-url postgresql://db/shop --log-format json")
@HEALTH_OPTIONS[0]
@HEALTH_OPTIONS[1]
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]))
@click.option("--log-format", type=click.Choice(["auto", "console", "json"]))
@context_options
def scheduler(context: "CommandContext", log_level: Any, log_format: Any, **health: Any) -> None:
    """Fire schedules until TERM or Ctrl-C.

    Any number of schedulers may run: one leads, the others stand by. It needs no application.
    """
    import asyncio  # noqa: PLC0415 - slow to import; --help needs none

    from msgspec.structs import replace  # noqa: PLC0415 - see above

    from sereno.database.migrate import check  # noqa: PLC0415 - see above
    from sereno.telemetry.log_events import configure  # noqa: PLC0415 - see above

    context.settings = replace(context.settings, **{name: each for name, each in health.items() if each is not None})
    connection = context.connection()
    check(connection, context.settings.schema)
    where = f"{connection.info.dbname} at {connection.info.host}, schema {context.settings.schema}"
    connection.close()
    configure(log_level or context.settings.log_level, log_format or context.settings.log_format)
    asyncio.run(_run_until_stopped(context, where))


async def _run_until_stopped(context: "CommandContext", where: str) -> None:
    import asyncio  # noqa: PLC0415 - slow to import; --help needs none
    import signal  # noqa: PLC0415 - beside it

    from sereno.monitoring.scheduler import monitored_scheduler  # noqa: PLC0415 - see above
    from sereno.telemetry.exposition import exposition  # noqa: PLC0415 - see above
    from sereno.telemetry.metrics import MetricTally  # noqa: PLC0415 - see above
    from sereno.version import __version__  # noqa: PLC0415 - see above
    from sereno.worker.autoscale import AutoscaleReader  # noqa: PLC0415 - see above
    from sereno.worker.health import HealthServer  # noqa: PLC0415 - see above
    from sereno.worker.log_writer import LogWriter  # noqa: PLC0415 - see above

    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    url = context.url()
    running = monitored_scheduler(url, context.settings)
    health = HealthServer(
        context.settings,
        is_live=lambda: True,
        is_ready=lambda: running.is_healthy,
        metrics=lambda: exposition(MetricTally(), [], __version__, running.figures),
        autoscale=AutoscaleReader(url, context.settings).respond,
    )
    async with LogWriter(url, context.settings):
        running.start()
        await health.start()
        click.echo(f"Scheduler {running.holder} is running on {where}. Stop it with TERM or Ctrl-C.")
        await stopping.wait()
        await running.stop()
        await health.stop()
    click.echo(f"Stopped: {counted(running.figures.fires, 'fire')}, {running.figures.skips:,} skipped.")
