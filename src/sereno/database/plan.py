"""Plans: work that is too long for one transaction. A plan yields operations, each run in its own transaction.

Like an operation, a plan is written once and runs on sync or async connections.
"""

from collections.abc import Generator
from typing import Any, Protocol, TypeAlias, TypeVar

from sereno.database.statement import Operation

T = TypeVar("T")

Plan: TypeAlias = Generator[Operation[Any], Any, T]


class Runner(Protocol):
    """Runs an operation in a transaction: `Database`, or the connection of the command line."""

    def run(self, operation: Operation[T]) -> T: ...


class AsyncRunner(Protocol):
    """The same for async code."""

    async def arun(self, operation: Operation[T]) -> T: ...


def carry_out(runner: Runner, plan: Plan[T]) -> T:
    """Run a plan to its end. The plan is always closed, because it may hold open files."""
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
