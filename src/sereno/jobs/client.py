"""`app.jobs`: look jobs up, find, count, wait for, cancel, retry and delete them, sync or async."""

import time
from collections.abc import AsyncIterator, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Self, TypeAlias

from sereno.database.client import DatabaseClient
from sereno.database.database import Database
from sereno.database.driver import adrive, drive
from sereno.database.statement import Plan
from sereno.duration import Duration, per_second
from sereno.errors import Refused
from sereno.jobs import finish_listener, group_operations, operations
from sereno.jobs.filters import JobFilter
from sereno.jobs.finish_listener import FinishedJob
from sereno.jobs.group import GroupHandle
from sereno.jobs.group_store import EnqueuedGroup
from sereno.jobs.handle import Job, result_of
from sereno.jobs.job_token import sign_token
from sereno.jobs.operations import ChangedJobs, JobDetail, JobTally
from sereno.jobs.queries.rows import JobLine, JobRow
from sereno.jobs.queries.search import jobs_wanted
from sereno.jobs.result import ResultType
from sereno.jobs.task import Registry

# Jobs read by one statement while a selection is iterated.
PAGE = 500


class JobChanges(DatabaseClient):
    """Changes the jobs that match a filter when a method is called. Async twins have the prefix `a`.

    Each change is written to the audit log with its actor. On the caller's connection, all is one transaction;
    otherwise every batch of a thousand jobs is.
    """

    def __init__(self, database: Database, wanted: JobFilter, connection: Any = None) -> None:
        super().__init__(database)
        self._wanted = wanted
        self._connection = connection

    def cancel(self, *, reason: str | None = None, actor: str | None = None) -> ChangedJobs:
        """Cancel waiting jobs at once, and request running ones to stop."""
        return self._drive(operations.cancel(self._chosen("cancel"), reason=reason, yes=True, actor=actor))

    async def acancel(self, *, reason: str | None = None, actor: str | None = None) -> ChangedJobs:
        return await self._adrive(operations.cancel(self._chosen("cancel"), reason=reason, yes=True, actor=actor))

    def retry(self, *, rate: float | str | None = None, actor: str | None = None) -> ChangedJobs:
        """Requeue finished jobs under their own ids, at once or at a rate: `retry(rate="50/s")`."""
        return self._drive(self._retry(rate, actor))

    async def aretry(self, *, rate: float | str | None = None, actor: str | None = None) -> ChangedJobs:
        return await self._adrive(self._retry(rate, actor))

    def delete(self, *, actor: str | None = None) -> ChangedJobs:
        """Delete jobs and their attempts; running ones stay."""
        return self._drive(operations.delete(self._chosen("delete"), yes=True, actor=actor))

    async def adelete(self, *, actor: str | None = None) -> ChangedJobs:
        return await self._adrive(operations.delete(self._chosen("delete"), yes=True, actor=actor))

    def _retry(self, rate: float | str | None, actor: str | None) -> Plan[ChangedJobs]:
        chosen = None if rate is None else per_second(rate)
        return operations.retry(self._chosen("retry"), rate=chosen, yes=True, actor=actor)

    def _chosen(self, verb: str) -> JobFilter:
        if self._wanted.is_empty:
            raise Refused(f'this would {verb} every job: name which ones, such as find("state:dead")')
        return self._wanted

    def _drive(self, plan: Plan[ChangedJobs]) -> ChangedJobs:
        return drive(plan, lambda operation: self._run(operation, self._connection))

    async def _adrive(self, plan: Plan[ChangedJobs]) -> ChangedJobs:
        return await adrive(plan, lambda operation: self._arun(operation, self._connection))


class JobSelection(JobChanges):
    """The jobs that match a search, read when they are iterated or counted."""

    def __iter__(self) -> Iterator[JobLine]:
        """Yield the jobs, newest first."""
        before: int | None = None
        while True:
            page = self._run(operations.list_jobs(self._wanted, limit=PAGE, before=before), self._connection)
            yield from page.items
            if (before := page.next) is None:
                return

    async def __aiter__(self) -> AsyncIterator[JobLine]:
        before: int | None = None
        while True:
            page = await self._arun(operations.list_jobs(self._wanted, limit=PAGE, before=before), self._connection)
            for line in page.items:
                yield line
            if (before := page.next) is None:
                return

    def count(self) -> JobTally:
        """Return how many there are, by task, queue and tenant."""
        return self._run(operations.count(self._wanted), self._connection)

    async def acount(self) -> JobTally:
        return await self._arun(operations.count(self._wanted), self._connection)


class FoundJob(JobChanges):
    """One job. `detail`: the job with its attempts, steps and progress, as they were when it was looked up."""

    def __init__(
        self, database: Database, detail: JobDetail, result_type: ResultType | None, connection: Any = None
    ) -> None:
        super().__init__(database, JobFilter(ids=[detail.job.id]), connection)
        self.detail = detail
        self._result_type = result_type

    def __repr__(self) -> str:
        return f"<job {self.id} {self.task} {self.state}>"

    @property
    def row(self) -> JobRow:
        return self.detail.job

    @property
    def id(self) -> int:
        return self.row.id

    @property
    def task(self) -> str:
        return self.row.task

    @property
    def state(self) -> str:
        """waiting, scheduled, ready, running, succeeded, dead or cancelled."""
        return self.row.state

    def result(self, timeout: Duration | None = None) -> Any:
        """Wait for the job and return what its task returned, as `Job.result` does."""
        return result_of(self.wait(timeout), self._result_type)

    async def aresult(self, timeout: Duration | None = None) -> Any:
        return result_of(await self.wait_async(timeout), self._result_type)

    def wait(self, timeout: Duration | None = None) -> FinishedJob:
        """Wait until the job has succeeded, is dead or was cancelled, and return how it ended."""
        return finish_listener.wait(self._database, [self.id], timeout)[0]

    async def wait_async(self, timeout: Duration | None = None) -> FinishedJob:
        return (await finish_listener.wait_async(self._database, [self.id], timeout))[0]

    def refresh(self) -> Self:
        """Look it up again. Raises JobNotFound if it was deleted."""
        self.detail = self._run(operations.show(self.id), self._connection)
        return self

    async def arefresh(self) -> Self:
        self.detail = await self._arun(operations.show(self.id), self._connection)
        return self


# A job by its handle, as it was looked up, or by its id.
AnyJob: TypeAlias = Job[Any] | FoundJob | int


class Jobs(DatabaseClient):
    """`app.jobs.get(4711).cancel()`, `app.jobs.find("task:export state:dead").retry(rate="50/s")`."""

    def __init__(self, database: Database, registry: Registry, connection: Any = None) -> None:
        super().__init__(database)
        self._registry = registry
        self._connection = connection

    def using(self, connection: Any) -> "Jobs":
        """Return the same on the caller's connection: changes commit with the caller's transaction."""
        return Jobs(self._database, self._registry, connection)

    def get(self, job_id: int) -> FoundJob:
        """Return a live or finished job, or raise JobNotFound."""
        return self._found(self._run(operations.show(job_id), self._connection))

    async def aget(self, job_id: int) -> FoundJob:
        return self._found(await self._arun(operations.show(job_id), self._connection))

    def group(self, group_id: int) -> GroupHandle:
        """Return a group of jobs, or raise GroupNotFound."""
        return self._group(self._run(group_operations.enqueued_group(group_id), self._connection))

    async def agroup(self, group_id: int) -> GroupHandle:
        return self._group(await self._arun(group_operations.enqueued_group(group_id), self._connection))

    def find(self, search: str = "") -> JobSelection:
        """Return the jobs that match a search, such as `task:export state:dead age:>1h`; nothing is read yet."""
        return JobSelection(self._database, jobs_wanted(search, datetime.now(UTC)), self._connection)

    def count(self, search: str = "") -> JobTally:
        """Return how many jobs match a search, by task, queue and tenant."""
        return self.find(search).count()

    async def acount(self, search: str = "") -> JobTally:
        return await self.find(search).acount()

    def cancel(self, *jobs: AnyJob, reason: str | None = None, actor: str | None = None) -> ChangedJobs:
        """Cancel these jobs, given by handle or id: `app.jobs.cancel(4711, 4712)`. `done`: those that were."""
        return self._these(jobs).cancel(reason=reason, actor=actor)

    async def acancel(self, *jobs: AnyJob, reason: str | None = None, actor: str | None = None) -> ChangedJobs:
        return await self._these(jobs).acancel(reason=reason, actor=actor)

    def retry(self, *jobs: AnyJob, rate: float | str | None = None, actor: str | None = None) -> ChangedJobs:
        """Requeue these finished jobs under their own ids, at once or at a rate."""
        return self._these(jobs).retry(rate=rate, actor=actor)

    async def aretry(self, *jobs: AnyJob, rate: float | str | None = None, actor: str | None = None) -> ChangedJobs:
        return await self._these(jobs).aretry(rate=rate, actor=actor)

    def delete(self, *jobs: AnyJob, actor: str | None = None) -> ChangedJobs:
        """Delete these jobs and their attempts. Raises Refused, and deletes none, if one of them runs."""
        return self._these(jobs).delete(actor=actor)

    async def adelete(self, *jobs: AnyJob, actor: str | None = None) -> ChangedJobs:
        return await self._these(jobs).adelete(actor=actor)

    def wait(self, jobs: Iterable[AnyJob], timeout: Duration | None = None) -> list[FinishedJob]:
        """Wait until all of these jobs have finished; return how each ended, in the same order.

        Raises TimeoutError if one takes longer, and JobNotFound if one does not exist.
        """
        return finish_listener.wait(self._database, _ids(jobs), timeout)

    async def wait_async(self, jobs: Iterable[AnyJob], timeout: Duration | None = None) -> list[FinishedJob]:
        """`wait` for async code."""
        return await finish_listener.wait_async(self._database, _ids(jobs), timeout)

    def token(self, job_id: int, *, valid_for: Duration = "1h") -> str:
        """Return a token for the stream of this job (`Authorization: Bearer …`): its state, progress and chunks.

        Give it to the user who waits for the job. It opens nothing else. Requires the setting `secret`.
        """
        return sign_token(self._database.settings.secret, job_id, valid_for, time.time())

    def _these(self, jobs: Iterable[AnyJob]) -> JobChanges:
        return JobChanges(self._database, JobFilter(ids=_ids(jobs)), self._connection)

    def _group(self, group: EnqueuedGroup) -> GroupHandle:
        return GroupHandle(self._database, self._registry, group, self._connection)

    def _found(self, detail: JobDetail) -> FoundJob:
        return FoundJob(self._database, detail, self._registry.result_type(detail.job.task), self._connection)


def _ids(jobs: Iterable[AnyJob]) -> list[int]:
    return [job if isinstance(job, int) else job.id for job in jobs]
