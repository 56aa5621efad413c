"""Operations on groups: create with jobs, list, forget."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec

from sereno.bounded_count import BOUND, BoundedCount
from sereno.database.statement import Operation, Statement, queries
from sereno.errors import GroupNotFound
from sereno.jobs import transitions
from sereno.jobs.enqueue_stream import chunks
from sereno.jobs.job import EnqueuedJob, JobOptions, NewJob, OnDead

_sql = queries("jobs/groups")

# Jobs that are cancelled, and groups that are forgotten, by one statement.
PAGE = 1000
# Days for which deleted jobs are known; transactions of applications are shorter.
DELETED_DAYS = 7


@dataclass(frozen=True, slots=True)
class NewGroup:
    """A group to enqueue. `jobs`: read once, in chunks."""

    jobs: Iterable["NewJob | NewGroup"]
    then: NewJob | None = None
    on_dead: OnDead = "wait"
    name: str | None = None
    tenant: str | None = None


@dataclass(frozen=True, slots=True)
class EnqueuedGroup:
    id: int
    total: int
    then: EnqueuedJob | None


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group. `remaining`: jobs that have not ended yet; `then_state`: of the job that follows them."""

    id: int
    name: str | None
    tenant: str | None
    total: int
    remaining: int
    dead: BoundedCount
    then_job: int | None
    then_state: str | None
    on_dead: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Predecessor:
    """A job that another one waited for. `task`: None if it left no row in the history."""

    id: int
    task: str | None
    result: str | None


def enqueue_group(group: NewGroup) -> Operation[EnqueuedGroup]:
    """Write a group, its jobs and the job that follows them, in one transaction.

    A group inside of it counts as one job: the one that follows its own jobs. Without such a job, its jobs belong to
    the outer group.
    """
    given = {"name": group.name, "tenant": group.tenant, "on_dead": group.on_dead}
    rows = yield Statement(_sql["create"], given)
    group_id = int(rows[0][0])
    yield from _write_members(group_id, group.jobs)
    then = None
    if group.then is not None:
        (then,) = yield from transitions.enqueue([group.then])
    rows = yield Statement(_sql["complete"], {"group_id": group_id, "then_job": None if then is None else then.id})
    return EnqueuedGroup(group_id, int(rows[0][0]), then)


def _write_members(group_id: int, jobs: Iterable[NewJob | NewGroup]) -> Operation[None]:
    known: dict[int, tuple[JobOptions, JobOptions]] = {}
    for chunk in chunks(jobs):
        members = [job for job in chunk if isinstance(job, NewJob)]
        yield from transitions.enqueue([_in_group(job, group_id, known) for job in members])
        for inner in chunk:
            if isinstance(inner, NewGroup):
                yield from _write_inner(group_id, inner)


def _write_inner(group_id: int, inner: NewGroup) -> Operation[None]:
    if inner.then is None:
        yield from _write_members(group_id, inner.jobs)
        return
    then = msgspec.structs.replace(inner.then, options=_options(inner.then.options, group_id))
    yield from enqueue_group(NewGroup(inner.jobs, then, inner.on_dead, inner.name, inner.tenant))


def _in_group(job: NewJob, group_id: int, known: dict[int, tuple[JobOptions, JobOptions]]) -> NewJob:
    # Jobs of one task usually share their options: the same object for all of them, so that one statement suffices.
    found = known.get(id(job.options))
    if found is None:
        found = known[id(job.options)] = (job.options, _options(job.options, group_id))
    return msgspec.structs.replace(job, options=found[1])


def _options(options: JobOptions, group_id: int) -> JobOptions:
    return msgspec.structs.replace(options, group_id=group_id)


def list_groups(
    *, limit: int = 50, before: int | None = None, tenant: str | None = None, group_id: int | None = None
) -> Operation[list[GroupRow]]:
    """Return groups, newest first."""
    given = {"limit": limit, "before": before, "tenant": tenant, "id": group_id, "bound": BOUND}
    rows = yield Statement(_sql["list"], given)
    return [
        GroupRow(
            number, name, of, total, remaining, BoundedCount.bounded(dead), then_job, then_state, on_dead, created_at
        )
        for number, name, of, total, remaining, dead, then_job, then_state, on_dead, created_at in rows
    ]


def find_group(group_id: int) -> Operation[GroupRow]:
    """Return one group, or raise GroupNotFound."""
    found = yield from list_groups(limit=1, group_id=group_id)
    if not found:
        raise GroupNotFound(f"no group has the id {group_id}")
    return found[0]


def cancel_members(reason: str = "another job of its group is dead") -> Operation[bool]:
    """Cancel a page of jobs of groups that a dead job cancels; return whether there may be more."""
    rows = yield Statement(_sql["members_to_cancel"], {"most": PAGE})
    if not rows:
        yield Statement(_sql["cancelled"])
        return False
    yield from transitions.cancel([row[0] for row in rows], reason)
    return True


def forget_groups(days: int) -> Operation[bool]:
    """Delete a page of groups whose jobs have left the history; return whether there may be more."""
    rows = yield Statement(_sql["forget"], {"days": days, "most": PAGE})
    return len(rows) == PAGE


def forget_deleted() -> Operation[bool]:
    """Forget a page of jobs that were deleted long ago; return whether there may be more."""
    rows = yield Statement(_sql["forget_deleted"], {"days": DELETED_DAYS, "most": PAGE})
    return len(rows) == PAGE


def predecessors(job_id: int) -> Operation[Sequence[Predecessor]]:
    """Return the jobs that a job waited for, in the order of their ids."""
    rows = yield Statement(_sql["results"], {"id": job_id})
    return [Predecessor(*row) for row in rows]
