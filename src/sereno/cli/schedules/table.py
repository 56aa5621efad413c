"""`sereno schedule list`: a table with fewer columns on a narrow terminal; plain values in a pipe."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from sereno.cli.output import Column, human, terminal, visible
from sereno.cli.schedules.text import brief_time, effective_state, first_line, last_words, soon
from sereno.cli.table_layout import GAP
from sereno.schedules.lists import SchedulePage, clock_of, in_words
from sereno.schedules.rows import ScheduleRow

# Width that the rule should have; to reach it, these columns are dropped in this order.
RULE_WIDTH = 26
GIVES_WAY = ("skipped", "fired", "tenant", "last run", "failed")
# Least width of the rule; to reach it, these columns are dropped too: a truncated state is useless.
LEAST_RULE_WIDTH = 16
GIVES_WAY_LAST = ("task", "when")
# Width at which a note is truncated; `show` prints all of it.
NOTE_WIDTH = 32


@dataclass(frozen=True, slots=True)
class ScheduleTableLine:
    """A schedule at the time of the query."""

    row: ScheduleRow
    now: datetime

    @property
    def state(self) -> str:
        return effective_state(self.row, self.now)

    @property
    def next(self) -> str:
        """Return when it runs next, or why it does not."""
        row = self.row
        clock = clock_of(row.rule)
        if row.paused_until is not None and self.state == "paused":
            return self._cut(f"until {brief_time(row.paused_until, clock, self.now)}", row.note)
        if row.state != "enabled":
            return self._cut("", row.note)
        if row.next_run_at is None:
            return "after the current run"
        if not row.planned:
            return "is being planned"
        return f"{brief_time(row.next_run_at, clock, self.now)}, {soon(row.next_run_at, self.now)}"

    @staticmethod
    def _cut(state: str, note: str | None) -> str:
        text = visible(": ".join(part for part in (state, first_line(note or "")) if part))
        return text if len(text) <= NOTE_WIDTH else f"{text[: NOTE_WIDTH - 1]}…"


TABLE = (
    Column("key", lambda line: visible(line.row.key), "name"),
    Column("when", lambda line: visible(in_words(line.row.rule)), "wide"),
    Column("task", lambda line: visible(line.row.task), "name"),
    Column("tenant", lambda line: visible(line.row.tenant or ""), "name"),
    Column("next run", lambda line: line.next),
    Column("last run", lambda line: last_words(line.row, line.now)),
    Column("fired", lambda line: line.row.fired, "number"),
    Column("failed", lambda line: line.row.failed, "number"),
    Column("skipped", lambda line: sum(line.row.skipped.values()), "number"),
    Column("state", lambda line: line.state),
)
PLAIN = (
    Column("key", lambda line: line.row.key, "name"),
    Column("state", lambda line: line.row.state),
    Column("when", lambda line: in_words(line.row.rule)),
    Column("task", lambda line: line.row.task, "name"),
    Column("tenant", lambda line: line.row.tenant, "name"),
    Column("next_run_at", lambda line: planned_at(line.row)),
    Column("last_fired_at", lambda line: line.row.last_fired_at),
    Column("last_state", lambda line: line.row.last_state),
    Column("fired", lambda line: line.row.fired),
    Column("failed", lambda line: line.row.failed),
    Column("skipped", lambda line: line.row.skipped),
    Column("paused_until", lambda line: line.row.paused_until),
    Column("note", lambda line: line.row.note),
)


def lines(page: SchedulePage) -> list[ScheduleTableLine]:
    return [ScheduleTableLine(row, page.now) for row in page.items]


def as_object(row: ScheduleRow) -> dict[str, Any]:
    """Return all columns of the row, with its rule as text."""
    first = {"key": row.key, "when": in_words(row.rule)}
    return first | msgspec.structs.asdict(row) | {"next_run_at": planned_at(row), "late_p99": row.late_p99}


def planned_at(row: ScheduleRow) -> datetime | None:
    """Return when it runs next, or None before the scheduler has planned it: next_run_at is the planning time then."""
    return row.next_run_at if row.planned else None


def table_columns(found: Sequence[ScheduleTableLine]) -> list[Column]:
    """Return the columns that have values and fit the terminal."""
    columns = [column for column in TABLE if any(column.value(line) for line in found)]
    width = terminal().width
    for names, rule_width in ((GIVES_WAY, RULE_WIDTH), (GIVES_WAY_LAST, LEAST_RULE_WIDTH)):
        for name in names:
            if _needs(columns, found, rule_width) <= width:
                break
            columns = [column for column in columns if column.name != name]
    return columns


def _needs(columns: Sequence[Column], found: Sequence[ScheduleTableLine], rule_width: int) -> int:
    widths = []
    for column in columns:
        need = max([len(column.name), *(len(human(column.value(line))) for line in found)])
        widths.append(min(need, rule_width) if column.style == "wide" else need)
    return sum(widths) + GAP * (len(widths) - 1)
