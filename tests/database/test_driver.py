"""A plan is always closed: its resources are released at once, not by the garbage collector."""

from typing import TypeVar

import pytest

from sereno.database.driver import adrive, drive
from sereno.database.statement import Operation, Plan

T = TypeVar("T")


class FailingDatabase:
    """Fails at the second operation, like an unavailable database."""

    def __init__(self) -> None:
        self.seen = 0

    def run(self, operation: Operation[T]) -> T:
        self.seen += 1
        if self.seen > 1:
            raise ConnectionError
        try:
            next(operation)
        except StopIteration as end:
            found: T = end.value
            return found
        raise AssertionError

    async def arun(self, operation: Operation[T]) -> T:
        return self.run(operation)


def _nothing() -> Operation[int]:
    return 1
    yield


def _holding(held: list[str]) -> Plan[int]:
    held.append("a file")
    try:
        yield _nothing()
        yield _nothing()
    finally:
        held.clear()
    return 1


def test_an_interrupted_plan_is_closed() -> None:
    held: list[str] = []
    plan = _holding(held)
    with pytest.raises(ConnectionError):
        drive(plan, FailingDatabase().run)
    assert held == []


async def test_an_interrupted_plan_is_closed_in_async_code() -> None:
    held: list[str] = []
    plan = _holding(held)
    with pytest.raises(ConnectionError):
        await adrive(plan, FailingDatabase().arun)
    assert held == []
