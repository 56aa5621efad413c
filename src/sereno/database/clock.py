"""The clock of the database."""

from sereno.database.statement import Operation, Statement, queries

_sql = queries("database/clock")


def clock() -> Operation[int]:
    """Return the database's time, in microseconds since 1970."""
    rows = yield Statement(_sql["clock"])
    return int(rows[0][0])
