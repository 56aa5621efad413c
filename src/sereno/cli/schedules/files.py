"""`sereno schedule export` and `import`: definitions as lines of JSON, and schedules of other programs."""

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
    from sereno.cli.schedules.importing import Import, Refusal, Source
    from sereno.jobs.filters import ScheduleFilter
    from sereno.schedules.importers import ImportedSchedule

# As in sereno.schedules.importers, which --help need not import.
PROGRAMS = ("celery-beat", "apscheduler", "pg-cron")
SQL_TASK = "run_sql"
PAGE = 1000
# An address begins with its scheme; SQLAlchemy puts a driver behind it, which is no part of the address.
SCHEME = re.compile(r"(?P<kind>[a-z][a-z0-9.-]*)(?:\+[a-z0-9_.-]*)?://", re.IGNORECASE)
# Refusals and notes that are shown; the others are counted.
SHOWN = 20
USAGE = 2
WORDS = ("Created", "changed", "unchanged", "refused")


@click.command("export", epilog='Example: sereno schedule export "menu:*" > menus.jsonl')
@which_options(states=True)
@context_options
def export_schedules(context: "CommandContext", wanted: "ScheduleFilter") -> None:
    """Definitions, as lines of JSON. What they are, not how they went."""
    from sereno.schedules.bulk_write import exported  # noqa: PLC0415 - slow to import; --help needs none
    from sereno.schedules.store import page  # noqa: PLC0415 - see above

    after, number = "", 0
    while rows := context.run(page(wanted, PAGE, after)):
        for row in rows:
            click.echo(as_json(exported(row)))
        after, number = rows[-1].key, number + len(rows)
    if not number:
        click.echo("No schedule matches.", err=True)


@click.command("import", epilog="Example: sereno schedule import menus.jsonl --dry-run")
@click.argument("path", required=False, metavar="[FILE|-]")
@click.option("--from", "program", type=click.Choice(PROGRAMS), help="Read the tables of another program instead.")
@click.option("--source", metavar="URL", help="The database of that program.  [default: this one]")
@click.option("--task-map", "renames", multiple=True, metavar="OLD=NEW", help="Another name for a task; repeatable.")
@click.option("--strict", is_flag=True, help="All of them, or none.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
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
    """Schedules out of a file, or another program. Those that are there already are changed to be so.

    With an application, every job is checked. A line that is refused does not stop the others.
    """
    from sereno.cli.schedules.importing import Import  # noqa: PLC0415 - slow to import; --help needs none

    if path is not None and program is not None:
        raise click.UsageError("A FILE or --from, not both.")
    if path is None and program is None:
        raise click.UsageError("Import what? Name a FILE (- for stdin), or a program with --from.")
    if source and not program:
        raise click.UsageError("--source belongs to --from.")
    address = None if source is None else _address(source)
    make_job = job_maker(context, unchecked=not context.settings.app)
    names = _renames(renames)
    made = Import(context, make_job, names, strict=strict, dry_run=dry_run)
    context.connection(create=not dry_run)
    if program is not None:
        _read_program(context, made, program, address, names)
    else:
        assert path is not None
        with _opened(path) as file, _bar(path, file) as sources:
            made.read(sources)
    _forget_notes_of_refused(made)
    _tell(made, form)
    if not context.settings.app and made.written:
        click.echo("The jobs were not checked: with -a, your application checks them.", err=True)
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
def _bar(path: str, file: IO[bytes]) -> "Iterator[Iterator[Source]]":
    """The lines of a file, with a bar for whoever watches."""
    from sereno.cli.schedules.importing import of_lines  # noqa: PLC0415 - slow to import; --help needs none

    hidden = path == "-" or not sys.stderr.isatty()
    size = 0 if path == "-" else Path(path).stat().st_size
    with click.progressbar(length=size, label="Importing", file=sys.stderr, hidden=hidden) as progress:
        yield of_lines(file, progress.update)


def _address(source: str) -> str:
    """The address of a PostgreSQL, also when it is written as SQLAlchemy has it."""
    scheme = SCHEME.match(source)
    if scheme is None:
        return source
    if scheme["kind"].lower() not in ("postgresql", "postgres"):
        # What comes after the scheme may hold a password.
        raise click.UsageError(
            f'--source "{scheme["kind"]}://…" is not a PostgreSQL address: write postgresql://user@host/database'
        )
    return f"postgresql://{source[scheme.end() :]}"


def _read_program(
    context: "CommandContext", made: "Import", program: str, address: str | None, renamed: Collection[str]
) -> None:
    from sereno.cli.output import visible  # noqa: PLC0415 - see above
    from sereno.cli.schedules.importing import of_program  # noqa: PLC0415 - slow to import; --help needs none

    found = _found(context, program, address)
    made.read(of_program(each for each in found if not each.left_out))
    made.notes += [(visible(each.key), str(each.note)) for each in found if each.left_out]
    tasks = {each.schedule["task"] for each in found if each.schedule is not None}
    if program == "pg-cron" and tasks - {*renamed, *(context.app.registry.names if context.settings.app else ())}:
        made.notes.append((SQL_TASK, f"write this task, or name the one that runs SQL with --task-map {SQL_TASK}=…"))


def _found(context: "CommandContext", program: str, address: str | None) -> "list[ImportedSchedule]":
    from sereno.database.connect import connect  # noqa: PLC0415 - see above
    from sereno.schedules.importers import read  # noqa: PLC0415 - slow to import; --help needs none

    if address is None:
        return read(program, context.connection())
    with connect(address, context.settings, "import") as connection:
        return read(program, connection)


def _forget_notes_of_refused(made: "Import") -> None:
    """What would be different does not matter where nothing was imported."""
    refused = {refusal.where for refusal in made.refused}
    made.notes = [(where, note) for where, note in made.notes if where not in refused]


def _tell(made: "Import", form: str) -> None:
    from sereno.cli.output import visible  # noqa: PLC0415 - slow to import; --help needs none

    if chosen_form(form) in ("json", "jsonl"):
        show_json(made.report(), indent=2 if form == "json" else 0)
        return
    counts = [made.counts["created"], made.counts["changed"], made.counts["unchanged"], len(made.refused)]
    words = ("Would create", "change", "leave as they are", "refuse") if made.dry_run else WORDS
    click.echo(", ".join(f"{word} {count:,}" for word, count in zip(words, counts, strict=True)) + ".")
    _list("would change" if made.dry_run else "changed", [visible(key) for key in made.changed])
    _list("refused", [_refusal(each) for each in made.refused])
    _list("note", [visible(f"{where}: {note}") for where, note in made.notes])
    for old in made.unused_renames:
        click.echo(f"--task-map: no schedule has the task {old!r}.", err=True)


def _refusal(refusal: "Refusal") -> str:
    """The line alone does not say which schedule it is."""
    which = "" if refusal.line is None or refusal.key is None else f"schedule {refusal.key!r:.80}: "
    return f"{refusal.where}: {which}{refusal.problem}"


def _list(word: str, lines: Sequence[str]) -> None:
    for line in lines[:SHOWN]:
        click.echo(f"{word} {line}", err=True)
    if len(lines) > SHOWN:
        click.echo(f"… and {len(lines) - SHOWN:,} more; -o json has all of them.", err=True)
