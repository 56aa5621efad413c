"""What a call brought, in as many words as a job's history keeps."""

from collections.abc import Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec

from sereno.error_text import storable

# Of the rows, so many are kept, and no more bytes than these; the others are counted.
MOST_ROWS = 100
MOST_BYTES = 64 * 1024
# One value of a row.
LONGEST_TEXT = 4000
# Of what the procedure says while it runs.
MOST_NOTICES = 100
LONGEST_NOTICE = 1000
DEEPEST = 20


class Notice(msgspec.Struct, frozen=True):
    """Something that the database said during a call."""

    severity: str
    message: str

    @property
    def is_warning(self) -> bool:
        return self.severity.upper() == "WARNING"

    def __str__(self) -> str:
        return f"{self.severity}: {self.message}"


class Result(msgspec.Struct, frozen=True):
    """`row_count`: of all rows that came, or that were changed, where the database says so. `unheard`: more notices."""

    rows: list[Any] = []
    row_count: int | None = None
    notices: list[Notice] = []
    unheard: int = 0

    def kept(self) -> dict[str, Any]:
        """For the job's history: never more than it should hold."""
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
        if self.unheard:
            found["notices_left_out"] = self.unheard
        return found


class Notices:
    """Collects what is said, and no more of it than anybody reads."""

    def __init__(self) -> None:
        self.heard: list[Notice] = []
        self.unheard = 0

    def add(self, severity: str, message: str) -> None:
        if len(self.heard) >= MOST_NOTICES:
            self.unheard += 1
        else:
            self.heard.append(Notice(storable(severity, 20), storable(message, LONGEST_NOTICE)))


def plain_row(columns: Iterable[str], values: Iterable[Any]) -> dict[str, Any]:
    """A row by the names of its columns, as JSON can hold it."""
    return {storable(name, 200): plain(value) for name, value in zip(columns, values, strict=True)}


def plain(value: Any, depth: int = 0) -> Any:
    """A value as JSON can hold it: what JSON has no word for becomes text."""
    match value:
        case None | bool():
            return value
        case int():
            # Others read JSON numbers as floats.
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
