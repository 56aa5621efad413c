"""`sereno archive verify`, `query` and `export`: archived files, read again."""

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
from sereno.cli.options import Moment, context_options, stdout_is_terminal
from sereno.cli.output import Column, counted, show_list, visible
from sereno.cli.progress import progress

if TYPE_CHECKING:
    from sereno.archive.duckdb_views import QueryRows
    from sereno.archive.verifier import VerifyResult
    from sereno.cli.context import CommandContext

FORMS = ("auto", "table", "json", "jsonl", "csv")
# Of a table; nobody reads more of them.
MOST_SHOWN = 1000
BROKEN = 1


@click.command(epilog="Example: sereno archive verify --sample 20")
@click.option("--batch", type=click.IntRange(1, 2**63 - 1), metavar="BATCH", help="The files of one batch.")
@click.option("--sample", type=click.IntRange(1, 1_000_000), metavar="N", help="So many files, by chance.")
@click.option("--since", type=Moment(), help='Files that were verified since: "7d" ago, or a date.')
@context_options
def verify(context: "CommandContext", batch: int | None, sample: int | None, since: datetime | None) -> int:
    """Read files again, and compare all of them with what the database knows. Exits with 1 when anything is wrong."""
    from sereno.archive.restore_store import FileSelection  # noqa: PLC0415 - see above
    from sereno.archive.verifier import ArchiveVerifier  # noqa: PLC0415 - slow to import; --help needs none

    with archive_of(context) as app, progress("Verify") as said:
        done = ArchiveVerifier(app.database, app.settings).inspect(FileSelection(batch, since), sample, said)
    _tell(done)
    return BROKEN if done.problems else 0


def _tell(done: "VerifyResult") -> None:
    sound = done.files - done.broken
    words = f"{counted(sound, 'file')} of {done.files:,} are as they were verified"
    click.echo(f"{words}: {counted(done.rows, 'row')}, {size(done.bytes)}.")
    for problem in done.problems:
        click.echo(f"Problem: {visible(problem)}", err=True)
    if done.unknown:
        click.echo(
            f"{counted(done.unknown, 'object')} in the archive belong to no batch, and are left alone:", err=True
        )
        for name in done.strangers:
            click.echo(f"  {visible(name)}", err=True)


@click.command(epilog='Example: sereno archive query "select task, count(*) from jobs group by 1" -o csv')
@click.argument("question", metavar="SQL")
@span_options
@click.option("-o", "--output", "form", type=click.Choice(FORMS), default="auto", help="csv, json and jsonl show all.")
@context_options
def query(
    context: "CommandContext", question: str, from_at: datetime | None, to_at: datetime | None, form: str
) -> None:
    """Ask archived rows, in SQL: jobs, attempts, deliveries, receipts, events, fires, logs, tables of your own.

    DuckDB answers, from files that are verified. --from and --to spare it the others. It can read nothing else.
    """
    from sereno.archive.duckdb_views import QueryRows  # noqa: PLC0415 - slow to import; --help needs none
    from sereno.archive.files import views  # noqa: PLC0415 - see above

    with archive_of(context) as app:
        found = context.run(views(span_of(from_at, to_at)))
        if not found:
            raise NotFound("the archive has no verified file of that time: see sereno archive status")
        with QueryRows(place_of(app), found) as answers:
            _answer(answers, question, form)


def _answer(answers: "QueryRows", question: str, form: str) -> None:
    if form == "json":
        click.echo("[", nl=False)
        for number, line in enumerate(answers.lines(question)):
            click.echo(f"{',' if number else ''}\n{line}", nl=False)
        click.echo("\n]")
    elif form == "jsonl":
        for line in answers.lines(question):
            click.echo(line)
    elif form == "csv":
        names, rows = answers.texts(question)
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(names)
        # A terminal obeys some of what anybody may have written.
        shown = stdout_is_terminal()
        writer.writerows([visible(value or "") for value in row] if shown else row for row in rows)
    else:
        names, rows = answers.texts(question)
        _show_table(form, names, rows)


def _show_table(form: str, names: list[str], rows: Iterable[tuple[str | None, ...]]) -> None:
    if form == "auto" and not stdout_is_terminal():
        click.echo("\t".join(map(visible, names)))
        for row in rows:
            click.echo("\t".join(visible(value or "") for value in row))
        return
    found = list(islice(rows, MOST_SHOWN + 1))
    columns = [Column(visible(name), itemgetter(place), "wide") for place, name in enumerate(names)]
    show_list("table", found[:MOST_SHOWN], columns, empty="There is no such row.")
    if len(found) > MOST_SHOWN:
        click.echo(f"There are more than {MOST_SHOWN:,} rows: -o csv, json or jsonl has all of them.", err=True)


@click.command(epilog="Example: sereno archive export jobs --from 2026-01-01 --to 2026-02-01 --out january.parquet")
@click.argument("kind", metavar="KIND")
@span_options
@click.option("--out", required=True, type=click.Path(path_type=Path, dir_okay=False), help=".parquet, .csv or .jsonl")
@context_options
def export(context: "CommandContext", kind: str, from_at: datetime | None, to_at: datetime | None, out: Path) -> None:
    """Archived rows of a time as one file. Each file that they come from is compared with its checksum first."""
    from sereno.archive.files import export as plan  # noqa: PLC0415 - slow to import; --help needs none
    from sereno.database.driver import drive  # noqa: PLC0415 - see above

    with archive_of(context) as app, progress("Export") as said:
        written = drive(plan(kind_named(kind), span_of(from_at, to_at), place_of(app), out, said), app.database.run)
    if not written and not out.exists():
        raise NotFound(f"the archive has no verified file of {visible(kind)} of that time")
    click.echo(f"{counted(written, 'row')} of {visible(kind_named(kind))} are in {visible(str(out))}.", err=True)
