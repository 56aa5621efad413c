"""How large things have become, as the server itself estimates it."""

from dataclasses import dataclass
from datetime import date, datetime

from sereno.database.statement import Operation, Statement, queries

_sql = queries("monitoring/storage_queries")


@dataclass(frozen=True, slots=True)
class TableRow:
    """A table with its indexes. `rows` and `dead`: about so many. `parts`: partitions by the day."""

    name: str
    parts: int
    bytes: int
    rows: int
    dead: int
    vacuumed_at: datetime | None


@dataclass(frozen=True, slots=True)
class DayRow:
    """A day of the history. `rows`: about so many."""

    day: date
    rows: int
    bytes: int


def tables() -> Operation[list[TableRow]]:
    """The largest first."""
    return [TableRow(*row) for row in (yield Statement(_sql["tables"]))]


def days() -> Operation[list[DayRow]]:
    """The oldest first; also days to come, which are made ahead of time."""
    return [DayRow(*row) for row in (yield Statement(_sql["days"]))]


def today() -> Operation[date]:
    """By the clock of the database, in UTC."""
    found: date = (yield Statement(_sql["today"]))[0][0]
    return found
