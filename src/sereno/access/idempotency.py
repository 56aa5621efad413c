"""Responses to requests with an idempotency key, stored for repetitions of the request."""

from typing import NamedTuple

from sereno.database.statement import Operation, Statement, queries
from sereno.database.vacuum import PAGE

_sql = queries("access/idempotency")


class StoredResponse(NamedTuple):
    """The state of a request with an idempotency key.

    `is_ours`: this request is to be processed now. `status` None: another request with the key is in progress.
    """

    is_ours: bool
    is_same: bool
    status: int | None
    body: bytes | None


def begin_request(who: str, key: str, request: bytes) -> Operation[StoredResponse]:
    rows = yield Statement(_sql["begin_request"], {"who": who, "key": key, "request": request})
    is_ours, is_same, status, body = rows[0]
    return StoredResponse(is_ours, is_ours or bool(is_same), status, body)


def store_response(who: str, key: str, status: int, body: bytes) -> Operation[None]:
    yield Statement(_sql["store_response"], {"who": who, "key": key, "status": status, "body": body})


def drop_request(who: str, key: str) -> Operation[None]:
    yield Statement(_sql["drop_request"], {"who": who, "key": key})


def delete_old_responses() -> Operation[bool]:
    """Delete a page of old responses; return whether there may be more."""
    return len((yield Statement(_sql["delete_old_responses"], {"most": PAGE}))) >= PAGE
