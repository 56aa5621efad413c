"""What the rooms of notifications share: rows as answers, one transaction for several hands, and what is not there."""

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

# Of a payload, a condition or what is kept with a recipient: as deep as one reads.
MOST_LEVELS = 100


# Rows as answers


@cache
def shape(kind: type) -> Any:
    """For the OpenAPI document: what `told` says of a row, or of a record that holds rows."""
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
        return list[_shape(get_args(hint)[0])]  # type: ignore[misc]  # a value, for those who look at runtime
    if isinstance(hint, type) and (is_dataclass(hint) or issubclass(hint, msgspec.Struct)):
        return shape(hint)
    return hint


def page_shape(kind: type) -> Any:
    """The same of one page of them."""
    page: Any = Page
    return page[shape(kind)]


def told(found: Any, status: HTTPStatus = HTTPStatus.OK) -> Response:
    """A row, or a record that holds rows, as JSON."""
    return Response(msgspec.json.encode(found), status, media_type="application/json")


def check_storable(name: str, value: Any) -> None:
    """That PostgreSQL can keep it as JSON, and that whoever walks through it comes to an end."""
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
    """Operations of ours run in it; what the application does itself takes `conn`."""

    def __init__(self, conn: psycopg.AsyncConnection[Any], schema: str) -> None:
        self.conn = conn
        self._schema = schema

    async def run(self, operation: Operation[T]) -> T:
        return await arun(self.conn, operation, self._schema)


@asynccontextmanager
async def together(context: ServerContext) -> AsyncIterator[TransactionScope]:
    """What is done and the record of who did it: both, or neither."""
    async with context.database.aconnection() as connection, connection.transaction():
        hands = TransactionScope(connection, context.settings.schema)
        await hands.run(patience(CHANGE_SECONDS))
        yield hands


# What is not there, and what is not shown


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
    """A provider may repeat an address or a key in what it complains about."""
    if line.error_message is not None and not who.may("operator"):
        line.error_message = hidden(line.error_message)
    return line


def payload_shown(payload: msgspec.Raw, who: Principal) -> msgspec.Raw:
    """Without what looks like a secret or an address, for those who only look."""
    return payload if who.may("operator") else msgspec.Raw(encoder.encode(hidden(msgspec.json.decode(payload))))
