"""What the notification routes share: rows as JSON, one transaction for several operations, 404 for missing rows."""

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import is_dataclass
from functools import cache
from http import HTTPStatus
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec
import psycopg
from fastapi import Response
from pydantic import create_model

from sereno.access.identity import Principal
from sereno.access.masking import masked as hidden
from sereno.database.json_values import encoder, stored
from sereno.database.statement import Operation, arun
from sereno.errors import ConfigurationError, InvalidArguments
from sereno.jobs.queries import patience
from sereno.notifications.operations import DeliveryDetail, RecipientDetail, masked
from sereno.notifications.rows import DeliveryLine
from sereno.server.api.paging import Page
from sereno.server.shared.context import CHANGE_SECONDS, ServerContext
from sereno.server.shared.http_error import not_found

T = TypeVar("T")

# Levels of nesting of a payload, a condition or the data of a recipient.
MOST_LEVELS = 100


# Rows as responses


@cache
def shape(kind: type) -> Any:
    """Return the model for the OpenAPI document of a row, or of a record that holds rows, as `told` encodes it."""
    hints = get_type_hints(kind)
    fields = {name: _shape(hint) for name, hint in hints.items()}
    if fields == hints and not issubclass(kind, msgspec.Struct):
        return kind
    described: dict[str, Any] = {name: (hint, ...) for name, hint in fields.items()}
    return create_model(kind.__name__, __doc__=kind.__doc__, __module__=kind.__module__, **described)


def _shape(hint: Any) -> Any:
    if hint is msgspec.Raw:
        return Any
    if get_origin(hint) is list:
        return list[_shape(get_args(hint)[0])]  # type: ignore[misc]  # a value at runtime
    if isinstance(hint, type) and (is_dataclass(hint) or issubclass(hint, msgspec.Struct)):
        return shape(hint)
    return hint


def page_shape(kind: type) -> Any:
    """Return the model of one page of them."""
    page: Any = Page
    return page[shape(kind)]


def told(found: Any, status: HTTPStatus = HTTPStatus.OK) -> Response:
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
async def together(context: ServerContext) -> AsyncIterator[TransactionScope]:
    """Open one transaction for a change and its audit entry: both are stored, or neither."""
    async with context.database.aconnection() as connection, connection.transaction():
        transaction = TransactionScope(connection, context.settings.schema)
        await transaction.run(patience(CHANGE_SECONDS))
        yield transaction


# Missing rows, and masks


def there(operation: Operation[T], what: str) -> Operation[T]:
    """404 where the operation finds nothing."""
    try:
        return (yield from operation)
    except ConfigurationError:
        raise not_found(what) from None


def recipient_shown(detail: RecipientDetail, who: Principal) -> RecipientDetail:
    for address in detail.addresses:
        address.address = masked(address.address)
    detail.recipient.data = payload_shown(detail.recipient.data, who)
    return detail


def delivery_shown(detail: DeliveryDetail, who: Principal) -> DeliveryDetail:
    if detail.delivery.address is not None:
        detail.delivery.address = masked(detail.delivery.address)
    detail.delivery.payload = payload_shown(detail.delivery.payload, who)
    line_shown(detail.delivery, who)
    return detail


def line_shown(line: DeliveryLine, who: Principal) -> DeliveryLine:
    """Mask the error message for viewers: a provider may repeat an address or a key in it."""
    if line.error_message is not None and not who.may("operator"):
        line.error_message = hidden(line.error_message)
    return line


def payload_shown(payload: msgspec.Raw, who: Principal) -> msgspec.Raw:
    """Return the payload, for viewers with likely secrets and addresses masked."""
    return payload if who.may("operator") else msgspec.Raw(encoder.encode(hidden(msgspec.json.decode(payload))))
