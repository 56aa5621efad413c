"""Lists come in pages: by a cursor, which is exact while things move, or by number, for people."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any, Generic, TypeVar

from fastapi import Query

from sereno.database.statement import Operation
from sereno.server.shared.http_error import HTTPError

T = TypeVar("T")

MOST = 200
# Bytes of texts and JSON after which a page ends, whatever number of rows was asked for.
LARGEST_PAGE = 4 * 1024 * 1024
# By number, no further than this: who wants more uses the cursor.
DEEPEST = 10_000


@dataclass
class Page(Generic[T]):
    """`next`: give it as `before` to get the page after this one; null at the end."""

    items: list[T]
    next: int | None = None


@dataclass(frozen=True)
class Paging:
    """Which page is asked for."""

    limit: int
    before: int | None
    skip: int


def paging(
    limit: Annotated[int, Query(ge=1, le=MOST, description="So many at most.")] = 50,
    before: Annotated[int | None, Query(ge=0, lt=2**63, description="The `next` of the page before.")] = None,
    page: Annotated[int | None, Query(ge=1, description="By number instead, from 1 on.")] = None,
    page_size: Annotated[int | None, Query(ge=1, le=MOST, description="With `page`.")] = None,
) -> Paging:
    """The parameters of a list."""
    if page is None:
        return Paging(page_size or limit, before, 0)
    size = page_size or limit
    if page * size > DEEPEST:
        raise HTTPError(HTTPStatus.UNPROCESSABLE_ENTITY, f"page by number up to {DEEPEST:,} rows; beyond, use before=")
    return Paging(size, before, (page - 1) * size)


def page_of(
    wanted: Paging, look: Callable[[int, int | None], Operation[Sequence[T]]], cursor: Callable[[Any], int]
) -> Operation[Page[T]]:
    """One page of what `look(most, before)` finds, newest first."""
    found = list((yield from look(wanted.skip + wanted.limit + 1, wanted.before)))[wanted.skip :]
    items = found[: wanted.limit]
    return Page(items, cursor(items[-1]) if len(found) > wanted.limit else None)
