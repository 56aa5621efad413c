"""`sereno archive …`: status, batches and runs. The other modules read and restore archived rows."""

from typing import TYPE_CHECKING

import click

from sereno.cli.archive.context import archive_of, kind_named, size
from sereno.cli.archive.read import export, query, verify
from sereno.cli.archive.restore import restore
from sereno.cli.notifications.page import NotFound, OrderedGroup, page_options, show_lines
from sereno.cli.options import context_options, output_option
from sereno.cli.output import Column, chosen_form, counted, human, show_json, show_list, visible
from sereno.cli.progress import progress
from sereno.duration import duration_text
from sereno.errors import ConfigurationError

if TYPE_CHECKING:
    from sereno.app import Sereno
    from sereno.archive.archiver import ExportResult, MoveResult
    from sereno.archive.operations import ArchiveStatus, BatchDetail
    from sereno.cli.context import CommandContext

STATES = ("moved", "failed", "verified", "dropped")
# Exit code when something could not be moved, written, read or verified.
PROBLEMS = 1


def _keep(line: object) -> str:
    keep = getattr(line, "keep", None)
    return "" if keep is None else duration_text(keep)


KINDS = (
    Column("kind", lambda line: line.kind),
    Column("on", lambda line: line.on),
    Column("retention", _keep),
    Column("waiting", lambda line: line.found and line.found.waiting_rows, "number"),
    Column("rows", lambda line: line.found and line.found.verified_rows, "number"),
    Column("files", lambda line: line.found and line.found.verified_files, "number"),
    Column("size", lambda line: line.found and size(line.found.verified_bytes), "number"),
    Column("in grace", lambda line: line.found and line.found.grace_rows, "number"),
    Column("next drop", lambda line: line.found and line.found.next_drop_at),
    Column("dropped", lambda line: line.found and line.found.dropped_rows, "number"),
    Column("failures", lambda line: (line.found and line.found.failures) or None, "number"),
    Column("last verified", lambda line: line.found and line.found.last_verified_at),
    Column("late", lambda line: duration_text(line.overdue) if line.overdue else None),
)
BATCHES = (
    Column("id", lambda line: str(line.id), "number"),
    Column("state", lambda line: line.state, "state"),
    Column("kind", lambda line: line.kind),
    Column("rows", lambda line: line.rows, "number"),
    Column("files", lambda line: line.files, "number"),
    Column("size", lambda line: size(line.bytes), "number"),
    Column("from", lambda line: line.from_at),
    Column("to", lambda line: line.to_at),
    Column("moved", lambda line: line.moved_at),
    Column("verified", lambda line: line.verified_at),
    Column("may be dropped", lambda line: line.drop_eligible_at),
    Column("dropped", lambda line: line.dropped_at),
    Column("error", lambda line: line.error, "wide"),
)
FILES = (
    Column("number", lambda line: str(line.number), "number"),
    Column("state", lambda line: line.state, "state"),
    Column("rows", lambda line: line.rows, "number"),
    Column("size", lambda line: size(line.bytes), "number"),
    Column("checked", lambda line: line.checked_at),
    Column("sha256", lambda line: line.sha256 and line.sha256[:12]),
    Column("object", lambda line: line.object, "name"),
    Column("error", lambda line: line.error, "wide"),
)


@click.group(cls=OrderedGroup)
def archive() -> None:
    """Inspect, query and restore archived rows."""


@archive.command(epilog="Example: sereno archive status")
@output_option
@context_options
def status(context: "CommandContext", form: str) -> None:
    """Show archived, waiting and failed rows by kind."""
    from sereno.archive.operations import status as operation  # noqa: PLC0415 - slow to import; --help needs none

    found = context.run(operation(context.settings))
    match chosen_form(form):
        case "json" | "jsonl":
            show_json(found, indent=2 if form == "json" else 0)
        case "tsv":
            show_list(form, found.kinds, KINDS, empty="")
        case "table":
            _show_status(found)


@archive.command("list", epilog="Example: sereno archive list --kind jobs --state failed")
@click.option("--kind", help="Only this kind: jobs, deliveries, events, fires, logs, public.tenders.")
@click.option("--state", type=click.Choice(STATES))
@page_options
@output_option
@context_options
def list_batches(
    context: "CommandContext",
    kind: str | None,
    state: str | None,
    limit: int,
    before: int | None,
    fail_empty: bool,
    form: str,
) -> int:
    """List batches, newest first."""
    from sereno.archive.operations import OFF  # noqa: PLC0415 - see above
    from sereno.archive.queries import batches  # noqa: PLC0415 - see above
    from sereno.cli.notifications.page import end_of_page  # noqa: PLC0415 - slow to import; --help needs none

    wanted = None if kind is None else kind_named(kind)
    found = context.run(batches(wanted, state, before, limit))  # type: ignore[arg-type]  # click has checked it
    empty = "No batch matches." if context.settings.archive_url else f"No batches: {OFF}."
    show_list(form, found, BATCHES, empty=empty)
    return end_of_page(form, found, limit, fail_empty)


@archive.command(epilog="Example: sereno archive show 12")
@click.argument("number", type=click.IntRange(1, 2**63 - 1), metavar="BATCH")
@output_option
@context_options
def show(context: "CommandContext", number: int, form: str) -> None:
    """Show a batch with its files."""
    from sereno.archive.operations import batch  # noqa: PLC0415 - slow to import; --help needs none

    found = context.run(batch(number))
    if found is None:
        raise NotFound(f"no batch {number}: see sereno archive list")
    if chosen_form(form) in ("json", "jsonl"):
        show_json(found, indent=2 if form == "json" else 0)
    else:
        _show_batch(found, context.settings.schema, form)


@archive.command(epilog="Example: sereno archive run -a shop.jobs:app")
@context_options
def run(context: "CommandContext") -> int:
    """Move, export and drop old rows now. Exits with 1 when something failed.

    Your own tables are declared in your application: name it with -a.
    """
    import asyncio  # noqa: PLC0415 - slow to import; --help needs none

    from sereno.archive.operations import OFF  # noqa: PLC0415 - see above

    with archive_of(context) as app:
        if not app.archive.is_on:
            raise ConfigurationError(OFF)
        moved, exported = asyncio.run(_run(app))
    click.echo(f"Moved {counted(moved.days, 'day')} and {counted(moved.rows, 'row')} out of the hot tables.")
    verified = f"Verified {counted(exported.rows, 'row')} in {counted(exported.files, 'file')} ({size(exported.bytes)})"
    click.echo(f"{verified}; dropped {counted(exported.dropped, 'batch')}.".replace("batchs", "batches"))
    for day in moved.waiting:
        click.echo(f"{visible(day)} is being read: it is moved in a later run.", err=True)
    problems = [*moved.problems, *exported.problems]
    for problem in problems:
        click.echo(f"Problem: {visible(problem)}", err=True)
    return PROBLEMS if problems else 0


archive.add_command(verify)
archive.add_command(query)
archive.add_command(restore)
archive.add_command(export)


async def _run(app: "Sereno") -> "tuple[MoveResult, ExportResult]":
    archiver = app.archive.archiver()
    try:
        with progress("Move") as report:
            moved = await archiver.move(report)
        with progress("Export") as report:
            exported = await archiver.export(report)
    finally:
        await app.database.aclose()
    return moved, exported


def _show_status(found: "ArchiveStatus") -> None:
    from sereno.archive.operations import OFF  # noqa: PLC0415 - slow to import; --help needs none

    if found.on:
        click.echo(
            f"The archive is on: {found.url or 'disk'}. Rows are dropped {found.grace_days} days after verification."
        )
    else:
        click.echo(f"{OFF[0].upper()}{OFF[1:]}.")
    kinds = [line for line in found.kinds if line.on or line.found is not None]
    show_list("table", kinds, KINDS, empty="Nothing is archived yet.")
    if found.lag:
        click.echo(f"The oldest unverified batch was moved {duration_text(found.lag)} ago.")
    if found.restored.value:
        click.echo(f"{found.restored} restored rows are in the hot tables.")
    for file in found.failures:
        rows = "its rows are still in the database" if file.held else "its rows are NOT in the database any more"
        click.echo(f"Failed: {visible(file.object)} ({rows}): {visible(file.error or '')}")
    if found.failures:
        click.echo(
            "sereno archive run writes rows that are still in the database again; sereno archive verify checks again."
        )


def _show_batch(found: "BatchDetail", schema: str, form: str) -> None:
    line, about = found.batch, found.about
    show_lines(
        (
            ("batch", line.id),
            ("state", line.state),
            ("kind", line.kind),
            ("from table", line.source),
            ("held in", about.held_in and f"{schema}_archive.{about.held_in}"),
            ("rows", None if line.rows is None else f"{line.rows:,}"),
            ("key", ", ".join(about.key_columns)),
            ("time", about.time_column),
            ("moved", human(line.moved_at)),
            ("verified", human(line.verified_at)),
            ("may drop", human(line.drop_eligible_at)),
            ("dropped", human(line.dropped_at)),
            ("error", line.error),
        )
    )
    show_list(form, found.files, FILES, empty="It has no files yet.")
    if found.more:
        click.echo(f"It has more than {len(found.files):,} files; these are the first.", err=True)
