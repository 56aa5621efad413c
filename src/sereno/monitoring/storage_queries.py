"""Sizes of tables, from the statistics of PostgreSQL."""

from dataclasses import dataclass
from datetime import date, datetime

from sereno.database.statement import Operation, Statement, queries

_sql = queries("monitoring/storage_queries")

# Most rows that one step of maintenance deletes: it takes a fraction of a second.
PAGE = 10_000
# Tables with much churn: their rows come and go with every job, and are few at any time.
HOT = ("jobs", "lanes", "limiters", "lane_wakes", "schedule_ends", "ended_attempts", "batches", "deliveries")
# A table is vacuumed from this many dead rows, plus this share of its live rows.
DEAD_ROWS, DEAD_SHARE = 10_000, 0.1


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


def littered() -> Operation[list[str]]:
    """Return the hot tables that have many dead rows and that the caller may vacuum."""
    bounds = {"tables": list(HOT), "most": DEAD_ROWS, "share": DEAD_SHARE}
    return [row[0] for row in (yield Statement(_sql["littered"], bounds))]


def vacuum(table: str) -> Operation[None]:
    """Vacuum a table without truncating it, which would need an exclusive lock. Not inside a transaction."""
    if table not in HOT:
        raise ValueError(f"{table} is not one of the tables that are vacuumed")
    yield Statement(f"vacuum (skip_locked, truncate off) sereno.{table}")
