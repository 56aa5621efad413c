"""`sereno limit list`, `show` and `weights`: columns and texts."""

from collections.abc import Iterator, Sequence

import click

from sereno.bounded_count import BoundedCount
from sereno.cli.output import Column, human, short_time, show_list, terminal, visible
from sereno.cli.table_layout import GAP
from sereno.jobs.limits.operations import LimitDetail, in_words
from sereno.jobs.limits.rows import BOUND, LimiterRow, LimitRow


def counted_to_bound(count: int) -> BoundedCount:
    return BoundedCount(min(count, BOUND), count <= BOUND)


def holds_for(row: LimitRow) -> str:
    """Return the scope of a limit: its queue, or its key."""
    return f"queue {row.queue}" if row.queue is not None else f"each {row.key}" if row.key else ""


def declared_words(row: LimitRow) -> str | None:
    """Return the declared numbers of a limit, or None if no code declares it."""
    return None if row.declared is None else in_words(row.declared)


TABLE = (
    Column("limit", lambda row: visible(row.name), "name"),
    Column("value", lambda row: in_words(row.numbers)),
    Column("for", lambda row: visible(holds_for(row))),
    Column("in use", lambda row: counted_to_bound(row.held) if row.kind == "slots" else None, "number"),
    Column("waiting", lambda row: counted_to_bound(row.waiting), "number"),
    Column("closed", lambda row: counted_to_bound(row.closed) if row.closed else None, "number"),
    Column("declared", lambda row: (declared_words(row) or "nothing") if row.overridden else ""),
    Column("changed by", lambda row: visible(row.changed_by or "") if row.overridden else ""),
)
# Columns that are dropped on a narrow terminal, in this order.
GIVES_WAY = ("changed by", "for", "declared")
PLAIN = (
    Column("limit", lambda row: row.name, "name"),
    Column("says", lambda row: in_words(row.numbers)),
    Column("key", lambda row: row.key, "name"),
    Column("queue", lambda row: row.queue, "name"),
    Column("in_use", lambda row: counted_to_bound(row.held) if row.kind == "slots" else None),
    Column("waiting", lambda row: counted_to_bound(row.waiting)),
    Column("closed", lambda row: counted_to_bound(row.closed)),
    Column("code_says", declared_words),
    Column("changed_by", lambda row: row.changed_by if row.overridden else None),
    Column("note", lambda row: row.note),
)


def table_columns(rows: Sequence[LimitRow]) -> list[Column]:
    """Return the columns that have values and fit the terminal. A name that is too long is truncated."""
    columns = [column for column in TABLE if any(human(column.value(row)) for row in rows)]
    width = terminal().width
    for name in GIVES_WAY:
        if _needs(columns, rows) > width:
            columns = [column for column in columns if column.name != name]
    return columns


def _needs(columns: Sequence[Column], rows: Sequence[LimitRow]) -> int:
    widths = [max(len(column.name), *(len(human(column.value(row))) for row in rows)) for column in columns]
    return sum(widths) + GAP * (len(widths) - 1)


WEIGHT_COLUMNS = (
    Column("key", lambda line: visible(line.key) or "-", "name"),
    Column("weight", lambda line: f"{line.weight:g}", "number"),
    Column("changed by", lambda line: visible(line.changed_by or ""), "wide"),
    Column("changed at", lambda line: line.changed_at),
)


def _key_columns(row: LimitRow) -> list[Column]:
    inside = (
        [
            Column("in use", lambda limiter: limiter.taken, "number"),
            Column("jobs", lambda limiter: limiter.held, "wide"),
        ]
        if row.kind == "slots"
        else [Column("tokens", lambda limiter: f"{limiter.tokens:.1f}", "number")]
    )
    return [
        Column("key", _key, "name"),
        *inside,
        Column("waiting", lambda limiter: counted_to_bound(limiter.waiting), "number"),
        Column("closed until", lambda limiter: limiter.closed_until),
        Column("last used", lambda limiter: limiter.used_at),
    ]


def _key(limiter: LimiterRow) -> str:
    return visible(limiter.key) or "-"


def show_page(detail: LimitDetail, form: str) -> None:
    """Print a limit and a table of its keys."""
    row = detail.limit
    for label, text in _lines(row):
        click.echo(f"{label:<12}{visible(text)}")
    if not detail.keys:
        click.echo("No job has started under it yet.", err=True)
        return
    click.echo()
    show_list(form, detail.keys, _key_columns(row), empty="")
    if row.keys > len(detail.keys):
        click.echo(f"These are {len(detail.keys):,} of {counted_to_bound(row.keys)} keys; show more with -n.", err=True)


def _lines(row: LimitRow) -> Iterator[tuple[str, str]]:
    yield "limit", row.name
    yield "value", in_words(row.numbers)
    declared = declared_words(row)
    by = f"  ({row.declared_by})" if row.declared_by else ""
    yield "declared", f"{declared}{by}" if declared else "no: created by a job or by hand, or removed from the code"
    if for_whom := holds_for(row):
        yield "for", for_whom
    if row.overridden:
        note = f": {row.note}" if row.note else ""
        yield "changed", f"by {row.changed_by or '?'} at {short_time(row.changed_at)}{note}"
    if row.kind == "slots":
        yield "in use", str(counted_to_bound(row.held))
    yield "waiting", str(counted_to_bound(row.waiting))
    if row.closed:
        yield "closed", "1 key" if row.closed == 1 else f"{counted_to_bound(row.closed)} keys"


def changed_sentence(row: LimitRow) -> str:
    """Return the text after a change: the numbers in force, and how to reset them."""
    whole = f", for the whole queue {row.queue!r}" if row.queue is not None else ""
    stop = "; no job starts under it" if row.slots == 0 else ""
    declared = declared_words(row)
    back = f"restores {declared}, as declared" if declared else "removes it"
    return f"{row.name}: {in_words(row.numbers)}{whole}{stop}.\n`sereno limit reset {row.name}` {back}."
