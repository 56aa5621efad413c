"""`sereno worker MODULE:APP`: a supervisor with worker children. `sereno worker list`: the workers of the database."""

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from sereno.app import Sereno
from sereno.cli.context import named_app
from sereno.cli.options import HEALTH_OPTIONS
from sereno.cli.services.worker_list import list_workers
from sereno.environment import parse_queues
from sereno.errors import ConfigurationError
from sereno.telemetry.log_events import configure, emit
from sereno.worker.child import run_child
from sereno.worker.fork_server import ForkedProcess, fork_server, open_sockets, why_unfit
from sereno.worker.supervisor import CHILD_VARIABLE, Supervisor

F = TypeVar("F", bound=Callable[..., Any])


class WorkerGroup(click.Group):
    """`worker list` is a command; `worker shop.jobs:app` runs a worker."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[Any, Any, list[str]]:
        if args and self.get_command(ctx, args[0]) is None:
            return super().resolve_command(ctx, ["run", *args])
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        run_worker.format_help(click.Context(run_worker, info_name=ctx.info_name, parent=ctx.parent), formatter)
        formatter.write_paragraph()
        formatter.write_text("List workers with sereno worker list.")

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # No arguments, or options before the application as in `worker --queue default=10 shop.jobs:app`.
        if not args or (args[0].startswith("-") and args[0] != "--help"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


def worker_options(function: F) -> F:
    """Add the options of commands that run jobs."""
    for option in reversed(
        (
            click.option(
                "-q",
                "--queue",
                "queues",
                multiple=True,
                metavar="NAME=SLOTS",
                help="Queue and its number of slots; repeatable.",
            ),
            click.option("--processes", type=click.IntRange(1, 64), help="Worker processes, each with all slots."),
            click.option("--database-url", help="PostgreSQL database.  [env: SERENO_DATABASE_URL, DATABASE_URL]"),
            click.option("--schema", help="Schema of sereno.  [env: SERENO_SCHEMA; default: sereno]"),
            click.option("--embedded", is_flag=True, help="Use the embedded PostgreSQL of this project."),
            *HEALTH_OPTIONS,
            click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"])),
            click.option("--log-format", type=click.Choice(["auto", "console", "json"])),
        )
    ):
        function = option(function)
    return function


@click.group(cls=WorkerGroup)
def worker() -> None:
    """Run jobs: `sereno worker shop.jobs:app --queue default=20`. List workers: `sereno worker list`."""


@worker.command("run")
@click.argument("app_path", metavar="MODULE:APP", required=False)
@worker_options
def run_worker(app_path: str | None, queues: tuple[str, ...], embedded: bool, **given: Any) -> None:
    """Run jobs until TERM or Ctrl-C. A second signal releases running jobs at once.

    Example: sereno worker shop.jobs:app --queue ifood=10 --queue default=20 --processes 2
    """
    sockets = open_sockets()
    app = named_app("worker", app_path)
    app.override(queues=parse_queues(list(queues)) or None, **given)
    refuse_embedded(app, embedded)
    configure(app.settings.log_level, app.settings.log_format)
    fork_control = prepare_children(app, sockets)
    app.check_schema()
    app.worker()
    app.declare()
    asyncio.run(Supervisor(app.database.url, app.settings, fork_control, app.scheduler()).run())
    app.close()


worker.add_command(list_workers, "list")


def prepare_children(app: Sereno, sockets: int) -> socket.socket | None:
    """Start the fork server of the children; return its control socket, or None if they cannot be forked.

    In a child process, run the worker instead, and never return. `sockets`: how many there were before the imports.
    """
    descriptors = os.environ.pop(CHILD_VARIABLE, None)
    if descriptors is not None:
        wire, page = map(int, descriptors.split(","))
        run_child(wire, page, app.worker)
    if sys.platform != "linux":
        return None
    if why := why_unfit(sockets):
        emit(logging.INFO, "child.fresh", f"worker children are started fresh, not forked: {why}")
        return None
    started = fork_server()
    if isinstance(started, ForkedProcess):
        # Ctrl-C in a terminal must reach the supervisor only, which forwards it.
        os.setsid()
        wire, page = started.descriptors
        run_child(wire, page, app.worker)
    return started


def refuse_embedded(app: Sereno, embedded: bool) -> None:
    """Refuse the embedded database unless it was requested: it is for development."""
    if app.settings.database_url is None and not embedded:
        raise ConfigurationError(
            "a worker needs a PostgreSQL server: set SERENO_DATABASE_URL, or pass --embedded to use the project's own"
        )
