"""`sereno run MODULE:APP`: worker, scheduler and server as one service, for small installations."""

import asyncio
import signal
import socket
from typing import Any

import click

from sereno.app import Sereno
from sereno.cli.context import named_app
from sereno.cli.services.nats import nats_options, project_nats
from sereno.cli.services.serving import HTTPServer
from sereno.cli.services.worker import prepare_children, refuse_embedded, worker_options
from sereno.environment import parse_queues
from sereno.monitoring.scheduler import monitored_scheduler
from sereno.settings import ROLES
from sereno.telemetry.log_events import configure
from sereno.worker.fork_server import open_sockets
from sereno.worker.log_writer import LogWriter
from sereno.worker.supervisor import Supervisor


@click.command(epilog="Example: sereno run shop.jobs:app --port 8765 --queue default=20, or: --embedded --nats")
@click.argument("app_path", metavar="MODULE:APP", required=False)
@click.option(
    "--role", "roles", multiple=True, type=click.Choice(ROLES), help="Part to run; repeatable.  [default: all]"
)
@click.option("--host", help="Address of the server.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="Port of the server; 0 picks a free one.  [default: 8765]")
@nats_options
@worker_options
def run(
    app_path: str | None,
    roles: tuple[str, ...],
    queues: tuple[str, ...],
    host: str | None,
    port: int | None,
    embedded: bool,
    nats: bool,
    carried: tuple[str, ...],
    **given: Any,
) -> None:
    """Run worker, scheduler and server as one service until TERM or Ctrl-C.

    Handlers run in a child process: one that blocks delays neither schedules nor the dashboard.
    """
    sockets = open_sockets()
    app = named_app("run", app_path)
    app.override(queues=parse_queues(list(queues)) or None, roles=list(roles) or None, **given)
    refuse_embedded(app, embedded)
    configure(app.settings.log_level, app.settings.log_format)
    with project_nats(app, carried, is_wanted=nats):
        fork_control = prepare_children(app, sockets) if "worker" in (app.settings.roles or ROLES) else None
        app.check_schema()
        try:
            asyncio.run(_RunningServices(app, fork_control, host, port).run())
        finally:
            app.close()


class _RunningServices:
    """The parts that this process runs, by its roles. When one part ends, all end."""

    def __init__(self, app: Sereno, fork_control: socket.socket | None, host: str | None, port: int | None) -> None:
        wanted = app.settings.roles or ROLES
        self._app = app
        self._stopping = asyncio.Event()
        self._server = HTTPServer(app, host, port) if "server" in wanted else None
        self._supervisor: Supervisor | None = None
        self._runs_scheduler = "scheduler" in wanted and app.settings.scheduler
        if "worker" in wanted:
            app.worker()
            app.declare()
            if not self._runs_scheduler:
                app.override(scheduler=False)
            self._supervisor = Supervisor(app.database.url, app.settings, fork_control, app.scheduler())
            # The supervisor runs the scheduler itself, beside its children.
            self._runs_scheduler = False

    async def run(self) -> None:
        parts = [asyncio.create_task(part) for part in self._parts()]
        # The supervisor installs its own signal handlers when it starts, so the server keeps serving while the last
        # handlers end.
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self.stop)
        for line in self._server.start_messages if self._server is not None else ("Stop it with TERM or Ctrl-C.",):
            click.echo(line)
        await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
        if not self._stopping.is_set():
            self.stop()
        await asyncio.gather(*parts)

    def stop(self) -> None:
        """Stop all parts; on a second signal the worker releases running jobs at once."""
        self._stopping.set()
        if self._server is not None:
            self._server.end()
        if self._supervisor is not None:
            self._supervisor.stop()

    def _parts(self) -> list[Any]:
        parts: list[Any] = []
        if self._supervisor is not None:
            parts.append(self._supervisor.run())
        if self._runs_scheduler:
            parts.append(self._run_scheduler())
        if self._server is not None:
            parts.append(self._server.run())
        return parts

    async def _run_scheduler(self) -> None:
        async with LogWriter(self._app.database.url, self._app.settings):
            scheduler = monitored_scheduler(self._app.database.url, self._app.settings)
            scheduler.start()
            await self._stopping.wait()
            await scheduler.stop()
