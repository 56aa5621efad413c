"""Reads that are slow in Python rather than in the database: run in a thread, one after the other."""

import asyncio
from typing import TypeVar

from sereno.database.statement import Operation
from sereno.database.transaction import begin_read
from sereno.server.shared.context import READ_TIMEOUT, ServerContext

T = TypeVar("T")


class SerialThread:
    """While one read runs in its thread, the server handles other requests."""

    def __init__(self, context: ServerContext) -> None:
        self._database = context.database
        self._turn = asyncio.Semaphore(1)

    async def read(self, operation: Operation[T]) -> T:
        """Run an operation, as `ServerContext.read` does."""
        async with self._turn:
            return await asyncio.to_thread(self._database.run, _reading(operation))


def _reading(operation: Operation[T]) -> Operation[T]:
    yield from begin_read(READ_TIMEOUT)
    return (yield from operation)
