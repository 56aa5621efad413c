"""`sereno error …`: failures grouped by their cause."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import click

from sereno.cli.failures import NOTHING_MATCHED
from sereno.cli.options import MomentType, context_options, output_option, searched
from sereno.cli.output import Column, chosen_form, counted, short_time, show_json, show_list

if TYPE_CHECKING:
    from sereno.cli.context import CommandContext
    from sereno.monitoring.error_operations import ErrorDetail, Sort

# Lines shown of a traceback, counted from its end, which holds the cause.
TRACEBACK_LINES = 12


class NoError(click.ClickException):
    """No failure has this fingerprint."""

    exit_code = NOTHING_MATCHED

    def __init__(self, fingerprint: str) -> None:
        super().__init__(f"no error {fingerprint!r:.60}: sereno error list shows the errors of the last 30 days")


class ErrorCommands(click.Group):
    """Lists its commands in the order in which they are defined."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's own signature
        return list(self.commands)


@click.group(cls=ErrorCommands)
def error() -> None:
    """List, show and mute failures grouped by their cause."""


@error.command(
    "list", epilog="Example: sereno error list 'task:reconcile type:OSError count:>10' --since 7d --sort count"
)
@click.argument("search", required=False)
@click.option("--since", default="24h", show_default=True, metavar="DURATION", help="Period to count, at most 30d.")
@click.option("-t", "--task")
@click.option("--tenant", help="Count only failures of this tenant.")
@click.option("--sort", type=click.Choice(["last", "count"]), default="last", show_default=True)
@click.option("--muted", is_flag=True, help="Include muted errors.")
@click.option("-n", "--limit", default=50, show_default=True, type=click.IntRange(1, 1000))
@output_option
@context_options
def list_errors(
    context: "CommandContext",
    search: str | None,
    since: str,
    task: str | None,
    tenant: str | None,
    sort: "Sort",
    muted: bool,
    limit: int,
    form: str,
) -> None:
    """List recent errors, with their counts in the last 24 hours."""
    from sereno.monitoring.error_operations import list_groups  # noqa: PLC0415 - slow to import; --help needs none
    from sereno.monitoring.search_fields import ERROR_FIELDS  # noqa: PLC0415 - see above

    search_params = searched(search, ERROR_FIELDS)
    found = context.run(
        list_groups(
            since=since, task=task, tenant=tenant, sort=sort, muted=muted, search_params=search_params, limit=limit
        )
    )
    nothing = f"No failure in the last {since}." if search_params is None else "No error matches."
    show_list(form, found, _columns(), empty=nothing)


@error.command(epilog="Example: sereno error show 3fa9c01b77d2")
@click.argument("fingerprint")
@click.option("--since", default="24h", show_default=True, metavar="DURATION", help="Period to count, at most 30d.")
@output_option
@context_options
def show(context: "CommandContext", fingerprint: str, since: str, form: str) -> None:
    """Show an error: counts by hour and tenant, its dead jobs, and the newest traceback."""
    from sereno.cli.output import visible  # noqa: PLC0415 - slow to import; --help needs none
    from sereno.monitoring.error_operations import show as operation  # noqa: PLC0415 - see above

    detail = context.run(operation(fingerprint, since=since))
    if detail is None:
        raise NoError(fingerprint)
    if chosen_form(form) in ("json", "jsonl"):
        show_json(detail, indent=2 if form == "json" else 0)
        return
    for label, text in _lines(detail, since):
        heading = click.style(f"{label:<12}", dim=True) if label else ""
        click.echo(f"{heading}{visible(text)}")


@error.command(epilog='Example: sereno error mute 3fa9c01b77d2 --until 8h --note "the provider is on it"')
@click.argument("fingerprint")
@click.option("--until", type=MomentType(future=True), help='A date, or a duration from now such as "8h".')
@click.option("--off", is_flag=True, help="Unmute it.")
@click.option("--note", help="Reason, shown with the error. An empty note removes it.")
@context_options
def mute(context: "CommandContext", fingerprint: str, until: datetime | None, off: bool, note: str | None) -> None:
    """Hide an error from the list for a while. It is still counted."""
    from sereno.monitoring.error_operations import mute as operation  # noqa: PLC0415 - slow to import; --help needs none

    if (until is None) != off:
        raise click.UsageError("Pass --until, such as --until 8h, or --off to unmute it.")
    if context.run(operation(fingerprint, until, note=note)) is None:
        raise NoError(fingerprint)
    state = "is not muted any more" if until is None else f"is muted until {short_time(until)}"
    click.echo(f"{fingerprint} {state}.", err=True)


def _columns() -> tuple[Column, ...]:
    from sereno.cli.monitoring.top import sparkline  # noqa: PLC0415 - see above
    from sereno.cli.output import visible  # noqa: PLC0415 - slow to import; --help needs none

    return (
        Column("fingerprint", lambda group: group.fingerprint),
        Column("task", lambda group: visible(group.task), "name"),
        Column("count", lambda group: group.count, "number"),
        Column("last", lambda group: group.last_at),
        Column("first", lambda group: group.first_at),
        Column("24 hours", lambda group: sparkline(group.hours)),
        Column("where", lambda group: visible(group.frame), "name"),
        Column("error", lambda group: visible(f"{group.error_type}: {group.message}"), "wide"),
    )


def _lines(detail: "ErrorDetail", since: str) -> Iterator[tuple[str, str]]:
    from sereno.cli.monitoring.top import sparkline  # noqa: PLC0415 - slow to import; --help needs none

    group = detail.group
    yield "error", f"{group.fingerprint}  {group.error_type}: {group.message}"
    yield "task", group.task
    yield "where", group.frame or "unknown"
    yield "seen", f"{group.total:,} times, first {short_time(group.first_at)}, last {short_time(group.last_at)}"
    yield f"last {since}", f"{group.count:,} times  {sparkline([hour.count for hour in detail.hours])}"
    for hit in detail.tenants:
        yield "tenant", f"{hit.tenant or '(none, or many more)'}  {hit.count:,}"
    yield "dead", counted(detail.dead, "job") + (f": {detail.search}" if detail.dead.value else "")
    if any(detail.tries):
        yield "tries", ", ".join(_tries(detail.tries))
    if group.muted_until is not None:
        yield "muted", f"until {short_time(group.muted_until)}"
    if group.note:
        yield "note", group.note
    if detail.sample is not None:
        yield "", ""
        yield "newest", f"job {detail.sample.job_id}, attempt {detail.sample.attempt}"
        for line in (detail.sample.traceback or "").splitlines()[-TRACEBACK_LINES:]:
            yield "", f"  {line}"


def _tries(counts: Sequence[int]) -> Iterator[str]:
    """Return how many jobs succeeded after each number of attempts."""
    for place, count in enumerate(counts, 1):
        if count:
            yield f"{count:,} after {place}" + (" or more" * (place == len(counts) > 1))
