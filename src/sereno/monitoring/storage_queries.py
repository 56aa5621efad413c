"""How large things have become, as the server itself estimates it."""

from dataclasses import dataclass
from datetime import date, datetime

from sereno.database.statement import Operation, Statement, queries

_sql = queries("monitoring/storage_queries")

# Rows that a page of maintenance deletes at most: a fraction of a second.
PAGE = 10_000
# Tables whose rows come and go with every job, and are few at any time.
HOT = ("jobs", "lanes", "limiters", "lane_wakes", "schedule_ends", "ended_attempts", "batches", "deliveries")
# Dead rows from which on a table is vacuumed, and the part of its living rows that is added to that.
DEAD_ROWS, DEAD_SHARE = 10_000, 0.1


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


def littered() -> Operation[list[str]]:
    """The hot tables that have many dead rows and that the caller may vacuum."""
    bounds = {"tables": list(HOT), "most": DEAD_ROWS, "share": DEAD_SHARE}
    return [row[0] for row in (yield Statement(_sql["littered"], bounds))]


def vacuum(table: str) -> Operation[None]:
    """Without giving pages back to the system, for which everybody would have to wait. Not inside of a transaction."""
    if table not in HOT:
        raise ValueError(f"{table} is not one of the tables that are vacuumed")
    yield Statement(f"vacuum (skip_locked, truncate off) sereno.{table}")
