"""Rows that are no longer in the database: 404, with the place in the archive where they may be."""

from collections.abc import Sequence
from http import HTTPStatus

from sereno.access.identity import Principal
from sereno.archive.lookup import KINDS, RowKind, archived_text
from sereno.archive.operations import whereabouts
from sereno.archive.queries import ArchivedLocation
from sereno.database.statement import Operation
from sereno.server.shared.http_error import HTTPError, not_found


def places(kind: RowKind, number: int, who: Principal) -> Operation[Sequence[ArchivedLocation]]:
    """Return where the row is or may be, newest first; nothing for a tenant's user: a file holds many tenants' rows."""
    if who.tenant is not None:
        return []
    return (yield from whereabouts(KINDS[kind], number))


def gone(kind: RowKind, number: int, who: Principal) -> Operation[HTTPError]:
    """Return a 404 error, which names the place if the row is in the archive."""
    detail = None if who.tenant is not None else (yield from archived_text(kind, number))
    return not_found(f"{kind} {number}") if detail is None else HTTPError(HTTPStatus.NOT_FOUND, detail)
