"""What somebody asks for and is not in the house any more: 404, and where in the archive it may be."""

from collections.abc import Sequence
from http import HTTPStatus

from sereno.access.identity import Principal
from sereno.archive.lookup import KINDS, Noun, words
from sereno.archive.operations import whereabouts
from sereno.archive.queries import ArchivedLocation
from sereno.database.statement import Operation
from sereno.server.shared.http_error import HTTPError, not_found


def places(noun: Noun, number: int, who: Principal) -> Operation[Sequence[ArchivedLocation]]:
    """Where it is or may be, the newest first. Nothing for somebody of a tenant: a file holds many tenants' rows."""
    if who.tenant is not None:
        return []
    return (yield from whereabouts(KINDS[noun], number))


def gone(noun: Noun, number: int, who: Principal) -> Operation[HTTPError]:
    """404; with the words that help, if it is in the archive."""
    said = None if who.tenant is not None else (yield from words(noun, number))
    return not_found(f"{noun} {number}") if said is None else HTTPError(HTTPStatus.NOT_FOUND, said)
