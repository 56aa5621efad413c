"""Output formats: a table on a terminal, tab-separated lines in a pipe, JSON with `-o json`. Data goes to stdout."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import click

from sereno.cli.options import stdout_is_terminal
from sereno.duration import duration_text

if TYPE_CHECKING:
    from rich.console import Console

Form = Literal["table", "tsv", "json", "jsonl"]

STYLES = {
    "pending": "blue",
    "sending": "bold cyan",
    "sent": "cyan",
    "delivered": "green",
    "read": "green",
    "bounced": "bold red",
    "skipped": "dim",
    "failed": "bold red",
    "invalid": "yellow",
    "unknown": "bold yellow",
    "waiting": "magenta",
    "ready": "cyan",
    "running": "bold cyan",
    "scheduled": "blue",
    "succeeded": "green",
    "dead": "bold red",
    "cancelled": "dim",
    "enabled": "green",
    "paused": "yellow",
    "disabled": "yellow",
    "parked": "bold red",
    "finished": "dim",
    "alive": "green",
    "closed": "dim",
    "expired": "yellow",
    "ok": "green",
    "warn": "yellow",
    "fail": "bold red",
    "retry": "yellow",
    "crash": "red",
}
# Width in characters of a table that is not written to a terminal (`-o table` in a pipe).
PLAIN_WIDTH = 160
# Characters between two columns, and the least width of a wide column on a narrow terminal.
GAP = 2
NARROWEST = 8


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a list. `style`: "state" colours by value; "wide" is truncated on a narrow terminal."""

    name: str
    value: Callable[[Any], Any]
    style: Literal["", "state", "number", "seconds", "wide"] = ""


def chosen_form(form: str) -> Form:
    """Return the output form; `auto` is a table on a terminal and TSV elsewhere."""
    if form == "auto":
        return "table" if stdout_is_terminal() else "tsv"
    return form  # type: ignore[return-value]  # click has checked it against FORMS


def show_list(form: str, items: Sequence[Any], columns: Sequence[Column], *, whole: Any = None, empty: str) -> None:
    """Print a list of records. `whole`: printed as JSON instead of the list; `empty`: the message for an empty list."""
    match chosen_form(form):
        case "json":
            show_json({"items": items} if whole is None else whole)
        case "jsonl":
            for item in items:
                click.echo(as_json(item))
        case "tsv":
            click.echo("\t".join(column.name for column in columns))
            for item in items:
                click.echo("\t".join(_plain(column.value(item)) for column in columns))
        case "table":
            if items:
                terminal().print(table(items, columns))
            else:
                click.echo(empty, err=True)


def show_record(form: str, record: Any, lines: Callable[[], Iterable[str]]) -> None:
    """Print one record as JSON, or as lines of text."""
    if chosen_form(form) in ("json", "jsonl"):
        show_json(record, indent=0 if form == "jsonl" else 2)
        return
    for line in lines():
        click.echo(visible(line))


def show_json(value: Any, indent: int = 2) -> None:
    text = as_json(value)
    if indent:
        import msgspec  # noqa: PLC0415 - only needed for JSON

        text = msgspec.json.format(text, indent=indent)
    click.echo(text)


def as_json(value: Any) -> str:
    """Return one line of JSON; times are in RFC 3339."""
    import msgspec  # noqa: PLC0415 - only needed for JSON

    return msgspec.json.encode(value).decode()


def terminal() -> "Console":
    """Return Rich's console on stdout; imported only when a table is printed."""
    from rich.console import Console  # noqa: PLC0415 - slow to import

    return Console(highlight=False, width=None if stdout_is_terminal() else PLAIN_WIDTH)


def table(items: Iterable[Any], columns: Sequence[Column]) -> Any:
    """Return a table without a frame. On a narrow terminal, wide columns are truncated."""
    from rich.table import Table  # noqa: PLC0415 - slow to import
    from rich.text import Text  # noqa: PLC0415 - slow to import

    rows = [[_cell(column, column.value(item)) for column in columns] for item in items]
    made = Table(box=None, header_style="dim", pad_edge=False, padding=(0, GAP, 0, 0))
    for column, width in zip(columns, _widths(columns, rows, terminal().width), strict=True):
        right = column.style in ("number", "seconds")
        made.add_column(
            column.name, justify="right" if right else "left", no_wrap=True, overflow="ellipsis", width=width
        )
    for row in rows:
        made.add_row(
            *(
                Text(text, style=STYLES.get(text, "") if column.style == "state" else "")
                for column, text in zip(columns, row, strict=True)
            )
        )
    return made


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[str]], available: int) -> list[int]:
    """Return the width of each column; wide columns share what the others leave of the available width."""
    needs = [max([len(column.name), *(len(row[index]) for row in rows)]) for index, column in enumerate(columns)]
    wide = [index for index, column in enumerate(columns) if column.style == "wide"]
    left = available - GAP * (len(columns) - 1) - sum(need for index, need in enumerate(needs) if index not in wide)
    for index in wide:
        needs[index] = min(needs[index], max(NARROWEST, left // len(wide)))
    return needs


def _cell(column: Column, value: Any) -> str:
    return human_seconds(value) if column.style == "seconds" else human(value)


def human(value: Any) -> str:
    """Return a value as text for a table, without control characters: it may hold user input."""
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else ""
        case datetime():
            return short_time(value)
        case int():
            return f"{value:,}"
        case Mapping():
            return visible(" ".join(f"{key}={part}" for key, part in value.items()))
        case list() | tuple():
            return visible(" ".join(str(part) for part in value))
        case _:
            return visible(" ".join(str(value).split()))


def counted(count: Any, noun: str) -> str:
    """Return a count with its noun: 1 job, 2,000 jobs. The text of a Count marks one that is not exact."""
    number = f"{count:,}" if isinstance(count, int) else str(count)
    return f"{number} {noun}" if number == "1" else f"{number} {noun}s"


def human_seconds(value: float | None) -> str:
    return "" if value is None else duration_text(value) if value >= 0 else f"-{duration_text(-value)}"


def short_time(moment: datetime) -> str:
    """Return the local time, with the date if it is not today."""
    local = moment.astimezone()
    same_day = local.date() == datetime.now(UTC).astimezone().date()
    return local.strftime("%H:%M:%S") if same_day else local.strftime("%Y-%m-%d %H:%M")


def _plain(value: Any) -> str:
    match value:
        case datetime():
            return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
        case int() if not isinstance(value, bool):
            return str(value)
        case float():
            return f"{value:.3f}"
        case object(value=int(found), exact=bool(exact)):
            return str(found) if exact else f">{found}"
        case Mapping():
            return visible(",".join(f"{key}={part}" for key, part in value.items()))
        case list() | tuple():
            return visible(",".join(str(part) for part in value))
        case _:
            return human(value)


def visible(text: str) -> str:
    """Return the text on one line without control characters: user input may hold terminal sequences."""
    return "".join(
        letter if letter.isprintable() else " " if letter.isspace() else "\N{REPLACEMENT CHARACTER}" for letter in text
    )
