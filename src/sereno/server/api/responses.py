"""What routes share: rows as responses, one transaction for several operations, 404 for missing rows."""

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import is_dataclass
from functools import cache, reduce
from http import HTTPStatus
from operator import or_
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec
import psycopg
from fastapi import Response
from pydantic import create_model

from sereno.database.json_values import stored
from sereno.database.statement import Operation, arun
from sereno.database.transaction import statement_timeout
from sereno.errors import ConfigurationError, InvalidArguments
from sereno.server.api.paging import Page
from sereno.server.shared.context import CHANGE_SECONDS, ServerContext
from sereno.server.shared.http_error import not_found

T = TypeVar("T")

# Levels of nesting of a payload, a condition or the data of a recipient.
MOST_LEVELS = 100


# Rows as responses


@cache
def response_model(kind: type) -> Any:
    """Return the OpenAPI model of a row, or of a record that holds rows, as `json_response` writes it."""
    hints = get_type_hints(kind)
    fields = {name: _response_model(hint) for name, hint in hints.items()}
    if fields == hints and not issubclass(kind, msgspec.Struct):
        return kind
    described: dict[str, Any] = {name: (hint, ...) for name, hint in fields.items()}
    return create_model(kind.__name__, __doc__=kind.__doc__, __module__=kind.__module__, **described)


def _response_model(hint: Any) -> Any:
    if hint is msgspec.Raw:
        return Any
    if get_origin(hint) is list:
        return list[_response_model(get_args(hint)[0])]  # type: ignore[misc]  # a value at runtime
    if get_origin(hint) is UnionType:
        return reduce(or_, [_response_model(each) for each in get_args(hint)])
    if isinstance(hint, type) and (is_dataclass(hint) or issubclass(hint, msgspec.Struct)):
        return response_model(hint)
    return hint


def page_model(kind: type) -> Any:
    """Return the model of one page of them."""
    page: Any = Page
    return page[response_model(kind)]


def json_response(found: Any, status: HTTPStatus = HTTPStatus.OK) -> Response:
    """Return a response with a row, or a record that holds rows, as JSON."""
    return Response(msgspec.json.encode(found), status, media_type="application/json")


def check_storable(name: str, value: Any) -> None:
    """Refuse a value that PostgreSQL cannot store as JSON, or that is nested too deeply."""
    level, inside = 0, [value]
    while inside:
        inside = [part for each in inside for part in _parts(each)]
        level += 1
        if level > MOST_LEVELS:
            raise InvalidArguments(f"{name}: nested more than {MOST_LEVELS} levels deep")
    stored(value, lambda why: InvalidArguments(f"{name}: {why}"))


def _parts(value: Any) -> Collection[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


# One transaction


class TransactionScope:
    """One transaction: runs operations of the engine; methods of the application take its `conn`."""

    def __init__(self, conn: psycopg.AsyncConnection[Any], schema: str) -> None:
        self.conn = conn
        self._schema = schema

    async def run(self, operation: Operation[T]) -> T:
        return await arun(self.conn, operation, self._schema)


@asynccontextmanager
async def one_transaction(context: ServerContext) -> AsyncIterator[TransactionScope]:
    """Open one transaction for a change and its audit entry: both are stored, or neither."""
    async with context.database.aconnection() as connection, connection.transaction():
        transaction = TransactionScope(connection, context.settings.schema)
        await transaction.run(statement_timeout(CHANGE_SECONDS))
        yield transaction


# Missing rows


def or_not_found(operation: Operation[T], what: str) -> Operation[T]:
    """404 where the operation finds nothing."""
    try:
        return (yield from operation)
    except ConfigurationError:
        raise not_found(what) from None
