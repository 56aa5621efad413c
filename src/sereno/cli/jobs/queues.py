"""`sereno queue …`: list, show and carry queues; pause and resume queues, tasks and tenants."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from sereno.cli.jobs.carried import carry, show
from sereno.cli.options import context_options, output_option
from sereno.cli.output import Column, show_list, visible

if TYPE_CHECKING:
    from sereno.cli.context import CommandContext
    from sereno.jobs.queries.queues import QueueLine
    from sereno.jobs.rows import PauseKind

COLUMNS = (
    Column("queue", lambda line: line.queue, "name"),
    Column("ready", lambda line: line.ready, "number"),
    Column("running", lambda line: line.running, "number"),
    Column("scheduled", lambda line: line.scheduled, "number", 6),
    Column("waiting", lambda line: line.waiting, "number", 8),
    Column("oldest", lambda line: line.oldest_seconds, "seconds"),
    Column("last minute", lambda line: line.finished_last_minute, "number", 7),
    Column("slots", lambda line: line.slots, "number", 9),
    Column("workers", lambda line: line.workers, "number", 5),
    Column("paused", lambda line: f"by {line.paused_by}" if line.is_paused else "", "wide"),
)
# The same for installations with a carried queue. Their jobs outside of PostgreSQL are estimated.
CARRIER_COLUMNS = (
    Column("carried", lambda line: f"~{line.carrier.pending_jobs:,}" if line.carrier else None, "number"),
    Column("share", lambda line: f"{line.carrier.share}%" if line.carrier else None, "number"),
    Column("carrier", lambda line: line.carrier.state if line.carrier else None),
)


def queue_columns(lines: "Sequence[QueueLine]") -> Sequence[Column]:
    """Return the columns of a list of queues; those of carriers only if one of the queues has one."""
    if not any(line.carrier for line in lines):
        return COLUMNS
    return (*COLUMNS[:-1], *CARRIER_COLUMNS, COLUMNS[-1])


@click.group()
def queue() -> None:
    """List, show, carry, pause and resume queues."""


queue.add_command(show)
queue.add_command(carry)


@queue.command("list", epilog="Example: sereno queue list -o json")
@output_option
@context_options
def list_queues(context: "CommandContext", form: str) -> None:
    """List queues that have jobs, workers, a pause or a carrier."""
    from sereno.jobs.queries.queues import list_pauses  # noqa: PLC0415 - slow to import; --help needs none
    from sereno.jobs.queries.queues import list_queues as operation  # noqa: PLC0415 - see above

    found = context.run(operation())
    show_list(form, found, queue_columns(found), empty="No queue has jobs, workers or a pause.")
    for pause in context.run(list_pauses()):
        if pause.kind != "queue":
            click.echo(f"The {pause.kind} {pause.name!r} is paused, by {visible(pause.paused_by)}.", err=True)


@queue.command(epilog='Example: sereno queue pause ifood --note "their API is down"')
@click.argument("name", required=False, metavar="[QUEUE]")
@click.option("--task", help="Pause a task instead of a queue.")
@click.option("--tenant", help="Pause a tenant instead of a queue.")
@click.option("--note", help="Reason, shown with the pause.")
@click.option("--force", is_flag=True, help="Pause one that does not exist yet.")
@context_options
def pause(
    context: "CommandContext", name: str | None, task: str | None, tenant: str | None, note: str | None, force: bool
) -> None:
    """Pause a queue, task or tenant. Running jobs continue; new jobs are accepted and wait."""
    from sereno.jobs.pauses import check_known  # noqa: PLC0415 - slow to import; --help needs none
    from sereno.jobs.pauses import pause as operation  # noqa: PLC0415 - see above

    kind, chosen = _which(name, task, tenant)
    if not force:
        context.run(check_known(kind, chosen))
    changed = context.run(operation(kind, chosen, note=note))
    click.echo(f"The {kind} {chosen!r} {'is paused' if changed else 'was paused already'}.", err=True)


@queue.command(epilog="Example: sereno queue resume --tenant r42")
@click.argument("name", required=False, metavar="[QUEUE]")
@click.option("--task", help="Resume a task instead of a queue.")
@click.option("--tenant", help="Resume a tenant instead of a queue.")
@context_options
def resume(context: "CommandContext", name: str | None, task: str | None, tenant: str | None) -> None:
    """Resume a queue, task or tenant."""
    from sereno.jobs.pauses import resume as operation  # noqa: PLC0415 - slow to import; --help needs none

    kind, chosen = _which(name, task, tenant)
    changed = context.run(operation(kind, chosen))
    click.echo(f"The {kind} {chosen!r} {'is resumed' if changed else 'was not paused'}.", err=True)


def _which(queue_name: str | None, task: str | None, tenant: str | None) -> "tuple[PauseKind, str]":
    pairs: list[tuple[PauseKind, str | None]] = [("queue", queue_name), ("task", task), ("tenant", tenant)]
    given = [(kind, name) for kind, name in pairs if name]
    if len(given) != 1:
        raise click.UsageError("Name exactly one of QUEUE, --task NAME and --tenant NAME.")
    return given[0]
