"""`sereno archive verify`, `query` and `export`: commands that read archived files."""

import csv
import sys
from collections.abc import Iterable
from datetime import datetime
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sereno.cli.archive.context import archive_of, kind_named, place_of, size, span_of, span_options
from sereno.cli.notifications.page import NotFound
from sereno.cli.options import MomentType, context_options, stdout_is_terminal
from sereno.cli.output import Column, counted, show_list, visible
from sereno.cli.progress import progress

if TYPE_CHECKING:
    from sereno.archive.duckdb_views import QueryRows
    from sereno.archive.verifier import VerifyResult
    from sereno.cli.context import CommandContext

FORMS = ("auto", "table", "json", "jsonl", "csv")
# Rows that a table shows; the other formats show all.
MOST_SHOWN = 1000
BROKEN = 1


@click.command(epilog="Example: sereno archive verify --sample 20")
@click.option("--batch", type=click.IntRange(1, 2**63 - 1), metavar="BATCH", help="Only the files of this batch.")
@click.option("--sample", type=click.IntRange(1, 1_000_000), metavar="N", help="Only N random files.")
@click.option("--since", type=MomentType(), help='Only files verified since a date, or an age such as "7d".')
@context_options
def verify(context: "CommandContext", batch: int | None, sample: int | None, since: datetime | None) -> int:
    """Read archived files and compare them with the records of the database. Exits with 1 on a mismatch."""
    from sereno.archive.rows import FileSelection  # noqa: PLC0415 - see above
    from sereno.archive.verifier import ArchiveVerifier  # noqa: PLC0415 - slow to import; --help needs none

    with archive_of(context) as app, progress("Verify") as report:
        done = ArchiveVerifier(app.database, app.settings).verify(FileSelection(batch, since), sample, report)
    _report(done)
    return BROKEN if done.problems else 0


def _report(done: "VerifyResult") -> None:
    intact = done.files - done.broken
    text = f"{counted(intact, 'file')} of {done.files:,} intact"
    click.echo(f"{text}: {counted(done.rows, 'row')}, {size(done.bytes)}.")
    for problem in done.problems:
        click.echo(f"Problem: {visible(problem)}", err=True)
    if done.unknown:
        click.echo(f"{counted(done.unknown, 'object')} in the archive without a batch, left unchanged:", err=True)
        for name in done.unknown_objects:
            click.echo(f"  {visible(name)}", err=True)


@click.command(epilog='Example: sereno archive query "select task, count(*) from jobs group by 1" -o csv')
@click.argument("question", metavar="SQL")
@span_options
@click.option(
    "-o",
    "--output",
    "form",
    type=click.Choice(FORMS),
    default="auto",
    help="Output format; csv, json and jsonl show all rows.",
)
@context_options
def query(
    context: "CommandContext", question: str, from_at: datetime | None, to_at: datetime | None, form: str
) -> None:
    """Query archived rows in SQL: jobs, attempts, deliveries, receipts, events, fires, logs and your own tables.

    DuckDB runs the query on verified files and can read nothing else. --from and --to limit the files that it reads.
    """
    from sereno.archive.duckdb_views import QueryRows  # noqa: PLC0415 - slow to import; --help needs none
    from sereno.archive.files import views  # noqa: PLC0415 - see above

    with archive_of(context) as app:
        found = context.run(views(span_of(from_at, to_at)))
        if not found:
            raise NotFound("the archive has no verified file in that range: see sereno archive status")
        with QueryRows(place_of(app), found) as results:
            _show_results(results, question, form)


def _show_results(results: "QueryRows", question: str, form: str) -> None:
    if form == "json":
        click.echo("[", nl=False)
        for number, line in enumerate(results.lines(question)):
            click.echo(f"{',' if number else ''}\n{line}", nl=False)
        click.echo("\n]")
    elif form == "jsonl":
        for line in results.lines(question):
            click.echo(line)
    elif form == "csv":
        names, rows = results.texts(question)
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(names)
        # Rows may hold user input with terminal sequences.
        shown = stdout_is_terminal()
        writer.writerows([visible(value or "") for value in row] if shown else row for row in rows)
    else:
        names, rows = results.texts(question)
        _show_table(form, names, rows)


def _show_table(form: str, names: list[str], rows: Iterable[tuple[str | None, ...]]) -> None:
    if form == "auto" and not stdout_is_terminal():
        click.echo("\t".join(map(visible, names)))
        for row in rows:
            click.echo("\t".join(visible(value or "") for value in row))
        return
    found = list(islice(rows, MOST_SHOWN + 1))
    columns = [Column(visible(name), itemgetter(place), "wide") for place, name in enumerate(names)]
    show_list("table", found[:MOST_SHOWN], columns, empty="No rows.")
    if len(found) > MOST_SHOWN:
        click.echo(f"There are more than {MOST_SHOWN:,} rows: use -o csv, json or jsonl to get all of them.", err=True)


@click.command(epilog="Example: sereno archive export jobs --from 2026-01-01 --to 2026-02-01 --out january.parquet")
@click.argument("kind", metavar="KIND")
@span_options
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="Output file: .parquet, .csv or .jsonl.",
)
@context_options
def export(context: "CommandContext", kind: str, from_at: datetime | None, to_at: datetime | None, out: Path) -> None:
    """Export archived rows of a range of time to one file. Source files are checked against their checksums first."""
    from sereno.archive.files import export as plan  # noqa: PLC0415 - slow to import; --help needs none
    from sereno.database.driver import drive  # noqa: PLC0415 - see above

    with archive_of(context) as app, progress("Export") as report:
        written = drive(plan(kind_named(kind), span_of(from_at, to_at), place_of(app), out, report), app.database.run)
    if not written and not out.exists():
        raise NotFound(f"the archive has no verified file of {visible(kind)} in that range")
    click.echo(f"Exported {counted(written, 'row')} of {visible(kind_named(kind))} to {visible(str(out))}.", err=True)
