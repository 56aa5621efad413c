"""The demo's own database: who is there, and begin afresh."""

from sereno.database.statement import Operation, Statement, queries

_sql = queries("cli/demo/database")


def others() -> Operation[list[int]]:
    """Process ids of workers that an earlier demo has left alive."""
    rows = yield Statement(_sql["is_there"])
    if not rows[0][0]:
        return []
    rows = yield Statement(_sql["others"])
    return [row[1] for row in rows]


def reset() -> Operation[None]:
    """Drop everything."""
    yield Statement(_sql["reset"])
