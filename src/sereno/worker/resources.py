"""The open resources of a process: each is opened when a handler first needs it, and closed when the worker stops.

Each resource lives in an asyncio task of its own, which opens and closes it: libraries such as anyio require that both
happen in one task, and the attempt that opened it has ended long before.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any

from sereno.error_text import storable
from sereno.errors import ResourceUnavailable
from sereno.jobs.attempt import Outcome
from sereno.jobs.resource import Resource
from sereno.telemetry.log_events import emit

# Seconds that a resource may take to open.
OPEN_TIMEOUT = 60.0
# Seconds that all resources of a worker may take to close, and those of an isolated process, which has less time.
CLOSE_TIMEOUT, ISOLATED_CLOSE_TIMEOUT = 5.0, 2.0


class OpenResource:
    """One resource and the task that holds it open."""

    def __init__(self, resource: Resource[Any], needs: Mapping[str, Any]) -> None:
        self._resource = resource
        self._needs = needs
        self._closing = asyncio.Event()
        self._value: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._hold(), name=f"resource {resource.name}")

    async def value(self) -> Any:
        """Wait until it is open. An attempt that is cancelled meanwhile does not stop the opening: others wait too."""
        return await asyncio.shield(self._value)

    @property
    def has_failed(self) -> bool:
        return self._value.done() and (self._value.cancelled() or self._value.exception() is not None)

    async def close(self) -> None:
        """Close it, or stop the opening."""
        self._closing.set()
        if not self._value.done():
            self._task.cancel()
        await asyncio.wait([self._task])

    def give_up(self) -> None:
        self._task.cancel()

    async def _hold(self) -> None:
        name = self._resource.name
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(OPEN_TIMEOUT):
                    value = await stack.enter_async_context(_as_async(self._resource, self._needs))
                self._value.set_result(value)
                await self._closing.wait()
        except BaseException as error:  # noqa: BLE001 - what a resource raises is given to the attempts that wait for it
            if self._value.done():
                message = f"resource {name} was not closed properly: {storable(error)}"
                emit(logging.ERROR, "resource.unclosed", message, error=error)
            elif isinstance(error, asyncio.CancelledError):
                self._value.cancel()
            else:
                self._value.set_exception(_failure(name, error))
                # Read here: an attempt that is cancelled meanwhile does not.
                self._value.exception()


class OpenResources:
    """The open resources of one worker or of one isolated process."""

    def __init__(self, overrides: Mapping[str, Any]) -> None:
        """`overrides`: values given instead of opening a resource, by its name."""
        self._overrides = overrides
        self._open: dict[str, OpenResource] = {}

    async def values(self, needs: Mapping[str, Resource[Any]]) -> dict[str, Any]:
        """Return the values of these resources by parameter name; open those that are not open yet."""
        return {name: await self._value(resource) for name, resource in needs.items()}

    async def _value(self, resource: Resource[Any]) -> Any:
        name = resource.name
        if name in self._overrides:
            return self._overrides[name]
        found = self._open.get(name)
        if found is None or found.has_failed:
            # Other attempts may open it while this one waits for what it needs.
            needs = await self.values(resource.needs)
            found = self._open.get(name)
            if found is None or found.has_failed:
                # Removed first: resources are closed in the reverse order of this dictionary.
                self._open.pop(name, None)
                found = self._open[name] = OpenResource(resource, needs)
        return await found.value()

    async def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Close all, the last opened first: it may use the others."""
        opened, self._open = self._open, {}
        try:
            async with asyncio.timeout(timeout):
                while opened:
                    _, last = opened.popitem()
                    await last.close()
        except TimeoutError:
            message = f"a resource took longer than {timeout:g} s to close: it is given up"
            emit(logging.ERROR, "resource.unclosed", message)
            last.give_up()
            for left in opened.values():
                left.give_up()


@asynccontextmanager
async def _as_async(resource: Resource[Any], needs: Mapping[str, Any]) -> AsyncIterator[Any]:
    """Open the resource for one block. A sync generator runs in a thread, because it may block."""
    if resource.is_async:
        async with asynccontextmanager(resource.function)(**needs) as value:
            yield value
        return
    opened = contextmanager(resource.function)(**needs)
    value = await asyncio.to_thread(opened.__enter__)
    try:
        yield value
    finally:
        await asyncio.to_thread(opened.__exit__, None, None, None)


def _failure(name: str, error: BaseException) -> BaseException:
    """Return the error with the name of the resource. An outcome, such as Snooze, is for the attempt as it is."""
    if isinstance(error, Outcome):
        return error
    failure = ResourceUnavailable(f"resource {name} could not be opened: {type(error).__name__}: {storable(error)}")
    failure.__cause__ = error
    return failure
