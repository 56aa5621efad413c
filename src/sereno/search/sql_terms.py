"""The terms of a search in the words of static SQL: tests of a row, of which none may fail."""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from sereno.search.syntax import Term, Word

_NOT_TEXT = re.compile(r"-?(0|[1-9][0-9]{0,29})(\.[0-9]{1,30})?|true|false|null")
_SPECIAL = re.compile(r"([\\%_])")
# Where a side is open: no figure and no moment in seconds is further out, and JSON knows no infinity.
_FURTHEST = 1e18

# As the SQL parts of a list read it: a field and what must hold of it.
Test: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SearchParams:
    """What a search asks of the rows of a list. `text`: the search. `terms`: the tests, as a parameter.

    `whole`: values of which a field must have one, and `begins`: how one begins, for whoever can find that by an index;
    the tests hold as well. `names`: the fields that it speaks of.
    """

    text: str
    terms: str | None
    whole: Mapping[str, Sequence[str]] = field(default_factory=dict)
    begins: Mapping[str, str] = field(default_factory=dict)
    names: Collection[str] = ()

    def values(self, name: str) -> list[str] | None:
        """One of these, or None where the search does not say."""
        return list(self.whole[name]) if name in self.whole else None

    def numbers(self, name: str) -> list[int] | None:
        """The same of ids."""
        return [int(text) for text in self.whole[name]] if name in self.whole else None

    def one(self, name: str) -> str | None:
        """The same where there is one value alone."""
        found = self.whole.get(name, ())
        return found[0] if len(found) == 1 else None


def parameter(tests: Collection[Test]) -> str | None:
    """Tests as the one parameter that the SQL reads."""
    return json.dumps(list(tests)) if tests else None


def word_test(term: Term, *, anywhere: bool = False) -> Test:
    """That a text is like one of the words. `anywhere`: a word without a star is a part of it."""
    around = "%" * anywhere
    words = [value for value in term.values if isinstance(value, Word)]
    patterns = [
        around + like_exactly(word.text) + around
        if word.is_whole
        else "%" * word.is_suffix + like_exactly(word.text) + "%" * word.is_prefix
        for word in words
    ]
    return _about(term) | {"patterns": patterns}


def piece_test(term: Term) -> Test:
    """That one of the words is found inside, along the path."""
    words = [value for value in term.values if isinstance(value, Word)]
    pieces: list[Any] = [piece for word in words for scalar in _scalars(word) for piece in (scalar, [scalar])]
    for name in reversed(term.path):
        pieces = [{name: piece} for piece in pieces]
    return _about(term) | {"pieces": pieces}


def range_test(name: str, low: float | None, high: float | None) -> Test:
    """From low on, and less than high; None is open."""
    return {
        "field": name,
        "negated": False,
        "low": -_FURTHEST if low is None else low,
        "high": _FURTHEST if high is None else high,
    }


def like_exactly(text: str) -> str:
    """The text as it is, in a pattern of SQL."""
    return _SPECIAL.sub(r"\\\1", text)


def _about(term: Term) -> dict[str, Any]:
    return {"field": term.name, "negated": term.is_negated}


def _scalars(word: Word) -> list[Any]:
    """What a word can be in JSON: 42 is a number and a text, "42" is a text."""
    if word.is_quoted or _NOT_TEXT.fullmatch(word.text) is None:
        return [word.text]
    return [word.text, json.loads(word.text)]
