"""Sizes of tables, from the statistics of PostgreSQL."""

from dataclasses import dataclass
from datetime import date, datetime

from sereno.database.statement import Operation, Statement, queries

_sql = queries("monitoring/storage_queries")


@dataclass(frozen=True, slots=True)
class TableRow:
    """A table with its indexes. `rows` and `dead` are estimates. `parts`: daily partitions."""

    name: str
    parts: int
    bytes: int
    rows: int
    dead: int
    vacuumed_at: datetime | None


@dataclass(frozen=True, slots=True)
class DayRow:
    """A day of the history. `rows` is an estimate."""

    day: date
    rows: int
    bytes: int


def tables() -> Operation[list[TableRow]]:
    """Return the tables, largest first."""
    return [TableRow(*row) for row in (yield Statement(_sql["tables"]))]


def days() -> Operation[list[DayRow]]:
    """Return the days, oldest first; including future days, whose partitions are created ahead of time."""
    return [DayRow(*row) for row in (yield Statement(_sql["days"]))]


def today() -> Operation[date]:
    """Return today's date in UTC, by the clock of the database."""
    found: date = (yield Statement(_sql["today"]))[0][0]
    return found
