"""What the rooms of the API stand on: a database to read and to change, and what the application knows."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeVar

from sereno.access.identity import Principal
from sereno.app import Sereno
from sereno.database.database import Database
from sereno.database.driver import adrive
from sereno.database.statement import Operation, Plan
from sereno.jobs import task_rows
from sereno.jobs.job import JobOptions, NewJob
from sereno.jobs.queries import patience, read_only
from sereno.jobs.task import OWN_TASKS
from sereno.notifications.client import Event
from sereno.server.shared.authenticator import ASKING, Authenticator, Share
from sereno.server.shared.http_error import HTTPError
from sereno.settings import Settings

T = TypeVar("T")

# A look that takes longer asks for too much; a change may take its time.
LOOK_SECONDS = 2.0
CHANGE_SECONDS = 30.0
# So many looks at once; who comes then waits, and the workers keep their connections.
MOST_LOOKS = 8
# Of one person, or of one tenant with all its tokens, so many at once, and so many in all.
MOST_OF_ONE, MOST_WAITING = 4, 100
# Processes that render templates of a stranger, at once. Others wait for their turn without holding a thread.
MOST_PROCESSES = 2
# All statements of a look together, in times of one.
WHOLE_LOOK = 3


class _SharedRead:
    """What one person looks at: so many at once, and those that wait or look."""

    def __init__(self, at_once: int) -> None:
        self.looks = asyncio.Semaphore(at_once)
        self.waiting = 0


@dataclass
class ServerContext:
    """What the handlers of the API and the pages work with: the application, and who may ask."""

    app: Sereno
    authenticator: Authenticator

    def __post_init__(self) -> None:
        self.database: Database = self.app.database
        # A connection is left for the doorkeeper and for changes, and half of the others for somebody else.
        pool = self.settings.pool_size
        self._processes = asyncio.Semaphore(MOST_PROCESSES)
        self._looks = asyncio.Semaphore(max(1, min(MOST_LOOKS, pool - 1)))
        self._of_one = max(1, min(MOST_OF_ONE, pool // 2))
        self._shares: dict[Share | None, _SharedRead] = {}
        self._process_shares: dict[Share | None, _SharedRead] = {}
        # What has to hear of the end of the server, so that nobody waits for a stream.
        self.endings: list[Callable[[], Awaitable[None]]] = []

    def make_job(self, task: str, arguments: bytes, options: JobOptions) -> NewJob:
        """As the application makes one, for somebody of the house."""
        check_task(task)
        return self.app.new_job(task, arguments, options)

    async def job_maker(self, who: Principal) -> Callable[[str, bytes, JobOptions], NewJob]:
        """The same for whoever asks: somebody of a tenant has only tasks run that are open to tenants."""
        allowed = await self.open_tasks(who)

        def make(task: str, arguments: bytes, options: JobOptions) -> NewJob:
            check_task(task, allowed)
            return self.app.new_job(task, arguments, options)

        return make

    async def open_tasks(self, who: Principal) -> frozenset[str] | None:
        """The tasks that somebody may have run; None for all but the engine's own, to somebody of the house.

        What the server's own application says counts before what workers wrote. A task that neither knows is closed.
        """
        if who.tenant is None:
            return None
        declared = await self.read(task_rows.open_to_tenants())
        own = {task.name: task.is_open_to_tenants for task in self.app.registry}
        return frozenset(name for name, is_open in (declared | own).items() if is_open)

    def event(self, name: str) -> Event[Any]:
        """Return an event type that the application declares."""
        return Event(self.app.notifications.definitions[name], self.app.notifications)

    async def end(self) -> None:
        """The server ends."""
        for ending in self.endings:
            await ending()

    @property
    def settings(self) -> Settings:
        return self.database.settings

    async def read(self, operation: Operation[T], *, seconds: float = LOOK_SECONDS) -> T:
        """In a transaction that can change nothing, and not for long; no statement of it, nor all of them together."""
        async with self._share(self._shares, self._of_one), self._looks, asyncio.timeout(WHOLE_LOOK * seconds):
            return await self.database.arun(_reading(operation, seconds))

    async def start_process(self, work: Callable[[], T]) -> T:
        """Do work that waits for a process of its own, in a thread. One at a time of one person, or of one tenant."""
        async with self._share(self._process_shares, 1), self._processes:
            return await asyncio.to_thread(work)

    @asynccontextmanager
    async def _share(self, shares: dict[Share | None, _SharedRead], at_once: int) -> AsyncIterator[None]:
        """Nobody takes all looks: who asks for more at once waits for their own, and not for others'."""
        who = ASKING.get()
        share = shares.setdefault(who, _SharedRead(at_once))
        if share.waiting >= MOST_WAITING:
            named = " ".join(who) if isinstance(who, tuple) else who or "the server"
            words = f"{named} looks at too much at once: wait for some of it"
            raise HTTPError(HTTPStatus.SERVICE_UNAVAILABLE, words, {"Retry-After": "1"})
        share.waiting += 1
        try:
            async with share.looks:
                yield
        finally:
            share.waiting -= 1
            if not share.waiting:
                shares.pop(who, None)

    async def change(self, operation: Operation[T]) -> T:
        """All of it or nothing."""
        return await self.database.arun(_within(CHANGE_SECONDS, operation))

    async def carry_out(self, plan: Plan[T]) -> T:
        """A long change, in transactions of a thousand."""
        return await adrive(plan, self.change)


def check_task(task: str, allowed: Collection[str] | None = None) -> None:
    """403 for a task of the engine's own, which acts for the whole house, and for one that is not among `allowed`."""
    if task.startswith(OWN_TASKS):
        raise HTTPError(HTTPStatus.FORBIDDEN, f"{task:.80} is a task of the engine's own, and makes its jobs itself")
    if allowed is not None and task not in allowed:
        words = f"task {task:.80} is not open to tenants: its code has to say tenants=True"
        raise HTTPError(HTTPStatus.FORBIDDEN, words)


def _reading(operation: Operation[T], seconds: float) -> Operation[T]:
    yield from read_only()
    return (yield from _within(seconds, operation))


def _within(seconds: float, operation: Operation[T]) -> Operation[T]:
    yield from patience(seconds)
    return (yield from operation)
