"""Converts a search text such as `state:failed channel:email created:2d..` to parameters of a list's SQL query.

For all lists except jobs and the log. A list declares its fields, and its query has one `when` for each field.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from sereno.search.sql_terms import SearchParams, Test, parameter, piece_test, range_test, word_test
from sereno.search.syntax import MOST_DIGITS, Kind, SearchField, SearchTerm, SearchWord, parse
from sereno.search.values import ages, moments, numbers

# Beyond this, JSON numbers are not exact.
_MOST = 2**53


def search_params(
    text: str | None, fields: Sequence[SearchField], now: datetime, *, hides: bool = False
) -> SearchParams | None:
    """Return the parameters of a search, None if it is empty, or raise InvalidArguments.

    `hides`: errors are masked for this reader, so the search compares the masked text.
    Dates are in the time zone of `now`. A number without a field is an id, if the list has ids.
    """
    search = parse(text or "", fields)
    if not search.terms:
        return None
    kinds = {each.name: each.kind for each in fields}
    terms = [_as_id(term) if "id" in kinds else term for term in search.terms]
    tests = [_tests[kinds.get(term.name, "part")](term, now) for term in terms]
    if hides:
        tests = [{**test, "hides": True} for test in tests]
    whole, begins = _hints(terms, kinds)
    return SearchParams(str(search), parameter(tests), whole, begins, {term.name for term in terms})


def _as_id(term: SearchTerm) -> SearchTerm:
    """Convert a bare number to a term on the id."""
    word = term.values[0]
    if term.name or len(term.values) > 1 or not isinstance(word, SearchWord) or word.is_quoted or not word.is_whole:
        return term
    is_number = word.text.isascii() and word.text.isdecimal() and len(word.text) <= MOST_DIGITS
    return SearchTerm("id", term.values, term.is_negated) if is_number else term


def _hints(terms: Sequence[SearchTerm], kinds: Mapping[str, Kind]) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Return what an index can find: whole values and prefixes by field. The first term on a field counts."""
    whole: dict[str, list[str]] = {}
    begins: dict[str, str] = {}
    for term in terms:
        if term.is_negated or kinds.get(term.name) not in ("word", "choice", "id", "exact"):
            continue
        words = [value for value in term.values if isinstance(value, SearchWord)]
        if all(word.is_whole for word in words):
            whole.setdefault(term.name, [word.text for word in words])
        elif len(words) == 1 and not words[0].is_suffix:
            begins.setdefault(term.name, words[0].text)
    return whole, begins


def _words(term: SearchTerm, now: datetime) -> Test:  # noqa: ARG001 - same signature as the others
    return word_test(term)


def _part(term: SearchTerm, now: datetime) -> Test:  # noqa: ARG001 - same signature as the others
    return word_test(term, anywhere=True)


def _inside(term: SearchTerm, now: datetime) -> Test:  # noqa: ARG001 - same signature as the others
    return piece_test(term)


def _number(term: SearchTerm, now: datetime) -> Test:  # noqa: ARG001 - same signature as the others
    low, high = numbers(term.values[0], _MOST)
    return range_test(term.name, low, None if high is None else high + 1)


def _moment(term: SearchTerm, now: datetime) -> Test:
    return _between(term.name, *moments(term.values[0], now))


def _length(term: SearchTerm, now: datetime) -> Test:
    return _between(term.name, *ages(term.values[0], now))


def _between(name: str, after: datetime | None, before: datetime | None) -> Test:
    """Return a range test with times in Unix seconds, as in SQL."""
    return range_test(
        name, None if after is None else after.timestamp(), None if before is None else before.timestamp()
    )


_tests: Mapping[Kind, Callable[[SearchTerm, datetime], Test]] = {
    "exact": _words,
    "word": _words,
    "part": _part,
    "choice": _words,
    "id": _words,
    "number": _number,
    "moment": _moment,
    "length": _length,
    "inside": _inside,
}
