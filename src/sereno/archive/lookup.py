"""What is not in the house any more may lie in the archive: where, and how it comes back."""

from collections.abc import Mapping
from typing import Literal, TypeVar

from sereno.archive.operations import whereabouts
from sereno.archive.queries import ArchivedLocation
from sereno.database.statement import Operation
from sereno.errors import ConfigurationError, JobNotFound

T = TypeVar("T")

Noun = Literal["job", "delivery"]
KINDS: Mapping[Noun, str] = {"job": "jobs", "delivery": "deliveries"}
# Files in a sentence.
NAMED = 3


def words(noun: Noun, number: int) -> Operation[str | None]:
    """Where it is or may be, and what to type; None if it is not there."""
    # A larger number is nobody's.
    found = (yield from whereabouts(KINDS[noun], number)) if 0 < number < 2**63 else []
    if not found:
        return None
    where = ", ".join(_place(each) for each in found[:NAMED]) + (", …" if len(found) > NAMED else "")
    is_sure = any(each.held for each in found)
    said = f"{noun} {number} {'is' if is_sure else 'is not here; it may be'} in the archive: {where}. "
    return f"{said}Bring it back: sereno archive restore {noun} {number}"


def or_archived(noun: Noun, number: int, look: Operation[T]) -> Operation[T]:
    """The same look; the error for what is not there says where in the archive it may be."""
    try:
        return (yield from look)
    except (JobNotFound, ConfigurationError) as error:
        said = yield from words(noun, number)
        if said is None:
            raise
        raise type(error)(said) from None


def _place(found: ArchivedLocation) -> str:
    return f"batch {found.batch}" if found.object is None else f"batch {found.batch}, {found.object}"
