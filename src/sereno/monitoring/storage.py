"""What is kept, for how long, and what leaves next."""

from dataclasses import dataclass
from datetime import date, timedelta

from sereno.database.statement import Operation
from sereno.monitoring import storage_queries
from sereno.monitoring.storage_queries import DayRow, TableRow

# A retention may be any number of days; a calendar ends.
MOST_DAYS = 100_000


@dataclass(frozen=True, slots=True)
class StoredDay:
    """A day of finished jobs. `leaves`: the day on which a worker drops it; `is_overdue`: that day has come."""

    day: date
    rows: int
    bytes: int
    leaves: date
    is_overdue: bool


@dataclass(frozen=True, slots=True)
class StoredDays:
    """The history by days, the oldest first, and what else is kept."""

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


def kept(keep_days: int) -> Operation[StoredDays]:
    """`keep_days`: as the settings say."""
    today = yield from storage_queries.today()
    days = yield from storage_queries.days()
    tables = {table.name: table for table in (yield from storage_queries.tables())}
    past = [_kept(row, keep_days, today) for row in days if row.day <= today]
    return StoredDays(today, past, tables.get("history_dead"), tables.get("fires"), tables.get("logs"))


def _kept(row: DayRow, keep_days: int, today: date) -> StoredDay:
    leaves = row.day + timedelta(days=min(keep_days, MOST_DAYS) + 1)
    return StoredDay(row.day, row.rows, row.bytes, leaves, leaves <= today)
