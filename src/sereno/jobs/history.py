"""Finished jobs that are forgotten one by one; the others leave by the day."""

from sereno.database.statement import Operation, Statement, queries

_sql = queries("jobs/history")


def forget_dead(days: int) -> Operation[bool]:
    """A page of dead letters older than this; whether there may be more."""
    rows = yield Statement(_sql["forget_dead"], {"days": days})
    return bool(rows[0][0])
