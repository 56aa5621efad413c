"""Search terms as parameters of static SQL: tests of a row, all of which must hold."""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from sereno.search.syntax import SearchTerm, SearchWord

_NOT_TEXT = re.compile(r"-?(0|[1-9][0-9]{0,29})(\.[0-9]{1,30})?|true|false|null")
_SPECIAL = re.compile(r"([\\%_])")
# Bound of an open range, beyond all numbers and times in seconds; JSON has no infinity.
_FURTHEST = 1e18

# A field and its condition, as read by the SQL fragments.
Test: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SearchParams:
    """The parameters of a search. `text`: the search. `terms`: all tests, as one SQL parameter.

    `whole`: by field, the values that match it; `begins`: by field, the prefix that matches it. Both are hints for
    queries that can use an index; `terms` contains these tests too. `names`: the fields that the search uses.
    """

    text: str
    terms: str | None
    whole: Mapping[str, Sequence[str]] = field(default_factory=dict)
    begins: Mapping[str, str] = field(default_factory=dict)
    names: Collection[str] = ()

    def values(self, name: str) -> list[str] | None:
        """Return the values of a field, or None if the search does not restrict it."""
        return list(self.whole[name]) if name in self.whole else None

    def numbers(self, name: str) -> list[int] | None:
        """Return the ids of a field, or None if the search does not restrict it."""
        return [int(text) for text in self.whole[name]] if name in self.whole else None

    def one(self, name: str) -> str | None:
        """Return the value of a field if the search gives exactly one."""
        found = self.whole.get(name, ())
        return found[0] if len(found) == 1 else None


def parameter(tests: Collection[Test]) -> str | None:
    """Return the tests as one JSON parameter."""
    return json.dumps(list(tests)) if tests else None


def word_test(term: SearchTerm, *, anywhere: bool = False) -> Test:
    """Return a test that a text matches one of the words. `anywhere`: a word without a star may be any part."""
    around = "%" * anywhere
    words = [value for value in term.values if isinstance(value, SearchWord)]
    patterns = [
        around + like_exactly(word.text) + around
        if word.is_whole
        else "%" * word.is_suffix + like_exactly(word.text) + "%" * word.is_prefix
        for word in words
    ]
    return _about(term) | {"patterns": patterns}


def piece_test(term: SearchTerm) -> Test:
    """Return a test that one of the words is in the JSON value, at the path."""
    words = [value for value in term.values if isinstance(value, SearchWord)]
    pieces: list[Any] = [piece for word in words for scalar in _scalars(word) for piece in (scalar, [scalar])]
    for name in reversed(term.path):
        pieces = [{name: piece} for piece in pieces]
    return _about(term) | {"pieces": pieces}


def range_test(name: str, low: float | None, high: float | None) -> Test:
    """Return a test for low <= value < high; None is open."""
    return {
        "field": name,
        "negated": False,
        "low": -_FURTHEST if low is None else low,
        "high": _FURTHEST if high is None else high,
    }


def like_exactly(text: str) -> str:
    """Escape the text for a SQL LIKE pattern."""
    return _SPECIAL.sub(r"\\\1", text)


def _about(term: SearchTerm) -> dict[str, Any]:
    return {"field": term.name, "negated": term.is_negated}


def _scalars(word: SearchWord) -> list[Any]:
    """Return the JSON values that a word can mean: 42 is a number and a text, "42" is a text."""
    if word.is_quoted or _NOT_TEXT.fullmatch(word.text) is None:
        return [word.text]
    return [word.text, json.loads(word.text)]
