"""Finds rows in the archive that are no longer in the database, and says how to restore them."""

from collections.abc import Mapping
from typing import Literal, TypeVar

from sereno.archive.operations import whereabouts
from sereno.archive.queries import ArchivedLocation
from sereno.database.statement import Operation
from sereno.errors import ConfigurationError, JobNotFound

T = TypeVar("T")

RowKind = Literal["job", "delivery"]
KINDS: Mapping[RowKind, str] = {"job": "jobs", "delivery": "deliveries"}
# Files named in a message.
NAMED = 3


def archived_text(kind: RowKind, number: int) -> Operation[str | None]:
    """Return where it is or may be and the command that restores it; None if it is not in the archive."""
    # A larger number is not an id.
    found = (yield from whereabouts(KINDS[kind], number)) if 0 < number < 2**63 else []
    if not found:
        return None
    where = ", ".join(_place(each) for each in found[:NAMED]) + (", …" if len(found) > NAMED else "")
    is_sure = any(each.held for each in found)
    text = f"{kind} {number} {'is' if is_sure else 'is not here; it may be'} in the archive: {where}. "
    return f"{text}Restore it: sereno archive restore {kind} {number}"


def or_archived(kind: RowKind, number: int, query: Operation[T]) -> Operation[T]:
    """Run the query; if it finds nothing, the error says where in the archive the row may be."""
    try:
        return (yield from query)
    except (JobNotFound, ConfigurationError) as error:
        text = yield from archived_text(kind, number)
        if text is None:
            raise
        raise type(error)(text) from None


def _place(found: ArchivedLocation) -> str:
    return f"batch {found.batch}" if found.object is None else f"batch {found.batch}, {found.object}"
