"""`sereno operation …`: bulk changes in the background."""

from collections.abc import Callable
from time import sleep
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sereno.cli.failures import NOTHING_MATCHED
from sereno.cli.options import Rate, context_options, output_option, stdout_is_terminal
from sereno.cli.output import Column, chosen_form, human, show_json, show_list, visible

if TYPE_CHECKING:
    from sereno.cli.context import CommandContext
    from sereno.database.statement import Operation
    from sereno.jobs.bulk import BulkOperation, JobAction
    from sereno.jobs.filters import JobFilter
    from sereno.jobs.rows import Count

F = TypeVar("F", bound=Callable[..., Any])

BAR = 30
OF_WHAT = {"job": "jobs", "schedule": "schedules", "delivery": "deliveries"}
# Of one that failed; of one that somebody stopped, or that is done, 0.
FAILED = 1


def _of(line: Any) -> str:
    if line.total is None:
        return ""
    return f"{line.total:,}" if line.total_exact else f"≥{line.total:,}"


COLUMNS = (
    Column("id", lambda line: str(line.id), "number"),
    Column("state", lambda line: line.state, "state"),
    Column("action", lambda line: line.action),
    Column("done", lambda line: line.done + line.asked_to_stop, "number"),
    Column("of", _of, "number"),
    Column("rate", lambda line: None if line.rate is None else f"{line.rate:g}/s"),
    Column("tenant", lambda line: line.tenant),
    Column("by", lambda line: line.asked_by),
    Column("asked", lambda line: line.created_at),
    Column("finished", lambda line: line.finished_at),
    Column("what", lambda line: line.error or line.wanted, "wide"),
)


def background_option(function: F) -> F:
    """For commands that change many things."""
    option = click.option(
        "--background", is_flag=True, help="A worker does it, and goes on when you leave; see sereno operation."
    )
    return option(function)


def rate_option(function: F) -> F:
    """For those that know no rate when they do it at once."""
    return click.option("--rate", type=Rate(), help="With --background: so many a second, such as 50/s.")(function)


def check_rate(rate: float | None) -> None:
    """At once is at once."""
    if rate is not None:
        raise click.UsageError("--rate goes with --background here: without it, everything is done at once.")


@click.group()
def operation() -> None:
    """Bulk changes in the background: look how far they are, stop them."""


@operation.command("list", epilog="Example: sereno operation list")
@click.option("--tenant", help="Those of one tenant.")
@click.option("-n", "--limit", default=50, show_default=True, type=click.IntRange(1, 1000))
@click.option("--before", type=click.IntRange(min=0), metavar="ID", help="Only those asked for before this one.")
@output_option
@context_options
def list_operations(context: "CommandContext", tenant: str | None, limit: int, before: int | None, form: str) -> None:
    """All of them, newest first."""
    from sereno.bulk.operations import list_operations as look  # noqa: PLC0415 - slow to import; --help needs none

    found = context.run(look(limit, before, tenant=tenant))
    show_list(form, found, COLUMNS, empty="There is no operation: sereno job retry … --background makes one.")


@operation.command(epilog="Example: sereno operation show 7 --follow")
@click.argument("number", type=int, metavar="OPERATION")
@click.option("-f", "--follow", is_flag=True, help="Until it is over. Ctrl-C leaves it; it goes on.")
@click.option("--every", default=0.5, show_default=True, type=click.FloatRange(0.1, 60), help="Seconds between looks.")
@output_option
@context_options
def show(context: "CommandContext", number: int, follow: bool, every: float, form: str) -> int:
    """How far one is. Exits with 1 when it has failed."""
    found = _look(context, number)
    told = ""
    while follow and not found.is_over:
        told = _tell_change(found, told)
        sleep(every)
        found = _look(context, number)
    if told and stdout_is_terminal():
        click.echo()
    if chosen_form(form) in ("json", "jsonl"):
        show_json(found, indent=2 if form == "json" else 0)
    else:
        _show_page(found)
    return FAILED if found.state == "failed" else 0


@operation.command(epilog="Example: sereno operation stop 7")
@click.argument("number", type=int, metavar="OPERATION")
@context_options
def stop(context: "CommandContext", number: int) -> None:
    """It ends within a second. What was done stays done."""
    from sereno.bulk.operations import stop as ask  # noqa: PLC0415 - slow to import; --help needs none

    found = context.run(ask(number))
    words = "is stopped" if found.is_over else "stops as soon as its batch has ended"
    click.echo(f"Operation {number} {words}: {_progress(found)}.", err=True)


def begin(
    context: "CommandContext",
    action: "JobAction",
    wanted: "JobFilter",
    *,
    rate: float | None,
    reason: str | None,
    yes: bool,
    form: str,
    fail_empty: bool,
) -> int:
    """Leave jobs to a worker; answers what the command exits with."""
    from sereno.bulk import operations as bulk  # noqa: PLC0415 - slow to import; --help needs none

    total = counted_in_time(context, bulk.count_jobs(action, wanted))
    made = context.run(bulk.begin(action, wanted, rate=rate, reason=reason, yes=yes, total=total))
    return tell_begun(made, form=form, fail_empty=fail_empty)


def tell_begun(made: "BulkOperation", *, form: str, fail_empty: bool) -> int:
    """Its number, and how to follow it; answers what the command exits with."""
    if chosen_form(form) in ("json", "jsonl"):
        show_json(made, indent=2 if form == "json" else 0)
    else:
        click.echo(made.id)
        click.echo(f"Operation {made.id} begins: sereno operation show {made.id} --follow", err=True)
    if made.waits_for is not None:
        click.echo(f"It waits for {visible(made.waits_for)}: no worker is alive.", err=True)
    return NOTHING_MATCHED if fail_empty and made.total == 0 else 0


def counted_in_time(context: "CommandContext", count: "Operation[Count]") -> "Count | None":
    """As in a dry run; what takes too long to count can still be done."""
    import psycopg  # noqa: PLC0415 - slow to import; --help needs none

    try:
        return context.run(count)
    except psycopg.errors.QueryCanceled:
        return None


def _look(context: "CommandContext", number: int) -> "BulkOperation":
    from sereno.bulk.operations import show as look  # noqa: PLC0415 - see above
    from sereno.errors import InvalidArguments  # noqa: PLC0415 - slow to import; --help needs none

    found = context.run(look(number))
    if found is None:
        raise InvalidArguments(f"there is no operation {number}: see sereno operation list")
    return found


def _progress(found: "BulkOperation") -> str:
    done = found.done + found.asked_to_stop
    of = f" of {_of(found)}" if found.total is not None else ""
    left = f", {found.left_alone:,} left alone" if found.left_alone else ""
    return f"{done:,}{of}{left}"


def _bar(found: "BulkOperation") -> str:
    seen = found.done + found.asked_to_stop + found.left_alone
    share = 1.0 if found.state == "done" else min(1.0, seen / found.total) if found.total else 0.0
    full = int(share * BAR)
    return f"[{'█' * full}{'·' * (BAR - full)}] {share:4.0%}"


def _tell_change(found: "BulkOperation", told: str) -> str:
    """One line that changes on a terminal; a line for each change elsewhere. To the standard error, as words go."""
    waits = f", waits for {visible(found.waits_for)}" if found.waits_for else ""
    line = f"{_bar(found)}  {found.state}: {_progress(found)}{waits}"
    if stdout_is_terminal():
        click.echo(f"\r\x1b[K{line}", nl=False, err=True)
    elif line != told:
        click.echo(line, err=True)
    return line


def _show_page(found: "BulkOperation") -> None:
    click.echo(f"{_bar(found)}  {found.state}: {_progress(found)}")
    stopped = f"{human(found.stop_asked_at)} by {found.stop_asked_by}" if found.stop_asked_at else None
    for label, value in (
        ("operation", found.id),
        ("action", found.action),
        (OF_WHAT.get(found.action.partition(".")[0], "of what"), found.wanted),
        ("how", found.options or None),
        ("tenant", found.tenant),
        ("rate", None if found.rate is None else f"{found.rate:g}/s"),
        ("reason", found.reason),
        ("asked to stop", found.asked_to_stop or None),
        ("left alone", found.left_alone or None),
        ("asked for", f"{human(found.created_at)} by {found.asked_by}"),
        ("begun", found.started_at),
        ("last seen", found.seen_at),
        ("stop asked", stopped),
        ("finished", found.finished_at),
        ("job", str(found.job_id)),
        ("waits for", found.waits_for),
        ("error", found.error),
    ):
        if value is not None:
            click.echo(f"{label:<14} {human(value)}")
