"""Converts a job search such as `state:dead tenant:r42 -tag:canary args.account:42` to a JobFilter."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from sereno.jobs.filters import JobFilter
from sereno.jobs.lifecycle import STATES
from sereno.search.syntax import InvalidSearch, SearchField, SearchTerm, SearchWord, Value, parse
from sereno.search.values import ages, moments, numbers, search_number

JOB_FIELDS = (
    SearchField("state", "choice", STATES),
    SearchField("task", "word"),
    SearchField("queue", "word"),
    SearchField("tenant", "word"),
    SearchField("tag", "word"),
    SearchField("key", "word"),
    SearchField("trace", "word"),
    SearchField("by", "word"),
    SearchField("id", "exact"),
    SearchField("group", "exact", single=True),
    SearchField("after", "exact", single=True),
    SearchField("error", "exact", single=True),
    SearchField("fingerprint", "exact", single=True),
    SearchField("attempts", "number"),
    SearchField("created", "moment"),
    SearchField("finished", "moment"),
    SearchField("age", "length"),
    SearchField("args", "inside"),
)
# Conditions without an index are tested on this many of the newest jobs, live and finished each.
WINDOW = 100_000

_EXACT = {"task": "task", "queue": "queue", "tenant": "tenant", "tag": "tag", "key": "unique_key"}
_BY = "schedule:"
_MOST_ID = 2**63
_MOST_ATTEMPTS = 2**31


def jobs_wanted(text: str, now: datetime) -> JobFilter:
    """Return the filter for a search, or raise InvalidArguments. Dates are in the time zone of `now`."""
    wanted = JobFilter()
    for term in parse(text, JOB_FIELDS).terms:
        wanted = _with(wanted, term, now)
    indexed = (wanted.ids, wanted.schedules, wanted.fingerprint, wanted.group)
    is_found_by_index = any(each is not None for each in indexed)
    needs_no_search = wanted == JobFilter(states=wanted.states)
    return wanted if is_found_by_index or needs_no_search else replace(wanted, window=WINDOW)


def _with(wanted: JobFilter, term: SearchTerm, now: datetime) -> JobFilter:
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
        case "group":
            return wanted.both(JobFilter(group=_number(value)))
        case "after":
            return wanted.both(JobFilter(waits_for=_number(value)))
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


def _with_words(wanted: JobFilter, term: SearchTerm) -> JobFilter:
    """Add a term as a filter field where one exists, which may use an index; otherwise as a search term."""
    words = [each for each in term.values if isinstance(each, SearchWord)]
    if term.name == "by":
        _check_by(words)
    if term.name == "id":
        ids = [search_number(word.text, word.at, _MOST_ID) for word in words]
        return _with_term(wanted, term) if term.is_negated else wanted.both(JobFilter(ids=ids))
    if term.is_negated or not all(word.is_whole for word in words):
        return _with_term(wanted, term)
    if not term.name and len(words) == 1 and not words[0].is_quoted and words[0].text.isdecimal():
        return wanted.both(JobFilter(ids=[search_number(words[0].text, words[0].at, _MOST_ID)]))
    if term.name == "by":
        return wanted.both(JobFilter(schedules=[word.text.removeprefix(_BY) for word in words]))
    name = _EXACT.get(term.name)
    if name is None or len(words) > 1 or getattr(wanted, name) is not None:
        return _with_term(wanted, term)
    return wanted.both(JobFilter(**{name: words[0].text}))  # type: ignore[arg-type]  # the five are texts


def _with_term(wanted: JobFilter, term: SearchTerm) -> JobFilter:
    return wanted.both(JobFilter(terms=(term,)))


def _check_by(words: Sequence[SearchWord]) -> None:
    for word in words:
        if word.is_suffix or not word.text.startswith(_BY) or (word.text == _BY and not word.is_prefix):
            raise InvalidSearch(word.at, "by takes schedule:KEY, or schedule:* for any schedule")


def _number(value: Value) -> int:
    assert isinstance(value, SearchWord)
    return search_number(value.text, value.at, _MOST_ID)


def _text(value: Value) -> str:
    assert isinstance(value, SearchWord)
    return value.text
