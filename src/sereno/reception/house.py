"""What the rooms of the API stand on: a database to read and to change, and what the application knows."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sereno.domain.job import JobOptions, NewJob
from sereno.operations.plan import Plan, acarry_out
from sereno.reception.guard import Guard
from sereno.settings import Settings
from sereno.store.database import Database
from sereno.store.insights import patience, read_only
from sereno.store.statement import Operation

T = TypeVar("T")

# A look that takes longer asks for too much; a change may take its time.
LOOK_SECONDS = 2.0
CHANGE_SECONDS = 30.0
# So many looks at once; who comes then waits, and the workers keep their connections.
MOST_LOOKS = 8


@dataclass
class House:
    """`new_job`: as the application makes one. `parts`: what else of the application a room needs, by name."""

    database: Database
    guard: Guard
    new_job: Callable[[str, bytes, JobOptions], NewJob]
    parts: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._looks = asyncio.Semaphore(MOST_LOOKS)
        # What has to hear of the end of the server, so that nobody waits for a stream.
        self.endings: list[Callable[[], Awaitable[None]]] = []

    async def end(self) -> None:
        """The server ends."""
        for ending in self.endings:
            await ending()

    @property
    def settings(self) -> Settings:
        return self.database.settings

    async def read(self, operation: Operation[T], *, seconds: float = LOOK_SECONDS) -> T:
        """In a transaction that can change nothing, and not for long."""
        async with self._looks:
            return await self.database.arun(_reading(operation, seconds))

    async def change(self, operation: Operation[T]) -> T:
        """All of it or nothing."""
        return await self.database.arun(_within(CHANGE_SECONDS, operation))

    async def carry_out(self, plan: Plan[T]) -> T:
        """A long change, in transactions of a thousand."""
        return await acarry_out(_Changing(self), plan)


class _Changing:
    """Each part of a plan in a transaction of its own."""

    def __init__(self, house: House) -> None:
        self._house = house

    async def arun(self, operation: Operation[T]) -> T:
        return await self._house.change(operation)


def _reading(operation: Operation[T], seconds: float) -> Operation[T]:
    yield from read_only()
    return (yield from _within(seconds, operation))


def _within(seconds: float, operation: Operation[T]) -> Operation[T]:
    yield from patience(seconds)
    return (yield from operation)
