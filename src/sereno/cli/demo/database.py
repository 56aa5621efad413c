"""The demo's own database: find workers of an earlier demo, and drop its schemas."""

from sereno.database.statement import Operation, Statement, queries

_sql = queries("cli/demo/database")


def others() -> Operation[list[int]]:
    """Return the process ids of workers that an earlier demo has left alive."""
    rows = yield Statement(_sql["is_there"])
    if not rows[0][0]:
        return []
    rows = yield Statement(_sql["others"])
    return [row[1] for row in rows]


def reset() -> Operation[None]:
    """Drop all schemas of the demo."""
    yield Statement(_sql["reset"])
