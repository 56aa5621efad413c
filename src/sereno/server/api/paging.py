"""Pages of lists: by a cursor, which is exact while rows are added, or by number, for people."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any, Generic, TypeVar

from fastapi import Query

from sereno.database.statement import Operation
from sereno.server.shared.http_error import HTTPError

T = TypeVar("T")

MOST = 200
# Bytes of texts and JSON after which a page ends, whatever its limit of rows.
LARGEST_PAGE = 4 * 1024 * 1024
# The last row that can be reached by page number; beyond it, use the cursor.
DEEPEST = 10_000


@dataclass
class Page(Generic[T]):
    """`next`: pass it as `before` to get the next page; null at the end."""

    items: list[T]
    next: int | None = None


@dataclass(frozen=True)
class Paging:
    """The requested page."""

    limit: int
    before: int | None
    skip: int


def paging(
    limit: Annotated[int, Query(ge=1, le=MOST, description="Maximum number of items.")] = 50,
    before: Annotated[int | None, Query(ge=0, lt=2**63, description="The `next` of the previous page.")] = None,
    page: Annotated[int | None, Query(ge=1, description="Page number from 1 on, instead of `before`.")] = None,
    page_size: Annotated[int | None, Query(ge=1, le=MOST, description="Items per page, with `page`.")] = None,
) -> Paging:
    """The parameters of a list."""
    if page is None:
        return Paging(page_size or limit, before, 0)
    size = page_size or limit
    if page * size > DEEPEST:
        raise HTTPError(HTTPStatus.UNPROCESSABLE_ENTITY, f"page by number up to {DEEPEST:,} rows; beyond, use before=")
    return Paging(size, before, (page - 1) * size)


def page_of(
    wanted: Paging, query: Callable[[int, int | None], Operation[Sequence[T]]], cursor: Callable[[Any], int]
) -> Operation[Page[T]]:
    """Return one page of the rows that `query(most, before)` finds, newest first."""
    found = list((yield from query(wanted.skip + wanted.limit + 1, wanted.before)))[wanted.skip :]
    items = found[: wanted.limit]
    return Page(items, cursor(items[-1]) if len(found) > wanted.limit else None)
