"""`sereno autoscale-metrics`: how many workers some queues need, for KEDA and scripts."""

from typing import TYPE_CHECKING, Any

import click

from sereno.cli.options import context_options

if TYPE_CHECKING:
    from sereno.cli.context import CommandContext


@click.command("autoscale-metrics", epilog="Example: sereno autoscale-metrics -q mails --slots 20 --target 1m")
@click.option("-q", "--queue", "queues", multiple=True, help="Queue of the workers; repeatable.  [default: all]")
@click.option("--slots", type=click.IntRange(1, 10_000), help="Slots of one worker.  [default: those of live workers]")
@click.option("--target", metavar="DURATION", help="Time in which ready jobs shall have started.  [default: 1m]")
@click.option("--host", help="Address to listen on.  [default: loopback]")
@click.option("--port", type=click.IntRange(0, 65535), help="Serve /autoscale there until TERM or Ctrl-C.")
@context_options
def autoscale_metrics(
    context: "CommandContext",
    queues: tuple[str, ...],
    slots: int | None,
    target: str | None,
    host: str | None,
    port: int | None,
) -> None:
    """Print how many workers are wanted, as JSON.

    With --port, serve it as the health port of a worker does: the queues, slots and target are those of each request.
    """
    from sereno.cli.output import show_json  # noqa: PLC0415 - slow to import; --help needs none
    from sereno.errors import InvalidArguments  # noqa: PLC0415 - see above
    from sereno.jobs.queries.autoscale import autoscale, queue_demands  # noqa: PLC0415 - see above
    from sereno.worker.autoscale import make_query  # noqa: PLC0415 - see above

    query = make_query(list(queues), slots, target)
    if port is None:
        show_json(autoscale(context.run(queue_demands()), query, context.settings), indent=2)
        return
    if queues or slots or target:
        raise InvalidArguments("--port excludes --queue, --slots and --target: they are in the address of each request")
    import asyncio  # noqa: PLC0415 - see above

    from msgspec.structs import replace  # noqa: PLC0415 - see above

    given = {"health_port": port} if host is None else {"health_port": port, "health_host": host}
    asyncio.run(_serve(context.url(), replace(context.settings, **given)))


async def _serve(url: str, settings: Any) -> None:
    import asyncio  # noqa: PLC0415 - slow to import; --help needs none
    import signal  # noqa: PLC0415 - beside it

    from sereno.telemetry.exposition import database_exposition  # noqa: PLC0415 - see above
    from sereno.version import __version__  # noqa: PLC0415 - see above
    from sereno.worker.autoscale import AutoscaleReader  # noqa: PLC0415 - see above
    from sereno.worker.health import HealthServer  # noqa: PLC0415 - see above

    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    server = HealthServer(
        settings,
        is_live=lambda: True,
        is_ready=lambda: True,
        metrics=lambda: database_exposition(None, __version__),
        autoscale=AutoscaleReader(url, settings).respond,
    )
    await server.start()
    click.echo(f"Listening at http://{settings.health_host}:{server.port}/autoscale. Stop it with TERM or Ctrl-C.")
    await stopping.wait()
    await server.stop()
