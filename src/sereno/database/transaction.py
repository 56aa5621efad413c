"""Settings of the current transaction."""

from sereno.database.statement import Operation, Statement, queries

_sql = queries("database/transaction")


def statement_timeout(seconds: float) -> Operation[None]:
    """Set the statement timeout of this transaction."""
    yield Statement(_sql["statement_timeout"], {"milliseconds": int(seconds * 1000)})


def read_only() -> Operation[None]:
    """Make this transaction read-only; must be its first statement."""
    yield Statement(_sql["read_only"])
