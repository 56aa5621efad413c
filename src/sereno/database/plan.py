"""Work that is too long for one transaction: a plan yields operations, and each of them is a transaction of its own.

The same idea as in the store, one floor up: a plan runs on sync or async connections and is written once.
"""

from collections.abc import Generator
from typing import Any, Protocol, TypeAlias, TypeVar

from sereno.database.statement import Operation

T = TypeVar("T")

Plan: TypeAlias = Generator[Operation[Any], Any, T]


class Runner(Protocol):
    """Whatever runs an operation in a transaction: `Database`, or the command line's one connection."""

    def run(self, operation: Operation[T]) -> T: ...


class AsyncRunner(Protocol):
    """The same for async code."""

    async def arun(self, operation: Operation[T]) -> T: ...


def carry_out(runner: Runner, plan: Plan[T]) -> T:
    """Drive a plan to its end. Wherever that is, the plan is closed: it may hold files."""
    try:
        operation = next(plan)
        while True:
            operation = plan.send(runner.run(operation))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # StopIteration carries the plan's own T, untyped
    finally:
        plan.close()


async def acarry_out(runner: AsyncRunner, plan: Plan[T]) -> T:
    """`carry_out` for async code."""
    try:
        operation = next(plan)
        while True:
            operation = plan.send(await runner.arun(operation))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # StopIteration carries the plan's own T, untyped
    finally:
        plan.close()
