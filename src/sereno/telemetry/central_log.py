"""The central log: lines that handlers and the engine said, which of them are wanted, and for how long they stay."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from sereno.database.statement import Operation, Statement, queries
from sereno.search.sql_terms import parameter, word_test
from sereno.search.syntax import Term

_sql = queries("telemetry/central_log")

# So many of the newest candidates are looked at for what no index finds.
WINDOW = 50_000
# Forgotten at once.
BATCH = 5000


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of the log. `context`: what else was said with it."""

    id: int
    at: datetime
    level: str
    event: str
    message: str
    tenant: str | None
    job_id: int | None
    task: str | None
    queue: str | None
    trace_id: str | None
    session: int | None
    context: dict[str, Any]


@dataclass(frozen=True, slots=True)
class LogDetail(LogLine):
    """With the traceback, where there was one."""

    traceback: str | None


@dataclass(frozen=True, slots=True)
class LogFilter:
    """Which lines; everything that is given must hold. `terms`: of a search, for what the other fields cannot say."""

    job_id: int | None = None
    trace_id: str | None = None
    tenant: str | None = None
    event: str | None = None
    at_after: datetime | None = None
    at_before: datetime | None = None
    terms: tuple[Term, ...] = ()

    def params(self) -> dict[str, Any]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        along = (("job", "job_id"), ("trace", "trace_id"), ("tenant", "tenant"), ("event", "event"))
        return values | {
            "along": next((index for index, name in along if values[name] is not None), "id"),
            "terms": parameter([word_test(term, anywhere=not term.name) for term in self.terms]),
        }


def add(lines: Sequence[bytes], now: float) -> Operation[None]:
    """Lines as `sereno.telemetry.log_record` makes them. `now`: by the clock by which they were seen."""
    placed = [b'{"place":%d,' % place + line[1:] for place, line in enumerate(lines)]
    yield Statement(_sql["add"], {"lines": (b"[" + b",".join(placed) + b"]").decode(), "now": now})


def forget(seconds: float) -> Operation[bool]:
    """One batch of what is older; whether there may be more."""
    rows = yield Statement(_sql["forget"], {"seconds": seconds, "most": BATCH})
    return len(rows) == BATCH


def list_lines(wanted: LogFilter, limit: int, before: int | None = None, after: int = 0) -> Operation[list[LogLine]]:
    """Newest first; `before`: the last id of the page before; `after`: only those with a higher id."""
    bounds = {"limit": limit, "before": before, "after": after, "window": WINDOW}
    rows = yield Statement(_sql["list"], wanted.params() | bounds)
    return [LogLine(*row) for row in rows]


def one(line_id: int) -> Operation[LogDetail | None]:
    rows = yield Statement(_sql["one"], {"id": line_id})
    return LogDetail(*rows[0]) if rows else None
