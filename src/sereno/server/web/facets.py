"""Facets of a search: links that add a value of a field to the search, or remove it."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from sereno.bounded_count import BoundedCount
from sereno.search.syntax import Search, SearchTerm, SearchWord

_NEEDS_QUOTES = re.compile(r'[\s",*\\]')


@dataclass(frozen=True, slots=True)
class Facet:
    """One value of a field. `asking`, `excluding`: the search of its two links; `count` is None where unknown."""

    value: str
    count: BoundedCount | None
    is_chosen: bool
    is_excluded: bool
    asking: str
    excluding: str


def facets(terms: Sequence[SearchTerm], name: str, values: Iterable[tuple[str, BoundedCount | None]]) -> list[Facet]:
    """Return a facet for each value."""
    return [
        Facet(
            value,
            count,
            _has(terms, name, value, negated=False),
            _has(terms, name, value, negated=True),
            toggled(terms, name, value, negated=False),
            toggled(terms, name, value, negated=True),
        )
        for value, count in values
    ]


def toggled(terms: Sequence[SearchTerm], name: str, value: str, *, negated: bool) -> str:
    """Return the search with this value of the field added or excluded; removed if it was already so.

    The values of one field are one term: `queue:a,b` matches either, `-queue:a,b` neither.
    """
    remaining = [less for term in terms if (less := _without(term, name, value)) is not None]
    if _has(terms, name, value, negated=negated):
        return str(Search(tuple(remaining)))
    word = SearchWord(value, is_quoted=_NEEDS_QUOTES.search(value) is not None)
    for place, term in enumerate(remaining):
        if term.name == name and term.is_negated == negated and not term.path:
            remaining[place] = replace(term, values=(*term.values, word))
            return str(Search(tuple(remaining)))
    return str(Search((*remaining, SearchTerm(name, (word,), negated))))


def left_out(terms: Sequence[SearchTerm], place: int) -> str:
    """Return the search without one of its terms."""
    return str(Search((*terms[:place], *terms[place + 1 :])))


def _has(terms: Sequence[SearchTerm], name: str, value: str, *, negated: bool) -> bool:
    return any(
        term.name == name and term.is_negated == negated and any(_is(each, value) for each in term.values)
        for term in terms
    )


def _without(term: SearchTerm, name: str, value: str) -> SearchTerm | None:
    """Return the term without that value; None where no value is left."""
    if term.name != name:
        return term
    values = tuple(each for each in term.values if not _is(each, value))
    return replace(term, values=values) if values else None


def _is(each: object, value: str) -> bool:
    return isinstance(each, SearchWord) and each.text == value and each.is_whole
