"""The context of the server: a database to read and to change, and the parts of the application that routes need."""

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
from sereno.database.transaction import begin_read, statement_timeout
from sereno.jobs import task_rows
from sereno.jobs.job import JobOptions, NewJob
from sereno.jobs.task import OWN_TASKS
from sereno.notifications.event_handle import Event
from sereno.server.shared.authenticator import CURRENT_SHARE, Authenticator, Share
from sereno.server.shared.http_error import HTTPError
from sereno.server.shared.standby import StandbyReader
from sereno.settings import Settings

T = TypeVar("T")

# Statement timeouts in seconds. A read that takes longer is refused as too expensive; a change may take its time.
READ_TIMEOUT = 2.0
CHANGE_SECONDS = 30.0
# Reads at once. Further ones wait, so that workers in the same process keep their connections.
MOST_READS = 8
# Per user, or per tenant with all its tokens: reads at once, and reads that run or wait.
MOST_OF_ONE, MOST_WAITING = 4, 100
# Processes at once that render templates which tenants have written. Further ones wait without holding a thread.
MOST_PROCESSES = 2
# The timeout of all statements of a read together, as a multiple of the timeout of one.
TIMEOUT_FACTOR = 3


class _SharedRead:
    """The reads of one user or tenant: those that run at once, and those that run or wait."""

    def __init__(self, at_once: int) -> None:
        self.reads = asyncio.Semaphore(at_once)
        self.waiting = 0


@dataclass
class ServerContext:
    """What the handlers of the API and the pages work with: the application, and who may ask."""

    app: Sereno
    authenticator: Authenticator

    def __post_init__(self) -> None:
        self.database: Database = self.app.database
        # One connection is left for authentication and changes, and half of the others for other users.
        pool = self.settings.pool_size
        self._processes = asyncio.Semaphore(MOST_PROCESSES)
        self._reads = asyncio.Semaphore(max(1, min(MOST_READS, pool - 1)))
        self._of_one = max(1, min(MOST_OF_ONE, pool // 2))
        self._shares: dict[Share | None, _SharedRead] = {}
        self._process_shares: dict[Share | None, _SharedRead] = {}
        # Called at the end of the server, so that open streams end.
        self.endings: list[Callable[[], Awaitable[None]]] = []
        self.standby = StandbyReader(self.database, self.settings) if self.settings.read_url else None
        if self.standby is not None:
            self.endings.append(self.standby.close)

    def make_job(self, task: str, arguments: bytes, options: JobOptions) -> NewJob:
        """Return a new job as the application makes it, for a user of all tenants."""
        check_task(task)
        return self.app.new_job(task, arguments, options)

    async def job_maker(self, who: Principal) -> Callable[[str, bytes, JobOptions], NewJob]:
        """Return `make_job` for this user: a tenant's user may only run tasks that are open to tenants."""
        allowed = await self.open_tasks(who)

        def make(task: str, arguments: bytes, options: JobOptions) -> NewJob:
            check_task(task, allowed)
            return self.app.new_job(task, arguments, options)

        return make

    async def open_tasks(self, who: Principal) -> frozenset[str] | None:
        """Return the tasks that a user may run; None for all but the engine's own, for a user of all tenants.

        The server's own application decides, then what workers registered. A task that neither knows is closed.
        """
        if who.tenant is None:
            return None
        declared = await self.read(task_rows.open_to_tenants())
        own = {task.name: task.is_open_to_tenants for task in self.app.registry}
        return frozenset(name for name, is_open in (declared | own).items() if is_open)

    def event(self, name: str) -> Event[Any]:
        """Return an event type that the application declares."""
        return self.app.notifications.event(name)

    async def end(self) -> None:
        """The server ends."""
        for ending in self.endings:
            await ending()

    @property
    def settings(self) -> Settings:
        return self.database.settings

    async def read(self, operation: Operation[T], *, seconds: float = READ_TIMEOUT) -> T:
        """Run an operation in a read-only transaction, with a timeout per statement and one for all statements."""
        async with self._share(self._shares, self._of_one), self._reads, asyncio.timeout(TIMEOUT_FACTOR * seconds):
            work = _reading(operation, seconds)
            if self.standby is None:
                return await self.database.arun(work)
            return await self.standby.run(work, self.database.arun)

    def may_use_standby(self) -> bool:
        """Return whether reads of the current request may come from the standby."""
        return self.standby is not None and self.standby.may_use()

    async def start_process(self, work: Callable[[], T]) -> T:
        """Run work that waits for a process of its own in a thread. One at a time for each user or tenant."""
        async with self._share(self._process_shares, 1), self._processes:
            return await asyncio.to_thread(work)

    @asynccontextmanager
    async def _share(self, shares: dict[Share | None, _SharedRead], at_once: int) -> AsyncIterator[None]:
        """Limit the reads of each user: those above the limit wait for the user's own reads, and not for others'."""
        who = CURRENT_SHARE.get()
        share = shares.setdefault(who, _SharedRead(at_once))
        if share.waiting >= MOST_WAITING:
            named = " ".join(who) if isinstance(who, tuple) else who or "the server"
            detail = f"{named} has too many requests at once: wait for some of them"
            raise HTTPError(HTTPStatus.SERVICE_UNAVAILABLE, detail, {"Retry-After": "1"})
        share.waiting += 1
        try:
            async with share.reads:
                yield
        finally:
            share.waiting -= 1
            if not share.waiting:
                shares.pop(who, None)

    async def change(self, operation: Operation[T]) -> T:
        """Run a change in one transaction."""
        if self.standby is not None:
            self.standby.changed()
        return await self.database.arun(_within(CHANGE_SECONDS, operation))

    async def carry_out(self, plan: Plan[T]) -> T:
        """Run a long change in transactions of a thousand rows each."""
        return await adrive(plan, self.change)


def check_task(task: str, allowed: Collection[str] | None = None) -> None:
    """403 for a task of the engine, whose jobs act for all tenants, and for one that is not among `allowed`."""
    if task.startswith(OWN_TASKS):
        raise HTTPError(HTTPStatus.FORBIDDEN, f"{task:.80} is a task of the engine, which creates its jobs itself")
    if allowed is not None and task not in allowed:
        detail = f"task {task:.80} is not open to tenants: declare it with tenants=True"
        raise HTTPError(HTTPStatus.FORBIDDEN, detail)


def _reading(operation: Operation[T], seconds: float) -> Operation[T]:
    yield from begin_read(seconds)
    return (yield from operation)


def _within(seconds: float, operation: Operation[T]) -> Operation[T]:
    yield from statement_timeout(seconds)
    return (yield from operation)
