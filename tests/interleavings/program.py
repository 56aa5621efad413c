"""What one actor of a scenario does: operations of the store, one after another, as its caller runs them."""

from collections.abc import Generator
from typing import Any, Literal, NamedTuple, TypeAlias

from sereno.database.statement import Operation

Isolation: TypeAlias = Literal["read committed", "repeatable read"]


class Run(NamedTuple):
    """One operation. `atomic`: all its statements in one transaction; otherwise each is a transaction of its own."""

    operation: Operation[Any]
    atomic: bool = False
    isolation: Isolation = "read committed"


# Yields what to run, and is sent the result of each operation. It gets `ReplyLost` where a reply was lost, and where a
# statement failed, the error of the database.
Program: TypeAlias = Generator[Run, Any, None]


class ReplyLost(Exception):  # noqa: N818 - an event, not a mistake
    """The transaction was committed, and its caller does not know."""
