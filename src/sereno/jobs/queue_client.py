"""`app.queues`: depth, oldest age, pause and resume of queues, sync or async."""

from collections.abc import Sequence
from typing import Any

from sereno.database.client import DatabaseClient
from sereno.database.statement import Operation
from sereno.jobs import pauses
from sereno.jobs.queries.queues import QueueLine, list_queues


class Queues(DatabaseClient):
    """Every method has an async twin with the prefix `a`. Pass `connection` to write in your own transaction."""

    def list(self, *, connection: Any = None) -> Sequence[QueueLine]:
        """Return every queue that has jobs, a worker, a pause or a carrier."""
        return self._run(list_queues(), connection)

    async def alist(self, *, connection: Any = None) -> Sequence[QueueLine]:
        return await self._arun(list_queues(), connection)

    def get(self, name: str, *, connection: Any = None) -> QueueLine | None:
        """Return one queue: its jobs by state, how long its oldest ready job has been due, its workers and its pause.

        With a carrier, also what is pending there. None: it has neither jobs nor a worker nor a pause nor a carrier.
        """
        return self._run(_one(name), connection)

    async def aget(self, name: str, *, connection: Any = None) -> QueueLine | None:
        return await self._arun(_one(name), connection)

    def pause(self, name: str, *, note: str | None = None, actor: str | None = None, connection: Any = None) -> bool:
        """Start no more of its jobs; running ones continue. Returns False when it was paused already."""
        return self._run(pauses.pause("queue", name, note=note, actor=actor), connection)

    async def apause(
        self, name: str, *, note: str | None = None, actor: str | None = None, connection: Any = None
    ) -> bool:
        return await self._arun(pauses.pause("queue", name, note=note, actor=actor), connection)

    def resume(self, name: str, *, actor: str | None = None, connection: Any = None) -> bool:
        """Start its jobs again. Returns False when it was not paused."""
        return self._run(pauses.resume("queue", name, actor=actor), connection)

    async def aresume(self, name: str, *, actor: str | None = None, connection: Any = None) -> bool:
        return await self._arun(pauses.resume("queue", name, actor=actor), connection)


def _one(name: str) -> Operation[QueueLine | None]:
    found = yield from list_queues()
    return next((line for line in found if line.queue == name), None)
