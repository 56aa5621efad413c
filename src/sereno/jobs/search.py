"""Converts a job search such as `state:dead tenant:r42 -tag:canary args.account:42` to a JobFilter."""

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta

from sereno.duration import seconds
from sereno.errors import ConfigurationError
from sereno.jobs.job_filter import JobFilter
from sereno.jobs.lifecycle import STATES
from sereno.search.syntax import Comparison, Field, InvalidSearch, Range, Term, Value, Word, parse

JOB_FIELDS = (
    Field("state", "choice", STATES),
    Field("task", "word"),
    Field("queue", "word"),
    Field("tenant", "word"),
    Field("tag", "word"),
    Field("key", "word"),
    Field("trace", "word"),
    Field("by", "word"),
    Field("id", "exact"),
    Field("error", "exact", single=True),
    Field("fingerprint", "exact", single=True),
    Field("attempts", "number"),
    Field("created", "moment"),
    Field("finished", "moment"),
    Field("age", "length"),
    Field("args", "inside"),
)
# Conditions without an index are tested on this many of the newest jobs, live and finished each.
WINDOW = 100_000

_EXACT = {"task": "task", "queue": "queue", "tenant": "tenant", "tag": "tag", "key": "unique_key"}
_BY = "schedule:"
_MOST_ID = 2**63
_MOST_ATTEMPTS = 2**31
_WITH_SECONDS = re.compile(r"\D[0-9]{2}:?[0-9]{2}:?[0-9]{2}")
_YEARS = range(1900, 9000)
_DAYS = {"yesterday": -1, "today": 0, "tomorrow": 1}
_LONGEST_AGE = timedelta(days=36_500)


def jobs_wanted(text: str, now: datetime) -> JobFilter:
    """Return the filter for a search, or raise InvalidArguments. Dates are in the time zone of `now`."""
    wanted = JobFilter()
    for term in parse(text, JOB_FIELDS).terms:
        wanted = _with(wanted, term, now)
    is_found_by_index = any(each is not None for each in (wanted.ids, wanted.schedules, wanted.fingerprint))
    needs_no_search = wanted == JobFilter(states=wanted.states)
    return wanted if is_found_by_index or needs_no_search else replace(wanted, window=WINDOW)


def _with(wanted: JobFilter, term: Term, now: datetime) -> JobFilter:
    """Return the filter with one more term."""
    value = term.values[0]
    match term.name:
        case "state":
            names = {str(each) for each in term.values}
            states = [state for state in STATES if (state in names) != term.is_negated]
            return wanted.both(JobFilter(states=states))
        case "error":
            return replace(wanted, error=_text(value))
        case "fingerprint":
            return replace(wanted, fingerprint=_text(value))
        case "attempts":
            low, high = numbers(value, _MOST_ATTEMPTS)
            return wanted.both(JobFilter(attempts_from=low, attempts_to=high))
        case "created":
            after, before = moments(value, now)
            return wanted.both(JobFilter(created_after=after, created_before=before))
        case "finished":
            after, before = moments(value, now)
            return wanted.both(JobFilter(finished_after=after, finished_before=before))
        case "age":
            after, before = ages(value, now)
            return wanted.both(JobFilter(created_after=after, created_before=before))
        case _:
            return _with_words(wanted, term)


def _with_words(wanted: JobFilter, term: Term) -> JobFilter:
    """Add a term as a filter field where one exists, which may use an index; otherwise as a search term."""
    words = [each for each in term.values if isinstance(each, Word)]
    if term.name == "by":
        _check_by(words)
    if term.name == "id":
        ids = [_number(word.text, word.at, _MOST_ID) for word in words]
        return _with_term(wanted, term) if term.is_negated else wanted.both(JobFilter(ids=ids))
    if term.is_negated or not all(word.is_whole for word in words):
        return _with_term(wanted, term)
    if not term.name and len(words) == 1 and not words[0].is_quoted and words[0].text.isdecimal():
        return wanted.both(JobFilter(ids=[_number(words[0].text, words[0].at, _MOST_ID)]))
    if term.name == "by":
        return wanted.both(JobFilter(schedules=[word.text.removeprefix(_BY) for word in words]))
    name = _EXACT.get(term.name)
    if name is None or len(words) > 1 or getattr(wanted, name) is not None:
        return _with_term(wanted, term)
    return wanted.both(JobFilter(**{name: words[0].text}))  # type: ignore[arg-type]  # the five are texts


def _with_term(wanted: JobFilter, term: Term) -> JobFilter:
    return wanted.both(JobFilter(terms=(term,)))


def _check_by(words: Sequence[Word]) -> None:
    for word in words:
        if word.is_suffix or not word.text.startswith(_BY) or (word.text == _BY and not word.is_prefix):
            raise InvalidSearch(word.at, "by takes schedule:KEY, or schedule:* for any schedule")


def _text(value: Value) -> str:
    assert isinstance(value, Word)
    return value.text


def numbers(value: Value, most: int) -> tuple[int | None, int | None]:
    """Return the lowest and the highest number, each less than `most`."""

    def number(text: str) -> int:
        return _number(text, value.at, most)

    match value:
        case Word(text=text):
            return number(text), number(text)
        case Range(low=low, high=high):
            return number(low) if low else None, number(high) if high else None
        case Comparison(operator=">", text=text):
            return number(text) + 1, None
        case Comparison(operator=">=", text=text):
            return number(text), None
        case Comparison(operator="<", text=text):
            return None, number(text) - 1
        case Comparison(text=text):
            return None, number(text)


def _number(text: str, at: int, most: int) -> int:
    if not (text.isascii() and text.isdecimal()) or len(text) > len(str(most)) or int(text) >= most - 1:
        raise InvalidSearch(at, f'"{text:.60}" is not a non-negative number: write it like 3, >3, <=3 or 2..5')
    return int(text)


def moments(value: Value, now: datetime) -> tuple[datetime | None, datetime | None]:
    """Return the start (inclusive) and the end (exclusive). A day or a minute means the whole of it."""

    def span(text: str) -> tuple[datetime, datetime]:
        return _span(text, value.at, now)

    match value:
        case Word(text=text):
            start, end = span(text)
            if start == end:
                raise InvalidSearch(value.at, f"{text} ago is a single instant: write {text}.. for since then")
            return start, end
        case Range(low=low, high=high):
            return span(low)[0] if low else None, span(high)[1] if high else None
        case Comparison(operator=">", text=text):
            return span(text)[1], None
        case Comparison(operator=">=", text=text):
            return span(text)[0], None
        case Comparison(operator="<", text=text):
            return None, span(text)[0]
        case Comparison(text=text):
            return None, span(text)[1]


def _span(text: str, at: int, now: datetime) -> tuple[datetime, datetime]:
    """Return the start and the end; a duration means that long before now."""
    length = _length(text)
    if length is not None:
        return now - length, now - length
    days = {name: now.date() + timedelta(days=ahead) for name, ahead in _DAYS.items()}
    try:
        day = days.get(text) or date.fromisoformat(text)
    except ValueError:
        return _instant(text, at, now)
    _check_year(day.year, at)
    return _midnight(day, now), _midnight(day + timedelta(days=1), now)


def _instant(text: str, at: int, now: datetime) -> tuple[datetime, datetime]:
    try:
        start = datetime.fromisoformat(text)
    except ValueError:
        hint = (
            "write a day such as 2026-11-01, a time such as 2026-11-01T03:00, today, yesterday, or 2h for two hours ago"
        )
        raise InvalidSearch(at, f'"{text:.60}" is not a time: {hint}') from None
    _check_year(start.year, at)
    start = start if start.tzinfo is not None else start.replace(tzinfo=now.tzinfo)
    return start, start + timedelta(seconds=1 if _WITH_SECONDS.search(text) else 60)


def _check_year(year: int, at: int) -> None:
    if year not in _YEARS:
        raise InvalidSearch(at, f"the year must be {_YEARS.start} to {_YEARS.stop - 1}")


def _midnight(day: date, now: datetime) -> datetime:
    return datetime.combine(day, time.min, now.tzinfo).astimezone(UTC)


def ages(value: Value, now: datetime) -> tuple[datetime | None, datetime | None]:
    """Return the creation times between which a job of this age was created."""

    def ago(text: str) -> datetime:
        length = _length(text)
        if length is None:
            raise InvalidSearch(value.at, f'"{text:.60}" is not a duration: write >1h, <30m or 1d..7d, at most 36500d')
        return now - length

    match value:
        case Range(low=low, high=high):
            return ago(high) if high else None, ago(low) if low else None
        case Comparison(operator=">" | ">=", text=text):
            return None, ago(text)
        case Comparison(text=text):
            return ago(text), None
        case Word(text=text):
            raise InvalidSearch(value.at, f"write age:>{text:.60} for older or age:<{text:.60} for younger jobs")


def _length(text: str) -> timedelta | None:
    """Return the duration, or None if the text is not a duration with a unit."""
    if text.isdecimal():
        return None
    try:
        length = timedelta(seconds=seconds(text))
    except (ConfigurationError, OverflowError):
        return None
    return length if length <= _LONGEST_AGE else None
