"""`app.group`: a set of jobs, and a job that follows when all of them have ended."""

from collections.abc import Iterable
from typing import Any

from sereno.database.client import DatabaseClient
from sereno.database.database import Database
from sereno.database.driver import adrive, drive
from sereno.errors import ConfigurationError, InvalidArguments
from sereno.jobs import group_operations, group_store
from sereno.jobs.group_store import EnqueuedGroup, GroupRow, NewGroup
from sereno.jobs.handle import Job
from sereno.jobs.job import NewJob, OnDead, check_on_dead
from sereno.jobs.operations import ChangedJobs
from sereno.jobs.task import Registry
from sereno.text import check_text


class GroupHandle(DatabaseClient):
    """A group that was enqueued: its id, the number of its jobs, and the job that follows them."""

    def __init__(self, database: Database, registry: Registry, group: EnqueuedGroup, connection: Any = None) -> None:
        super().__init__(database)
        self._connection = connection
        self.id = group.id
        self.total = group.total
        self.then: Job[Any] | None = None
        if group.then is not None:
            self.then = Job(database, group.then, registry.result_type(group.then.task))

    def __repr__(self) -> str:
        return f"<Group {self.id} of {self.total} jobs>"

    def state(self) -> GroupRow:
        """Return how many jobs remain, how many are dead, and the state of the job that follows."""
        return self._run(group_store.find_group(self.id), self._connection)

    async def astate(self) -> GroupRow:
        return await self._arun(group_store.find_group(self.id), self._connection)

    def cancel(self, *, reason: str | None = None, actor: str | None = None) -> ChangedJobs:
        """Cancel the jobs of the group that have not ended, and the job that follows them."""
        plan = group_operations.cancel_group(self.id, reason=reason, actor=actor)
        return drive(plan, lambda operation: self._run(operation, self._connection))

    async def acancel(self, *, reason: str | None = None, actor: str | None = None) -> ChangedJobs:
        plan = group_operations.cancel_group(self.id, reason=reason, actor=actor)
        return await adrive(plan, lambda operation: self._arun(operation, self._connection))


class Group(DatabaseClient):
    """A group that was not enqueued yet; made by `app.group`."""

    def __init__(self, database: Database, registry: Registry, group: NewGroup, connection: Any = None) -> None:
        super().__init__(database)
        self._registry = registry
        self._connection = connection
        self.new = group

    def using(self, connection: Any) -> "Group":
        """Return the same group on the caller's connection: all its jobs commit with the caller's transaction."""
        if connection is None:
            raise ConfigurationError("using(None): there is no connection to enqueue on")
        return Group(self._database, self._registry, self.new, connection)

    def enqueue(self) -> GroupHandle:
        """Enqueue all jobs of the group, all or none. A generator is read in chunks."""
        return self._handle(self._run(group_store.enqueue_group(self.new), self._connection))

    async def aenqueue(self) -> GroupHandle:
        """`enqueue` for async code."""
        return self._handle(await self._arun(group_store.enqueue_group(self.new), self._connection))

    def _handle(self, group: EnqueuedGroup) -> GroupHandle:
        return GroupHandle(self._database, self._registry, group)


def new_group(
    jobs: Iterable["NewJob | Group"], then: NewJob | None, on_dead: OnDead, name: str | None, tenant: str | None
) -> NewGroup:
    """Return a checked group."""
    check_on_dead(on_dead)
    for label, value in (("name", name), ("tenant", tenant)):
        check_text(label, value)
    if then is not None and then.options.unique_key is not None:
        raise InvalidArguments("then: a job with a unique key may exist already, and cannot wait for others")
    return NewGroup((job.new if isinstance(job, Group) else job for job in jobs), then, on_dead, name, tenant)
