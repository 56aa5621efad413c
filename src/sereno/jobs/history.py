"""Deletes dead letters past their retention; other finished jobs are dropped by daily partitions."""

from sereno.database.statement import Operation, Statement, queries

_sql = queries("jobs/history")


def forget_dead(days: int) -> Operation[bool]:
    """Delete a page of dead letters older than `days`; return whether there may be more."""
    rows = yield Statement(_sql["forget_dead"], {"days": days})
    return bool(rows[0][0])
