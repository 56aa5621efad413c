"""Reads of the central log."""

from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from sereno.database.statement import Operation, Statement, queries
from sereno.search.sql_terms import parameter, word_test
from sereno.search.syntax import SearchTerm

_sql = queries("telemetry/log_queries")

# Newest candidates that are checked for conditions without an index.
WINDOW = 50_000


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of the log. `context`: the other fields of the record."""

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
    """A log line with its traceback, if it has one."""

    traceback: str | None


@dataclass(frozen=True, slots=True)
class LogFilter:
    """A filter of log lines; all given conditions must hold. `terms`: search terms that no other field can express."""

    job_id: int | None = None
    trace_id: str | None = None
    tenant: str | None = None
    event: str | None = None
    at_after: datetime | None = None
    at_before: datetime | None = None
    terms: tuple[SearchTerm, ...] = ()

    def params(self) -> dict[str, Any]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        along = (("job", "job_id"), ("trace", "trace_id"), ("tenant", "tenant"), ("event", "event"))
        return values | {
            "along": next((index for index, name in along if values[name] is not None), "id"),
            "terms": parameter([word_test(term, anywhere=not term.name) for term in self.terms]),
        }


def list_lines(wanted: LogFilter, limit: int, before: int | None = None, after: int = 0) -> Operation[list[LogLine]]:
    """Return lines, newest first. `before`: the last id of the previous page; `after`: only lines with a higher id."""
    bounds = {"limit": limit, "before": before, "after": after, "window": WINDOW}
    rows = yield Statement(_sql["list"], wanted.params() | bounds)
    return [LogLine(*row) for row in rows]


def find_line(line_id: int) -> Operation[LogDetail | None]:
    rows = yield Statement(_sql["find_line"], {"id": line_id})
    return LogDetail(*rows[0]) if rows else None
