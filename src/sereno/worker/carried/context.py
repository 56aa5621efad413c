"""The context of a carried job. It is stored in PostgreSQL when its handler first needs it there.

Steps, signals, iterations, progress and calls of other jobs belong to a row of `sereno.jobs`. `ctx.transaction()`
stores the job and settles it in the handler's own commit; if the job has an outcome already, all is rolled back.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

import psycopg

from sereno.database.database import Database
from sereno.database.statement import Operation
from sereno.jobs.job import ClaimedJob
from sereno.worker.carried.outcomes import CarriedOutcomes
from sereno.worker.context import Context

T = TypeVar("T")


class JobDatabase(Database):
    """The database of one context: the job is stored there before the first use."""

    def __init__(
        self, database: Database, jobs: tuple[ClaimedJob, ...], session: int, outcomes: CarriedOutcomes
    ) -> None:
        self._real = database
        self._jobs = jobs
        self._session = session
        self._outcomes = outcomes
        self._loop = asyncio.get_running_loop()
        self.settings = database.settings
        self.is_stored = False

    def store(self) -> Operation[None]:
        return self._outcomes.store_running(self._jobs, self._session)

    def _store(self) -> None:
        if not self.is_stored:
            self._loop.call_soon_threadsafe(self._outcomes.is_storing, self._jobs, self._session)
            self._real.run_one(self.store())
            self.is_stored = True
            # Before the end of the handler, which reaches the event loop later than this.
            self._loop.call_soon_threadsafe(self._outcomes.has_stored, self._jobs, self._session)

    async def _astore(self) -> None:
        if not self.is_stored:
            self._outcomes.is_storing(self._jobs, self._session)
            await self._real.arun_one(self.store())
            self.is_stored = True
            self._outcomes.has_stored(self._jobs, self._session)

    @contextmanager
    def connection(self) -> Iterator[psycopg.Connection[Any]]:
        self._store()
        with self._real.connection() as connection:
            yield connection

    @asynccontextmanager
    async def aconnection(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        await self._astore()
        async with self._real.aconnection() as connection:
            yield connection

    def run(self, operation: Operation[T]) -> T:
        self._store()
        return self._real.run(operation)

    async def arun(self, operation: Operation[T]) -> T:
        await self._astore()
        return await self._real.arun(operation)

    def run_one(self, operation: Operation[T]) -> T:
        self._store()
        return self._real.run_one(operation)

    async def arun_one(self, operation: Operation[T]) -> T:
        await self._astore()
        return await self._real.arun_one(operation)


class CarriedContext(Context):
    """The context of a carried job."""

    def __init__(
        self, job: ClaimedJob, session: int, database: Database, outcomes: CarriedOutcomes, **options: Any
    ) -> None:
        self._job_database = JobDatabase(database, tuple(options.get("batch") or (job,)), session, outcomes)
        super().__init__(job, session, self._job_database, **options)
        self._transactions = database

    def _settle_all(self) -> Operation[frozenset[int]]:
        if not self._job_database.is_stored:
            yield from self._job_database.store()
        return (yield from super()._settle_all())
