"""Page size of maintenance, and vacuuming of the tables whose rows come and go with every job."""

from sereno.database.statement import Operation, Statement, queries

_sql = queries("database/vacuum")

# Rows that a page of maintenance deletes at most: a fraction of a second.
PAGE = 10_000
# Tables whose rows come and go with every job, and are few at any time.
HOT = ("jobs", "lanes", "limiters", "lane_wakes", "schedule_ends", "ended_attempts", "batches", "deliveries")
# Dead rows from which on a table is vacuumed, and the part of its living rows that is added to that.
DEAD_ROWS, DEAD_SHARE = 10_000, 0.1


def littered() -> Operation[list[str]]:
    """The hot tables that have many dead rows and that the caller may vacuum."""
    bounds = {"tables": list(HOT), "most": DEAD_ROWS, "share": DEAD_SHARE}
    return [row[0] for row in (yield Statement(_sql["littered"], bounds))]


def vacuum(table: str) -> Operation[None]:
    """Without giving pages back to the system, for which everybody would have to wait. Not inside of a transaction."""
    if table not in HOT:
        raise ValueError(f"{table} is not one of the tables that are vacuumed")
    yield Statement(f"vacuum (skip_locked, truncate off) sereno.{table}")
