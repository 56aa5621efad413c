"""The two drivers of sans-I/O generators, one sync and one async.

An `Operation` yields statements and is sent their rows; it runs inside one transaction. A `Plan` yields operations and
is sent their results; each of its operations is a transaction of its own, because the work is too long for one. Both
are written once and driven by `drive` or `adrive`.
"""

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

Yielded = TypeVar("Yielded")
Result = TypeVar("Result")


def drive(generator: Generator[Yielded, Any, Result], execute: Callable[[Yielded], Any]) -> Result:
    """Execute what the generator yields, send each result back, and return what the generator returns.

    An exception of `execute` is raised inside the generator, which may handle it. The generator is always closed,
    because it may hold open files.
    """
    try:
        item = next(generator)
        while True:
            try:
                result = execute(item)
            except Exception as error:  # noqa: BLE001 - the generator knows which errors it can handle
                item = generator.throw(error)
            else:
                item = generator.send(result)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # StopIteration carries the generator's own result, untyped
    finally:
        generator.close()


async def adrive(generator: Generator[Yielded, Any, Result], execute: Callable[[Yielded], Awaitable[Any]]) -> Result:
    """`drive` for an `execute` that is awaited."""
    try:
        item = next(generator)
        while True:
            try:
                result = await execute(item)
            except Exception as error:  # noqa: BLE001 - the generator knows which errors it can handle
                item = generator.throw(error)
            else:
                item = generator.send(result)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # StopIteration carries the generator's own result, untyped
    finally:
        generator.close()
