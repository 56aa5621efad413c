"""`sereno operation …`: bulk operations in the background."""

from collections.abc import Callable
from time import sleep
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sereno.cli.failures import NOTHING_MATCHED
from sereno.cli.options import RateType, context_options, output_option, stdout_is_terminal
from sereno.cli.output import Column, chosen_form, human, show_json, show_list, visible

if TYPE_CHECKING:
    from sereno.bounded_count import BoundedCount
    from sereno.cli.context import CommandContext
    from sereno.database.statement import Operation
    from sereno.jobs.filters import JobFilter
    from sereno.jobs.rows import BulkOperation, JobAction

F = TypeVar("F", bound=Callable[..., Any])

BAR = 30
OF_WHAT = {"job": "jobs", "schedule": "schedules", "delivery": "deliveries"}
# Exit code for an operation that failed; one that is done or was stopped exits with 0.
FAILED = 1


def _of(line: Any) -> str:
    if line.total is None:
        return ""
    return f"{line.total:,}" if line.total_exact else f"≥{line.total:,}"


COLUMNS = (
    Column("id", lambda line: str(line.id), "number"),
    Column("state", lambda line: line.state, "state"),
    Column("action", lambda line: line.action),
    Column("done", lambda line: line.done + line.stop_requested, "number"),
    Column("of", _of, "number"),
    Column("rate", lambda line: None if line.rate is None else f"{line.rate:g}/s"),
    Column("tenant", lambda line: line.tenant, "name"),
    Column("by", lambda line: line.requested_by),
    Column("requested", lambda line: line.created_at),
    Column("finished", lambda line: line.finished_at),
    Column("what", lambda line: line.error or line.wanted, "wide"),
)


def background_option(function: F) -> F:
    """Add --background, for bulk commands."""
    option = click.option(
        "--background", is_flag=True, help="Let a worker do it in the background; see sereno operation."
    )
    return option(function)


def rate_option(function: F) -> F:
    """Add --rate, for commands that only support it with --background."""
    return click.option("--rate", type=RateType(), help="With --background: changes per second, such as 50/s.")(
        function
    )


def check_rate(rate: float | None) -> None:
    """Refuse a rate for a change that runs in the foreground."""
    if rate is not None:
        raise click.UsageError("--rate needs --background here: without it, everything is changed at once.")


@click.group()
def operation() -> None:
    """List, follow and stop bulk operations in the background."""


@operation.command("list", epilog="Example: sereno operation list")
@click.option("--tenant", help="Only operations of this tenant.")
@click.option("-n", "--limit", default=50, show_default=True, type=click.IntRange(1, 1000))
@click.option("--before", type=click.IntRange(min=0), metavar="ID", help="Only operations requested before this one.")
@output_option
@context_options
def list_operations(context: "CommandContext", tenant: str | None, limit: int, before: int | None, form: str) -> None:
    """List operations, newest first."""
    from sereno.bulk.operations import list_operations as query  # noqa: PLC0415 - slow to import; --help needs none

    found = context.run(query(limit, before, tenant=tenant))
    show_list(form, found, COLUMNS, empty="No operations. Start one: sereno job retry … --background")


@operation.command(epilog="Example: sereno operation show 7 --follow")
@click.argument("number", type=int, metavar="OPERATION")
@click.option("-f", "--follow", is_flag=True, help="Show progress until it ends. Ctrl-C does not stop the operation.")
@click.option(
    "--every", default=0.5, show_default=True, type=click.FloatRange(0.1, 60), help="Seconds between updates."
)
@output_option
@context_options
def show(context: "CommandContext", number: int, follow: bool, every: float, form: str) -> int:
    """Show the progress of an operation. Exits with 1 when it has failed."""
    found = _query(context, number)
    shown = ""
    while follow and not found.is_over:
        shown = _show_change(found, shown)
        sleep(every)
        found = _query(context, number)
    if shown and stdout_is_terminal():
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
    """Stop an operation within a second. Changes that were made stay."""
    from sereno.bulk.operations import stop as request_stop  # noqa: PLC0415 - slow to import; --help needs none

    found = context.run(request_stop(number))
    state = "is stopped" if found.is_over else "stops after its current batch"
    click.echo(f"Operation {number} {state}: {_progress(found)}.", err=True)


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
    """Start a background operation on jobs; return the exit code."""
    from sereno.bulk import operations as bulk  # noqa: PLC0415 - slow to import; --help needs none

    total = counted_in_time(context, bulk.count_jobs(action, wanted))
    made = context.run(bulk.begin(action, wanted, rate=rate, reason=reason, yes=yes, total=total))
    return tell_begun(made, form=form, fail_empty=fail_empty)


def tell_begun(made: "BulkOperation", *, form: str, fail_empty: bool) -> int:
    """Print the id of an operation and how to follow it; return the exit code."""
    if chosen_form(form) in ("json", "jsonl"):
        show_json(made, indent=2 if form == "json" else 0)
    else:
        click.echo(made.id)
        click.echo(f"Operation {made.id} started. Follow it: sereno operation show {made.id} --follow", err=True)
    if made.waits_for is not None:
        click.echo(f"It waits for {visible(made.waits_for)}: no worker is alive.", err=True)
    return NOTHING_MATCHED if fail_empty and made.total == 0 else 0


def counted_in_time(context: "CommandContext", count: "Operation[BoundedCount]") -> "BoundedCount | None":
    """Return the count of a dry run, or None when counting times out: the operation can still run."""
    import psycopg  # noqa: PLC0415 - slow to import; --help needs none

    try:
        return context.run(count)
    except psycopg.errors.QueryCanceled:
        return None


def _query(context: "CommandContext", number: int) -> "BulkOperation":
    from sereno.bulk.operations import show as query  # noqa: PLC0415 - see above
    from sereno.errors import InvalidArguments  # noqa: PLC0415 - slow to import; --help needs none

    found = context.run(query(number))
    if found is None:
        raise InvalidArguments(f"no operation {number}: see sereno operation list")
    return found


def _progress(found: "BulkOperation") -> str:
    done = found.done + found.stop_requested
    of = f" of {_of(found)}" if found.total is not None else ""
    left = f", {found.left_alone:,} skipped" if found.left_alone else ""
    return f"{done:,}{of}{left}"


def _bar(found: "BulkOperation") -> str:
    seen = found.done + found.stop_requested + found.left_alone
    share = 1.0 if found.state == "done" else min(1.0, seen / found.total) if found.total else 0.0
    full = int(share * BAR)
    return f"[{'█' * full}{'·' * (BAR - full)}] {share:4.0%}"


def _show_change(found: "BulkOperation", shown: str) -> str:
    """Print progress to stderr: one updated line on a terminal, a line for each change elsewhere."""
    waits = f", waits for {visible(found.waits_for)}" if found.waits_for else ""
    line = f"{_bar(found)}  {found.state}: {_progress(found)}{waits}"
    if stdout_is_terminal():
        click.echo(f"\r\x1b[K{line}", nl=False, err=True)
    elif line != shown:
        click.echo(line, err=True)
    return line


def _show_page(found: "BulkOperation") -> None:
    click.echo(f"{_bar(found)}  {found.state}: {_progress(found)}")
    stopped = f"{human(found.stop_requested_at)} by {found.stop_requested_by}" if found.stop_requested_at else None
    for label, value in (
        ("operation", found.id),
        ("action", found.action),
        (OF_WHAT.get(found.action.partition(".")[0], "filter"), found.wanted),
        ("options", found.options or None),
        ("tenant", found.tenant),
        ("rate", None if found.rate is None else f"{found.rate:g}/s"),
        ("reason", found.reason),
        ("stopping", found.stop_requested or None),
        ("skipped", found.left_alone or None),
        ("requested", f"{human(found.created_at)} by {found.requested_by}"),
        ("started", found.started_at),
        ("last seen", found.seen_at),
        ("stop requested", stopped),
        ("finished", found.finished_at),
        ("job", str(found.job_id)),
        ("waits for", found.waits_for),
        ("error", found.error),
    ):
        if value is not None:
            click.echo(f"{label:<14} {human(value)}")
