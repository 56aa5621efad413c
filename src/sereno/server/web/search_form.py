"""The search form of a list: its parsed search, or the error and its position."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from sereno.database.statement import Operation
from sereno.errors import InvalidArguments
from sereno.search.search_filter import search_params
from sereno.search.sql_terms import SearchParams
from sereno.search.syntax import LONGEST, InvalidSearch, SearchField, SearchTerm, SearchWord, parse
from sereno.server.shared.cache import FRESH_SECONDS, Cached
from sereno.server.shared.error_masking import sees_all
from sereno.server.shared.http_error import HTTPError
from sereno.server.shared.search_access import check_search
from sereno.server.web.page_request import PageRequest

S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SearchForm(Generic[T]):
    """A search. `wanted`: its filter; None for an invalid or empty search.

    `problem`: why it is invalid, and `at` which character, if known. `fields`: the names of all fields.
    """

    text: str
    terms: tuple[SearchTerm, ...] = ()
    wanted: T | None = None
    problem: str | None = None
    at: int | None = None
    fields: tuple[str, ...] = ()

    @property
    def word(self) -> str | None:
        """The word, if the search is a single one."""
        match self.terms:
            case [SearchTerm(name="", values=[SearchWord() as word], is_negated=False)] if word.is_whole:
                return word.text
        return None


def filter_params(
    page: PageRequest, fields: Sequence[SearchField], meaning: Callable[[str, datetime], T]
) -> SearchForm[T]:
    """Return the search in the query. Its days are days of UTC, as in the API."""
    text = page.query.get("q", "").strip()
    names = tuple(each.name for each in fields)
    try:
        terms = parse(text, fields).terms
        check_search(text, fields, page.who)
        return SearchForm(text, terms, meaning(text, datetime.now(UTC)), fields=names)
    except InvalidSearch as error:
        return SearchForm(text[:LONGEST], problem=str(error), at=error.at, fields=names)
    except (InvalidArguments, HTTPError) as error:
        return SearchForm(text[:LONGEST], problem=str(error), fields=names)


def search_params_for(page: PageRequest, fields: Sequence[SearchField]) -> SearchForm[SearchParams | None]:
    """Return the search of a list that only filters rows; a search for another tenant finds nothing."""
    hides = not sees_all(page.who)
    return filter_params(page, fields, lambda text, now: search_params(text, fields, now, hides=hides))


async def listed(
    page: PageRequest,
    form: SearchForm[Any],
    key: tuple[Hashable, ...],
    operation: Callable[[], Operation[list[S]]],
    *,
    fresh: float = FRESH_SECONDS,
) -> Cached[list[S]]:
    """Return the rows of a list; none for an invalid search, without a query.

    `key`: what else they depend on. The search is cached by its text: `2h` is another time at each request.
    """
    if form.problem is not None:
        return Cached([])
    return await page.load((*key, form.text), operation, fresh=fresh)
