"""What many people look at is looked up once: for all viewers together, and no more often than once a second.

A look that takes too long shows what was seen before, with its age: no page is an error because the database is busy.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from sereno.database.statement import Operation
from sereno.server.shared.busy import BUSY
from sereno.server.shared.context import LOOK_SECONDS

T = TypeVar("T")
S = TypeVar("S")

FRESH_SECONDS = 1.0
# So many, for so long: as they were last, if the database does not answer.
MOST_REMEMBERED, REMEMBERED_SECONDS = 500, 900.0


@dataclass(frozen=True, slots=True)
class Cached(Generic[T]):
    """`value` is None when it could never be seen. `age`: seconds; more than nothing when now it could not be seen."""

    value: T | None
    age: float = 0.0

    @property
    def is_old(self) -> bool:
        return self.age > 0

    @property
    def is_missing(self) -> bool:
        return self.value is None and self.age < 0


MISSING: Cached[Any] = Cached(None, -1.0)


class Reader(Protocol):
    """Whatever reads: the house."""

    async def read(self, operation: Operation[S], *, seconds: float = ...) -> S: ...


class Cache:
    """Values by key; a key names what is looked at and for whom."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._values: OrderedDict[Hashable, tuple[float, Any]] = OrderedDict()
        self._looking: dict[Hashable, asyncio.Task[Cached[Any]]] = {}

    async def get(
        self,
        key: Hashable,
        operation: Callable[[], Operation[T]],
        *,
        fresh: float = FRESH_SECONDS,
        patience: float | None = None,
        seconds: float = LOOK_SECONDS,
        keep: bool = True,
    ) -> Cached[T]:
        """As it was at most `fresh` seconds ago, or as it was last if now is not the time.

        `keep`: False for what may be large and is of one thing alone; it is looked up once for all who ask together.
        With `patience`, nobody waits longer than that: the look goes on, and whoever comes next sees what it found.
        """
        at, value = self._values.get(key, (0.0, None))
        if at and at + fresh > time.monotonic():
            return Cached(value)
        task = self._looking.get(key)
        if task is None:
            task = asyncio.create_task(self._look(key, operation, seconds, keep=keep))
            self._looking[key] = task
            task.add_done_callback(lambda _: self._looking.pop(key, None))
        # Whoever leaves does not take the look of the others with them.
        done, _ = await asyncio.wait({task}, timeout=patience)
        return task.result() if done else self._before(key)

    def _before(self, key: Hashable) -> Cached[Any]:
        at, old = self._values.get(key, (0.0, None))
        return Cached(old, time.monotonic() - at) if at else MISSING

    async def _look(
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
        """What nobody has looked at for long, and the oldest of too many."""
        long_ago = time.monotonic() - REMEMBERED_SECONDS
        while len(self._values) > MOST_REMEMBERED or next(iter(self._values.values()))[0] < long_ago:
            self._values.popitem(last=False)
