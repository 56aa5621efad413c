"""Settings of the current transaction."""

from sereno.database.statement import Operation, Statement, queries

_sql = queries("database/transaction")


def statement_timeout(seconds: float) -> Operation[None]:
    """Set the statement timeout of this transaction."""
    yield Statement(_sql["statement_timeout"], {"milliseconds": int(seconds * 1000)})


def begin_read(seconds: float) -> Operation[None]:
    """Make this transaction read-only, with a statement timeout and the planner settings of pages."""
    yield Statement(_sql["begin_read"], {"milliseconds": int(seconds * 1000)})
