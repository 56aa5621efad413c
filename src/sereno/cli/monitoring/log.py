"""`sereno log …`: list and follow log lines of handlers and the engine."""

import time
from datetime import datetime
from typing import TYPE_CHECKING

import click

from sereno.cli.failures import NOTHING_MATCHED
from sereno.cli.notifications.page import page_options, run_query, show_lines, shown
from sereno.cli.options import context_options, output_option
from sereno.cli.output import Column, as_json, chosen_form, short_time, show_json, show_list

if TYPE_CHECKING:
    from sereno.cli.context import CommandContext
    from sereno.telemetry.log_queries import LogDetail, LogFilter, LogLine

FOLLOW_EVERY = 1.0
# Seconds. A writer takes an id before it commits, so lines with lower ids may still appear for this long.
SETTLED_AFTER = 10.0

COLUMNS = (
    Column("id", lambda line: str(line.id), "number"),
    Column("at", lambda line: line.at),
    Column("level", lambda line: line.level, "state"),
    Column("event", lambda line: shown(line.event), "name"),
    Column("tenant", lambda line: shown(line.tenant), "name"),
    Column("job", lambda line: None if line.job_id is None else str(line.job_id), "number"),
    Column("message", lambda line: shown(line.message), "wide"),
)


@click.group()
def log() -> None:
    """List and follow log lines of handlers and the engine."""


@log.command("list", epilog="Example: sereno log list 'level:error tenant:r42 at:2h..' --follow")
@click.argument("search", required=False)
@click.option("-f", "--follow", is_flag=True, help="Print new lines until Ctrl-C.")
@page_options
@output_option
@context_options
def list_log(
    context: "CommandContext",
    search: str | None,
    follow: bool,
    limit: int,
    before: int | None,
    fail_empty: bool,
    form: str,
) -> int:
    """List log lines, newest first; with --follow, newest last. Dates in SEARCH are in the local time zone."""
    from sereno.telemetry.log_search import lines_wanted, list_lines  # noqa: PLC0415 - slow to import; --help needs none

    if follow and before is not None:
        raise click.UsageError("--follow and --before exclude each other: choose one.")
    wanted = lines_wanted(search or "", datetime.now().astimezone())
    page = context.run(list_lines(wanted, limit=limit, before=before))
    if follow:
        _follow(context, wanted, page.items[::-1], form)
    show_list(form, page.items, COLUMNS, whole=page, empty="No log line matches.")
    if page.next is not None and chosen_form(form) == "table":
        click.echo(f"There are more: add --before {page.next}", err=True)
    return NOTHING_MATCHED if fail_empty and not page.items else 0


@log.command(epilog="Example: sereno log show 815")
@click.argument("number", type=click.IntRange(0, 2**63 - 1), metavar="LINE")
@output_option
@context_options
def show(context: "CommandContext", number: int, form: str) -> None:
    """Show a log line with its context and traceback."""
    from sereno.telemetry.log_search import show as operation  # noqa: PLC0415 - slow to import; --help needs none

    found = run_query(context, operation(number))
    if chosen_form(form) in ("json", "jsonl"):
        show_json(found, indent=2 if form == "json" else 0)
    else:
        _show_page(found)


def _show_page(line: "LogDetail") -> None:
    show_lines(
        (
            ("line", line.id),
            ("at", line.at.astimezone().isoformat(sep=" ", timespec="milliseconds")),
            ("level", line.level),
            ("event", line.event),
            ("tenant", line.tenant),
            ("job", line.job_id),
            ("task", line.task),
            ("queue", line.queue),
            ("trace", line.trace_id),
            ("session", line.session),
            *(("" if number else "message", text) for number, text in enumerate(line.message.splitlines())),
            *((name, value if isinstance(value, str) else as_json(value)) for name, value in line.context.items()),
        )
    )
    for text in (line.traceback or "").splitlines():
        click.echo(shown(text))


def _follow(context: "CommandContext", wanted: "LogFilter", newest: "list[LogLine]", form: str) -> None:
    """Print lines as they arrive, until Ctrl-C."""
    from sereno.telemetry.log_search import new_lines  # noqa: PLC0415 - slow to import; --help needs none

    # Ids that were printed, and when: later queries return them again until they are settled.
    printed: dict[int, float] = {}
    after = newest[0].id - 1 if newest else 0
    while True:
        now = time.monotonic()
        for line in newest:
            if line.id not in printed:
                printed[line.id] = now
                click.echo(_followed(line, form))
        settled = [number for number, seen in printed.items() if seen < now - SETTLED_AFTER]
        after = max([after, *settled])
        printed = {number: seen for number, seen in printed.items() if number > after}
        time.sleep(FOLLOW_EVERY)
        newest = context.run(new_lines(wanted, after))


def _followed(line: "LogLine", form: str) -> str:
    match chosen_form(form):
        case "json" | "jsonl":
            return as_json(line)
        case "tsv":
            at = line.at.isoformat()
            parts = (str(line.id), at, line.level, line.event, line.tenant, str(line.job_id or ""), line.message)
            return "\t".join(map(shown, parts))
        case "table":
            about = " ".join(
                f"{name}={value}"
                for name, value in (("job", line.job_id), ("tenant", line.tenant), ("trace", line.trace_id))
                if value is not None
            )
            return shown(f"{short_time(line.at)} {line.level:<8} {line.event}  {line.message}  {about}").rstrip()
