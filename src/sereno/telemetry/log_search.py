"""Searches the central log for the CLI, the API and the dashboard: filters, pages of lines, one line with traceback."""

from dataclasses import dataclass, replace
from datetime import datetime

from sereno.database.statement import Operation
from sereno.errors import ConfigurationError
from sereno.search.syntax import SearchField, SearchTerm, SearchWord, parse
from sereno.search.values import moments
from sereno.telemetry import log_queries
from sereno.telemetry.log_queries import LogDetail, LogFilter, LogLine
from sereno.telemetry.log_record import LEVELS

LOG_FIELDS = (
    SearchField("level", "choice", LEVELS),
    SearchField("event", "word"),
    SearchField("tenant", "word"),
    SearchField("task", "word"),
    SearchField("queue", "word"),
    SearchField("job", "id"),
    SearchField("trace", "word"),
    SearchField("session", "id"),
    SearchField("at", "moment"),
)
# Search fields with an index, and their names in a LogFilter.
_FOUND_BY_INDEX = {"event": "event", "tenant": "tenant", "trace": "trace_id"}


@dataclass(frozen=True, slots=True)
class LogPage:
    """One page of lines; `next`: the cursor of the next page."""

    items: list[LogLine]
    next: int | None


def lines_wanted(text: str, now: datetime) -> LogFilter:
    """Return the filter of a search text, or raise InvalidArguments. Dates are in the time zone of `now`."""
    wanted = LogFilter()
    for term in parse(text, LOG_FIELDS).terms:
        wanted = _add_term(wanted, term, now)
    return wanted


def list_lines(wanted: LogFilter | None = None, *, limit: int = 50, before: int | None = None) -> Operation[LogPage]:
    """Return a page of lines, newest first. `before`: the cursor from the previous page."""
    found = yield from log_queries.list_lines(wanted or LogFilter(), limit + 1, before)
    page = found[:limit]
    return LogPage(page, page[-1].id if len(found) > limit else None)


def new_lines(wanted: LogFilter, after: int, *, limit: int = 1000) -> Operation[list[LogLine]]:
    """Return lines written after the line `after`, oldest first; if there are more than `limit`, the newest ones."""
    found = yield from log_queries.list_lines(wanted, limit, after=after)
    return found[::-1]


def show(line_id: int) -> Operation[LogDetail]:
    """Return one line with its traceback, or raise ConfigurationError."""
    found = yield from log_queries.find_line(line_id)
    if found is None:
        raise ConfigurationError(f"there is no log line {line_id}; it may have been deleted after its retention")
    return found


def _add_term(wanted: LogFilter, term: SearchTerm, now: datetime) -> LogFilter:
    """Return the filter with one more term."""
    if term.name == "at":
        after, before = moments(term.values[0], now)
        return replace(wanted, at_after=_later(wanted.at_after, after), at_before=_earlier(wanted.at_before, before))
    words = [each for each in term.values if isinstance(each, SearchWord)]
    is_one = len(words) == 1 and words[0].is_whole and not term.is_negated
    if is_one and term.name == "job" and wanted.job_id is None:
        return replace(wanted, job_id=int(words[0].text))
    name = _FOUND_BY_INDEX.get(term.name)
    if is_one and name is not None and getattr(wanted, name) is None:
        return replace(wanted, **{name: words[0].text})  # type: ignore[arg-type]  # the three are texts
    return replace(wanted, terms=(*wanted.terms, term))


def _later(one: datetime | None, other: datetime | None) -> datetime | None:
    return max((each for each in (one, other) if each is not None), default=None)


def _earlier(one: datetime | None, other: datetime | None) -> datetime | None:
    return min((each for each in (one, other) if each is not None), default=None)
