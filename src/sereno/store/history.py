"""Finished jobs that are forgotten one by one; the others leave by the day."""

from sereno.store.statement import Operation, Statement, queries

_sql = queries("history")


def forget_dead(days: int) -> Operation[int]:
    """Dead letters older than this, at most a thousand a call."""
    rows = yield Statement(_sql["forget_dead"], {"days": days})
    return int(rows[0][0])
