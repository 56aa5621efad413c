"""Writes log lines of handlers and of the engine to the database, and deletes old ones."""

from collections.abc import Sequence

from sereno.database.statement import Operation, Statement, queries

_sql = queries("telemetry/central_log")

# Lines that one statement deletes.
BATCH = 5000


def add(lines: Sequence[bytes], now: float) -> Operation[None]:
    """Write lines that `sereno.telemetry.log_record` encoded. `now`: the current time by the clock of their `seen`."""
    numbered = [b'{"place":%d,' % place + line[1:] for place, line in enumerate(lines)]
    yield Statement(_sql["add"], {"lines": (b"[" + b",".join(numbered) + b"]").decode(), "now": now})


def forget(seconds: float) -> Operation[bool]:
    """Delete one batch of lines older than `seconds`; return whether there may be more."""
    rows = yield Statement(_sql["forget"], {"seconds": seconds, "most": BATCH})
    return len(rows) == BATCH
