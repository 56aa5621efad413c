"""`sereno queue …`: list, show and carry queues; pause and resume queues, tasks and tenants."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from sereno.cli.jobs.carried import carry, show
from sereno.cli.options import context_options, output_option
from sereno.cli.output import GAP, Column, chosen_form, human, show_list, terminal, visible

if TYPE_CHECKING:
    from sereno.cli.context import CommandContext
    from sereno.jobs.queries.queues import QueueLine
    from sereno.jobs.rows import PauseKind

COLUMNS = (
    Column("queue", lambda line: line.queue),
    Column("ready", lambda line: line.ready, "number"),
    Column("running", lambda line: line.running, "number"),
    Column("scheduled", lambda line: line.scheduled, "number"),
    Column("waiting", lambda line: line.waiting, "number"),
    Column("oldest", lambda line: line.oldest_seconds, "seconds"),
    Column("last minute", lambda line: line.finished_last_minute, "number"),
    Column("slots", lambda line: line.slots, "number"),
    Column("workers", lambda line: line.workers, "number"),
    Column("paused", lambda line: f"by {line.paused_by}" if line.is_paused else "", "wide"),
)
# Characters of the longest age in a table.
LONGEST_AGE = 8
# The same for installations with a carried queue. Their jobs outside of PostgreSQL are estimated.
CARRIER_COLUMNS = (
    Column("carried", lambda line: f"~{line.carrier.pending_jobs:,}" if line.carrier else None, "number"),
    Column("share", lambda line: f"{line.carrier.share}%" if line.carrier else None, "number"),
    Column("carrier", lambda line: line.carrier.state if line.carrier else None),
)


# Columns that are dropped on a narrow terminal, in this order.
GIVES_WAY = ("slots", "waiting", "last minute", "scheduled")


def queue_columns(lines: "Sequence[QueueLine]", form: str) -> Sequence[Column]:
    """Return the columns of a list of queues; those of carriers only if one of the queues has one."""
    if not any(line.carrier for line in lines):
        return COLUMNS
    columns: Sequence[Column] = (*COLUMNS[:-1], *CARRIER_COLUMNS, COLUMNS[-1])
    if chosen_form(form) != "table":
        return columns
    width = terminal().width
    for name in GIVES_WAY:
        if _needs(columns, lines) > width:
            columns = [column for column in columns if column.name != name]
    return columns


def _needs(columns: Sequence[Column], lines: "Sequence[QueueLine]") -> int:
    """Return the width of a table with these columns; that of ages is bounded."""
    widths = [
        max(
            len(column.name),
            *(LONGEST_AGE if column.style == "seconds" else len(human(column.value(line))) for line in lines),
        )
        for column in columns
    ]
    return sum(widths) + GAP * (len(widths) - 1)


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
    show_list(form, found, queue_columns(found, form), empty="No queue has jobs, workers or a pause.")
    for pause in context.run(list_pauses()):
        if pause.kind != "queue":
            click.echo(f"The {pause.kind} {pause.name!r} is paused, by {visible(pause.paused_by)}.", err=True)


@queue.command(epilog='Example: sereno queue pause ifood --note "their API is down"')
@click.argument("name", required=False, metavar="[QUEUE]")
@click.option("--task", help="Pause a task instead of a queue.")
@click.option("--tenant", help="Pause a tenant instead of a queue.")
@click.option("--note", help="Reason, shown with the pause.")
@context_options
def pause(context: "CommandContext", name: str | None, task: str | None, tenant: str | None, note: str | None) -> None:
    """Pause a queue, task or tenant. Running jobs continue; new jobs are accepted and wait."""
    from sereno.jobs.pauses import pause as operation  # noqa: PLC0415 - slow to import; --help needs none

    kind, chosen = _which(name, task, tenant)
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
