"""Page size of maintenance, and vacuuming of the tables whose rows come and go with every job."""

from sereno.database.statement import Operation, Statement, queries

_sql = queries("database/vacuum")

# Rows that one step of maintenance deletes at most; it takes a fraction of a second.
PAGE = 10_000
# Tables with few rows at any time, which are inserted and deleted with every job.
HOT = ("jobs", "lanes", "limiters", "lane_wakes", "schedule_ends", "ended_attempts", "batches", "deliveries")
# A table is vacuumed from this many dead rows, plus this share of its live rows.
DEAD_ROWS, DEAD_SHARE = 10_000, 0.1


def tables_to_vacuum() -> Operation[list[str]]:
    """Return the hot tables that have many dead rows and that the caller may vacuum."""
    bounds = {"tables": list(HOT), "most": DEAD_ROWS, "share": DEAD_SHARE}
    return [row[0] for row in (yield Statement(_sql["tables_to_vacuum"], bounds))]


def vacuum(table: str) -> Operation[None]:
    """Vacuum a table without truncating it, which would need an exclusive lock. Not inside a transaction."""
    if table not in HOT:
        raise ValueError(f"{table} is not one of the tables that are vacuumed")
    yield Statement(f"vacuum (skip_locked, truncate off) sereno.{table}")
