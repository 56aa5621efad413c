"""A cache of query results: each query runs once for all viewers together, at most once a second.

When a query takes too long, the previous result is returned with its age: a page works while the database is busy.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from sereno.database.statement import Operation
from sereno.server.shared.busy import BUSY
from sereno.server.shared.context import READ_TIMEOUT

T = TypeVar("T")
S = TypeVar("S")

FRESH_SECONDS = 1.0
# Cache size and time to live in seconds. Stale entries are served while the database is unavailable.
MOST_REMEMBERED, REMEMBERED_SECONDS = 500, 900.0


@dataclass(frozen=True, slots=True)
class Cached(Generic[T]):
    """A result. `value` is None when none was ever read. `age`: seconds; above zero when the last query has failed."""

    value: T | None
    age: float = 0.0

    @property
    def is_old(self) -> bool:
        return self.age > 0

    @property
    def is_missing(self) -> bool:
        return self.value is None and self.age < 0


MISSING: Cached[Any] = Cached(None, -1.0)


class OperationReader(Protocol):
    """What runs a query: `ServerContext`."""

    async def read(self, operation: Operation[S], *, seconds: float = ...) -> S: ...


class CachedReader(OperationReader, Protocol):
    """A reader that may use a standby: the results of requests that may not are cached apart."""

    def may_use_standby(self) -> bool: ...


class Cache:
    """Results by key; a key names the query and its reader."""

    def __init__(self, reader: CachedReader) -> None:
        self._reader = reader
        self._values: OrderedDict[Hashable, tuple[float, Any]] = OrderedDict()
        self._running: dict[Hashable, asyncio.Task[Cached[Any]]] = {}

    async def get(
        self,
        key: Hashable,
        operation: Callable[[], Operation[T]],
        *,
        fresh: float = FRESH_SECONDS,
        timeout: float | None = None,
        seconds: float = READ_TIMEOUT,
        keep: bool = True,
    ) -> Cached[T]:
        """Return the result, at most `fresh` seconds old; an older one while the database is busy.

        `keep`: False for a large result that one page alone needs; concurrent requests still share one query.
        `timeout`: seconds after which the previous result is returned; the query continues, for the next caller.
        """
        # Apart, because a standby may be behind a result from the primary.
        key = (self._reader.may_use_standby(), key)
        at, value = self._values.get(key, (0.0, None))
        if at and at + fresh > time.monotonic():
            return Cached(value)
        task = self._running.get(key)
        if task is None:
            task = asyncio.create_task(self._read(key, operation, seconds, keep=keep))
            self._running[key] = task
            task.add_done_callback(lambda _: self._running.pop(key, None))
        # A caller that is cancelled does not cancel the query of the others.
        done, _ = await asyncio.wait({task}, timeout=timeout)
        return task.result() if done else self._before(key)

    def _before(self, key: Hashable) -> Cached[Any]:
        at, old = self._values.get(key, (0.0, None))
        return Cached(old, time.monotonic() - at) if at else MISSING

    async def _read(
        self, key: Hashable, operation: Callable[[], Operation[T]], seconds: float, *, keep: bool
    ) -> Cached[T]:
        try:
            value = await self._reader.read(operation(), seconds=seconds)
        except BUSY:
            return self._before(key)
        if not keep:
            return Cached(value)
        self._values[key] = (time.monotonic(), value)
        self._values.move_to_end(key)
        self._forget()
        return Cached(value)

    def _forget(self) -> None:
        """Drop expired results, and the oldest ones above the limit."""
        long_ago = time.monotonic() - REMEMBERED_SECONDS
        while len(self._values) > MOST_REMEMBERED or next(iter(self._values.values()))[0] < long_ago:
            self._values.popitem(last=False)
