"""Output formats: a table on a terminal, tab-separated lines in a pipe, JSON with `-o json`. Data goes to stdout."""

import shutil
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import click

from sereno.cli.options import stdout_is_terminal
from sereno.cli.table_layout import GAP, layout, middle
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
# Width in characters below which texts beside a label are not wrapped any narrower.
NARROWEST_TEXT = 20


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a list. `style`: "state" colours by value; "wide" is truncated at its end, "name" in its middle.

    `gives_way`: a narrow terminal drops columns with higher numbers first, then from the right.
    """

    name: str
    value: Callable[[Any], Any]
    style: Literal["", "state", "number", "seconds", "name", "wide"] = ""
    gives_way: int = 0


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
                made, dropped = _fitted(items, columns)
                terminal().print(made)
                if dropped:
                    click.secho(f"No room for: {', '.join(dropped)}. -o json shows all.", dim=True, err=True)
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
    """Return a table without a frame that fits the terminal."""
    return _fitted(items, columns)[0]


def _fitted(items: Iterable[Any], columns: Sequence[Column]) -> tuple[Any, list[str]]:
    """Return the table, and the names of the columns that the terminal has no room for."""
    from rich.cells import cell_len  # noqa: PLC0415 - slow to import
    from rich.table import Table  # noqa: PLC0415 - slow to import
    from rich.text import Text  # noqa: PLC0415 - slow to import

    rows = [[_cell(column, column.value(item)) for column in columns] for item in items]
    cells = [[cell_len(row[place]) for row in rows] for place in range(len(columns))]
    needs = [max([len(column.name), *widths]) for column, widths in zip(columns, cells, strict=True)]
    filled = [any(widths) for widths in cells]
    chosen = layout(columns, needs, filled, terminal().width)
    made = Table(box=None, header_style="dim", pad_edge=False, padding=(0, GAP, 0, 0))
    for place, width in zip(chosen.places, chosen.widths, strict=True):
        column = columns[place]
        justify: Literal["left", "right"] = "right" if column.style in ("number", "seconds") else "left"
        made.add_column(column.name, justify=justify, no_wrap=True, overflow="ellipsis", width=width)
    for row in rows:
        made.add_row(
            *(
                Text(_shortened(columns[place], row[place], width), style=_colour(columns[place], row[place]))
                for place, width in zip(chosen.places, chosen.widths, strict=True)
            )
        )
    return made, chosen.dropped(columns, filled)


def _shortened(column: Column, text: str, width: int) -> str:
    return middle(text, width) if column.style == "name" else text


def _colour(column: Column, text: str) -> str:
    return STYLES.get(text, "") if column.style == "state" else ""


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


def wrapped(text: str, indent: int) -> list[str]:
    """Return the lines of a text beside a label of this width, as they fit the terminal; one line in a pipe."""
    if not stdout_is_terminal():
        return [text]
    width = max(NARROWEST_TEXT, shutil.get_terminal_size().columns - indent)
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]


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
