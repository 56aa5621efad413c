"""Stored history by day, and when each day is dropped."""

from dataclasses import dataclass
from datetime import date, timedelta

from sereno.database.statement import Operation
from sereno.monitoring import storage_queries
from sereno.monitoring.storage_queries import DayRow, TableRow

# Largest retention in days that is added to a date: a date cannot exceed the year 9999.
MOST_DAYS = 100_000


@dataclass(frozen=True, slots=True)
class StoredDay:
    """A day of finished jobs. `leaves`: the day on which a worker drops it; `is_overdue`: that day has passed."""

    day: date
    rows: int
    bytes: int
    leaves: date
    is_overdue: bool


@dataclass(frozen=True, slots=True)
class StoredDays:
    """The history by days, oldest first, and the other tables with a retention."""

    today: date
    days: list[StoredDay]
    dead: TableRow | None
    fires: TableRow | None
    logs: TableRow | None

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.days)

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.days)


def stored_days(keep_days: int) -> Operation[StoredDays]:
    """Return the stored days. `keep_days`: the retention in the settings."""
    today = yield from storage_queries.today()
    days = yield from storage_queries.days()
    tables = {table.name: table for table in (yield from storage_queries.tables())}
    past = [_stored_day(row, keep_days, today) for row in days if row.day <= today]
    return StoredDays(today, past, tables.get("history_dead"), tables.get("fires"), tables.get("logs"))


def _stored_day(row: DayRow, keep_days: int, today: date) -> StoredDay:
    leaves = row.day + timedelta(days=min(keep_days, MOST_DAYS) + 1)
    return StoredDay(row.day, row.rows, row.bytes, leaves, leaves <= today)
