"""`sereno worker list`, a subcommand of the worker command."""

from typing import TYPE_CHECKING

import click

from sereno.cli.options import context_options, output_option
from sereno.cli.output import Column, show_list

if TYPE_CHECKING:
    from sereno.cli.context import CommandContext

COLUMNS = (
    Column("session", lambda line: str(line.id), "number"),
    Column("state", lambda line: line.state, "state"),
    Column("host", lambda line: line.host, "name"),
    Column("pid", lambda line: str(line.pid), "number", 1),
    Column("running", lambda line: line.running, "number"),
    Column("queues", lambda line: line.queues, "wide"),
    Column("tasks", lambda line: line.tasks, "number"),
    Column("started", lambda line: line.started_at),
    Column("ended", lambda line: line.ended_at),
    Column("lease", lambda line: line.lease_seconds if line.state in ("alive", "expired") else None, "seconds"),
    Column("idle", lambda line: line.idle),
    Column("version", lambda line: line.version),
    Column("release", lambda line: line.release),
)


@click.command("list", epilog="Example: sereno worker list")
@output_option
@context_options
def list_workers(context: "CommandContext", form: str) -> None:
    """List live workers, then those that ended within a day."""
    from sereno.worker.operations import list_workers as operation  # noqa: PLC0415 - slow to import

    show_list(form, context.run(operation()), COLUMNS, empty="No worker is alive, and none has ended within a day.")
