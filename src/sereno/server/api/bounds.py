"""Size limits of request bodies.

Every list and every typed object has one: a body with two million wrong elements made two million errors, and to list
them took half a minute in which the server served no other request.
"""

from collections.abc import Sized
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from sereno.jobs.job import LONGEST_TAG, MOST_TAGS
from sereno.text import NAME_LIMIT

Name = Annotated[str, Field(max_length=NAME_LIMIT)]
Tags = Annotated[list[Annotated[str, Field(min_length=1, max_length=LONGEST_TAG)]], Field(max_length=MOST_TAGS)]


def at_most(number: int) -> BeforeValidator:
    """Refuse an object with too many entries before any is validated; pydantic's own limit validates all first."""
    return BeforeValidator(lambda value: check_few(value, number))


def check_few(value: Any, number: int) -> Any:
    """Return the value; ValueError when it has more entries."""
    if isinstance(value, Sized) and len(value) > number:
        raise ValueError(f"at most {number} entries")
    return value
