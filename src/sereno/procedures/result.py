"""The result of a call, limited to what a job's history stores."""

from collections.abc import Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec

from sereno.error_text import storable

# Rows and bytes of rows that are stored; the others are counted.
MOST_ROWS = 100
MOST_BYTES = 64 * 1024
# Characters of one value.
LONGEST_TEXT = 4000
# Notices of the procedure that are stored, and characters of each.
MOST_NOTICES = 100
LONGEST_NOTICE = 1000
# Levels of nested values.
DEEPEST = 20


class ProcedureNotice(msgspec.Struct, frozen=True):
    """A message of the database during a call."""

    severity: str
    message: str

    @property
    def is_warning(self) -> bool:
        return self.severity.upper() == "WARNING"

    def __str__(self) -> str:
        return f"{self.severity}: {self.message}"


class ProcedureResult(msgspec.Struct, frozen=True):
    """`row_count`: all rows returned or changed, if the database reports it. `omitted`: notices beyond the limit."""

    rows: list[Any] = []
    row_count: int | None = None
    notices: list[ProcedureNotice] = []
    omitted: int = 0

    def for_history(self) -> dict[str, Any]:
        """Return the result for the job's history, within its limits."""
        rows: list[Any] = []
        size = 0
        for row in self.rows[:MOST_ROWS]:
            size += len(msgspec.json.encode(row))
            if size > MOST_BYTES:
                break
            rows.append(row)
        found: dict[str, Any] = {"rows": rows, "row_count": self.row_count, "notices": list(map(str, self.notices))}
        if len(rows) < max(len(self.rows), (self.row_count or 0) if self.rows else 0):
            found["rows_left_out"] = max(len(self.rows), self.row_count or 0) - len(rows)
        if self.omitted:
            found["notices_left_out"] = self.omitted
        return found


class ProcedureNotices:
    """Collects notices up to a limit and counts the others."""

    def __init__(self) -> None:
        self.collected: list[ProcedureNotice] = []
        self.omitted = 0

    def add(self, severity: str, message: str) -> None:
        if len(self.collected) >= MOST_NOTICES:
            self.omitted += 1
        else:
            self.collected.append(ProcedureNotice(storable(severity, 20), storable(message, LONGEST_NOTICE)))


def plain_row(columns: Iterable[str], values: Iterable[Any]) -> dict[str, Any]:
    """Return a row as a JSON object by column name."""
    return {storable(name, 200): plain(value) for name, value in zip(columns, values, strict=True)}


def plain(value: Any, depth: int = 0) -> Any:
    """Return a value as JSON; types that JSON does not have become text."""
    match value:
        case None | bool():
            return value
        case int():
            # Other languages read JSON numbers as floats.
            return value if abs(value) < 2**53 else str(value)
        case float():
            return value if value - value == 0 else str(value)
        case date() | datetime() | time():
            return value.isoformat()
        case Decimal() | UUID() | timedelta():
            return str(value)
        case bytes() | bytearray() | memoryview():
            return f"\\x{bytes(value[: LONGEST_TEXT // 2]).hex()}"
        case Mapping() if depth < DEEPEST:
            return {storable(name, 200): plain(part, depth + 1) for name, part in value.items()}
        case list() | tuple() | set() if depth < DEEPEST:
            return [plain(part, depth + 1) for part in value]
        case _:
            text = storable(value, LONGEST_TEXT + 1)
            return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…"
