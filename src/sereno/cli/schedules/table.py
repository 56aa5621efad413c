"""`sereno schedule list`: lines for people, fewer columns where there is little room; plain values in a pipe."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import msgspec

from sereno.cli.output import GAP, Column, human, terminal, visible
from sereno.cli.schedules.text import brief_time, effective_state, first_line, last_words, soon
from sereno.schedules.lists import SchedulePage, clock_of, in_words
from sereno.schedules.store import ScheduleRow

# Room that the rule should have, before other columns give way, in this order.
RULE_ROOM = 26
GIVES_WAY = ("skipped", "fired", "tenant", "last run", "failed")
# With less room than this for the rule, these go as well: a state that is cut off says nothing.
LEAST_RULE_ROOM = 16
GIVES_WAY_LAST = ("task", "when")
# A note is cut off here; `show` has all of it.
NOTE_ROOM = 32


@dataclass(frozen=True, slots=True)
class Line:
    """A schedule as it was seen at a moment."""

    row: ScheduleRow
    now: datetime

    @property
    def state(self) -> str:
        return effective_state(self.row, self.now)

    @property
    def next(self) -> str:
        """When it runs next, or why not."""
        row = self.row
        clock = clock_of(row.rule)
        if row.paused_until is not None and self.state == "paused":
            return self._cut(f"until {brief_time(row.paused_until, clock, self.now)}", row.note)
        if row.state != "enabled":
            return self._cut("", row.note)
        if row.next_run_at is None:
            return "when its run has ended"
        if not row.planned:
            return "is being planned"
        return f"{brief_time(row.next_run_at, clock, self.now)}, {soon(row.next_run_at, self.now)}"

    @staticmethod
    def _cut(words: str, note: str | None) -> str:
        text = visible(": ".join(part for part in (words, first_line(note or "")) if part))
        return text if len(text) <= NOTE_ROOM else f"{text[: NOTE_ROOM - 1]}…"


TABLE = (
    Column("key", lambda line: visible(line.row.key)),
    Column("when", lambda line: visible(in_words(line.row.rule)), "wide"),
    Column("task", lambda line: visible(line.row.task)),
    Column("tenant", lambda line: visible(line.row.tenant or "")),
    Column("next run", lambda line: line.next),
    Column("last run", lambda line: last_words(line.row, line.now)),
    Column("fired", lambda line: line.row.fired, "number"),
    Column("failed", lambda line: line.row.failed, "number"),
    Column("skipped", lambda line: sum(line.row.skipped.values()), "number"),
    Column("state", lambda line: line.state),
)
PLAIN = (
    Column("key", lambda line: line.row.key),
    Column("state", lambda line: line.row.state),
    Column("when", lambda line: in_words(line.row.rule)),
    Column("task", lambda line: line.row.task),
    Column("tenant", lambda line: line.row.tenant),
    Column("next_run_at", lambda line: planned_at(line.row)),
    Column("last_fired_at", lambda line: line.row.last_fired_at),
    Column("last_state", lambda line: line.row.last_state),
    Column("fired", lambda line: line.row.fired),
    Column("failed", lambda line: line.row.failed),
    Column("skipped", lambda line: line.row.skipped),
    Column("paused_until", lambda line: line.row.paused_until),
    Column("note", lambda line: line.row.note),
)


def lines(page: SchedulePage) -> list[Line]:
    return [Line(row, page.now) for row in page.items]


def as_object(row: ScheduleRow) -> dict[str, Any]:
    """Everything on the row, and its rule in words."""
    words = {"key": row.key, "when": in_words(row.rule)}
    return words | msgspec.structs.asdict(row) | {"next_run_at": planned_at(row), "late_p99": row.late_p99}


def planned_at(row: ScheduleRow) -> datetime | None:
    """When it runs next; before the scheduler has planned it, the row holds when to do that instead."""
    return row.next_run_at if row.planned else None


def table_columns(found: Sequence[Line]) -> list[Column]:
    """Those that have something to say, and for which there is room."""
    columns = [column for column in TABLE if any(column.value(line) for line in found)]
    room = terminal().width
    for names, rule_room in ((GIVES_WAY, RULE_ROOM), (GIVES_WAY_LAST, LEAST_RULE_ROOM)):
        for name in names:
            if _needs(columns, found, rule_room) <= room:
                break
            columns = [column for column in columns if column.name != name]
    if _needs(columns, found, LEAST_RULE_ROOM) > room:
        # Only a long key is left to be cut off.
        columns = [replace(column, style="wide") if column.name == "key" else column for column in columns]
    return columns


def _needs(columns: Sequence[Column], found: Sequence[Line], rule_room: int) -> int:
    widths = []
    for column in columns:
        need = max([len(column.name), *(len(human(column.value(line))) for line in found)])
        widths.append(min(need, rule_room) if column.style == "wide" else need)
    return sum(widths) + GAP * (len(widths) - 1)
