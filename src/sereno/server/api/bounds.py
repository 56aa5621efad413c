"""Sizes of what a request may hold.

Every list and every typed object has one: a body with two million wrong elements made two million errors, and to list
them took half a minute in which the server answered nobody.
"""

from collections.abc import Sized
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from sereno.jobs.job import LONGEST_TAG, MOST_TAGS
from sereno.text import NAME_LIMIT

Name = Annotated[str, Field(max_length=NAME_LIMIT)]
Tags = Annotated[list[Annotated[str, Field(min_length=1, max_length=LONGEST_TAG)]], Field(max_length=MOST_TAGS)]


def at_most(number: int) -> BeforeValidator:
    """Refuse an object with more entries before any of them is looked at; pydantic's own bound looks at all first."""
    return BeforeValidator(lambda value: check_few(value, number))


def check_few(value: Any, number: int) -> Any:
    """The value, unless it holds more than that."""
    if isinstance(value, Sized) and len(value) > number:
        raise ValueError(f"at most {number} entries")
    return value
