"""`sereno schedule export` and `import`: definitions as JSON lines, and schedules of other programs."""

import re
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from sereno.cli.options import context_options, output_option
from sereno.cli.output import as_json, chosen_form, show_json
from sereno.cli.schedules.options import which_options
from sereno.cli.schedules.write import job_maker
from sereno.errors import InvalidArguments

if TYPE_CHECKING:
    from sereno.cli.context import CommandContext
    from sereno.cli.schedules.importing import ImportRefusal, ImportSource, ScheduleImport
    from sereno.jobs.filters import ScheduleFilter
    from sereno.schedules.importers import ImportedSchedule

# Repeated from sereno.schedules.importers, so that --help does not import it.
PROGRAMS = ("celery-beat", "apscheduler", "pg-cron")
SQL_TASK = "run_sql"
PAGE = 1000
# The scheme of a database URL. SQLAlchemy appends a driver to it (postgresql+psycopg), which libpq does not accept.
SCHEME = re.compile(r"(?P<kind>[a-z][a-z0-9.-]*)(?:\+[a-z0-9_.-]*)?://", re.IGNORECASE)
# Refusals and notes that are listed; the others are only counted.
SHOWN = 20
USAGE = 2
RESULTS = ("Created", "changed", "unchanged", "refused")


@click.command("export", epilog='Example: sereno schedule export "menu:*" > menus.jsonl')
@which_options(states=True)
@context_options
def export_schedules(context: "CommandContext", wanted: "ScheduleFilter") -> None:
    """Print schedule definitions as JSON lines, without their history."""
    from sereno.schedules.bulk_write import exported  # noqa: PLC0415 - slow to import; --help needs none
    from sereno.schedules.queries import page  # noqa: PLC0415 - see above

    after, number = "", 0
    while rows := context.run(page(wanted, PAGE, after)):
        for row in rows:
            click.echo(as_json(exported(row)))
        after, number = rows[-1].key, number + len(rows)
    if not number:
        click.echo("No schedule matches.", err=True)


@click.command("import", epilog="Example: sereno schedule import menus.jsonl --dry-run")
@click.argument("path", required=False, metavar="[FILE|-]")
@click.option("--from", "program", type=click.Choice(PROGRAMS), help="Import from the tables of another program.")
@click.option("--source", metavar="URL", help="Database of that program.  [default: this one]")
@click.option("--task-map", "renames", multiple=True, metavar="OLD=NEW", help="Rename a task; repeatable.")
@click.option("--strict", is_flag=True, help="Import all of them or none.")
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@output_option
@context_options
def import_schedules(
    context: "CommandContext",
    path: str | None,
    program: str | None,
    source: str | None,
    renames: tuple[str, ...],
    strict: bool,
    dry_run: bool,
    form: str,
) -> int:
    """Import schedules from a file or another program. Existing schedules are replaced.

    With an application, every job is checked. A refused line does not stop the others.
    """
    from sereno.cli.schedules.importing import ScheduleImport  # noqa: PLC0415 - slow to import; --help needs none

    if path is not None and program is not None:
        raise click.UsageError("FILE and --from exclude each other: choose one.")
    if path is None and program is None:
        raise click.UsageError("Name a FILE (- for stdin), or a program with --from.")
    if source and not program:
        raise click.UsageError("--source needs --from.")
    address = None if source is None else _address(source)
    make_job = job_maker(context, unchecked=not context.settings.app)
    names = _renames(renames)
    made = ScheduleImport(context, make_job, names, strict=strict, dry_run=dry_run)
    context.connection(create=not dry_run)
    if program is not None:
        _read_program(context, made, program, address, names)
    else:
        assert path is not None
        with _opened(path) as file, _bar(path, file) as sources:
            made.read(sources)
    _drop_notes_of_refused(made)
    _report(made, form)
    if not context.settings.app and made.written:
        click.echo("The jobs were not checked: pass -a to check them with your application.", err=True)
    return USAGE if made.refused else 0


def _renames(words: tuple[str, ...]) -> dict[str, str]:
    pairs = [word.partition("=") for word in words]
    if wrong := [word for word, (old, _, new) in zip(words, pairs, strict=True) if not (old and new)]:
        raise click.UsageError(f"--task-map {wrong[0]!r}: write OLD=NEW.")
    return {old: new for old, _, new in pairs}


@contextmanager
def _opened(path: str) -> Iterator[IO[bytes]]:
    if path == "-":
        yield sys.stdin.buffer
        return
    try:
        with Path(path).open("rb") as file:
            yield file
    except (OSError, ValueError) as error:
        raise InvalidArguments(f"{path!r:.80} cannot be read: {getattr(error, 'strerror', None) or error}") from None


@contextmanager
def _bar(path: str, file: IO[bytes]) -> "Iterator[Iterator[ImportSource]]":
    """Yield the lines of a file, with a progress bar on a terminal."""
    from sereno.cli.schedules.importing import of_lines  # noqa: PLC0415 - slow to import; --help needs none

    hidden = path == "-" or not sys.stderr.isatty()
    size = 0 if path == "-" else Path(path).stat().st_size
    with click.progressbar(length=size, label="Importing", file=sys.stderr, hidden=hidden) as progress:
        yield of_lines(file, progress.update)


def _address(source: str) -> str:
    """Return the URL of a PostgreSQL database without the driver that SQLAlchemy appends to the scheme."""
    scheme = SCHEME.match(source)
    if scheme is None:
        return source
    if scheme["kind"].lower() not in ("postgresql", "postgres"):
        # The rest of the URL may hold a password: do not print it.
        raise click.UsageError(
            f'--source "{scheme["kind"]}://…" is not a PostgreSQL URL: write postgresql://user@host/database'
        )
    return f"postgresql://{source[scheme.end() :]}"


def _read_program(
    context: "CommandContext", made: "ScheduleImport", program: str, address: str | None, renamed: Collection[str]
) -> None:
    from sereno.cli.output import visible  # noqa: PLC0415 - see above
    from sereno.cli.schedules.importing import of_program  # noqa: PLC0415 - slow to import; --help needs none

    found = _found(context, program, address)
    made.read(of_program(each for each in found if not each.left_out))
    made.notes += [(visible(each.key), str(each.note)) for each in found if each.left_out]
    tasks = {each.schedule["task"] for each in found if each.schedule is not None}
    if program == "pg-cron" and tasks - {*renamed, *(context.app.registry.names if context.settings.app else ())}:
        made.notes.append((SQL_TASK, f"define this task, or name the task that runs SQL with --task-map {SQL_TASK}=…"))


def _found(context: "CommandContext", program: str, address: str | None) -> "list[ImportedSchedule]":
    from sereno.database.connect import connect  # noqa: PLC0415 - see above
    from sereno.schedules.importers import read  # noqa: PLC0415 - slow to import; --help needs none

    if address is None:
        return read(program, context.connection())
    with connect(address, context.settings, "import") as connection:
        return read(program, connection)


def _drop_notes_of_refused(made: "ScheduleImport") -> None:
    """Drop notes about schedules that were not imported."""
    refused = {refusal.where for refusal in made.refused}
    made.notes = [(where, note) for where, note in made.notes if where not in refused]


def _report(made: "ScheduleImport", form: str) -> None:
    from sereno.cli.output import visible  # noqa: PLC0415 - slow to import; --help needs none

    if chosen_form(form) in ("json", "jsonl"):
        show_json(made.report(), indent=2 if form == "json" else 0)
        return
    counts = [made.counts["created"], made.counts["changed"], made.counts["unchanged"], len(made.refused)]
    labels = ("Would create", "change", "leave unchanged", "refuse") if made.dry_run else RESULTS
    click.echo(", ".join(f"{label} {count:,}" for label, count in zip(labels, counts, strict=True)) + ".")
    _list("would change" if made.dry_run else "changed", [visible(key) for key in made.changed])
    _list("refused", [_refusal(each) for each in made.refused])
    _list("note", [visible(f"{where}: {note}") for where, note in made.notes])
    for old in made.unused_renames:
        click.echo(f"--task-map: no schedule has the task {old!r}.", err=True)


def _refusal(refusal: "ImportRefusal") -> str:
    """Return a refusal with its line number and the key of the schedule."""
    which = "" if refusal.line is None or refusal.key is None else f"schedule {refusal.key!r:.80}: "
    return f"{refusal.where}: {which}{refusal.problem}"


def _list(word: str, lines: Sequence[str]) -> None:
    for line in lines[:SHOWN]:
        click.echo(f"{word} {line}", err=True)
    if len(lines) > SHOWN:
        click.echo(f"… and {len(lines) - SHOWN:,} more; -o json has all of them.", err=True)
