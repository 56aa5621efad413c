"""Operator actions on groups: find one by its id, and cancel it."""

from sereno.access.actor import default_actor
from sereno.database.statement import Operation, Plan
from sereno.jobs import group_store, operations
from sereno.jobs.filters import JobFilter
from sereno.jobs.group_store import EnqueuedGroup
from sereno.jobs.job import EnqueuedJob
from sereno.jobs.operations import ChangedJobs
from sereno.jobs.queries import links


def enqueued_group(group_id: int) -> Operation[EnqueuedGroup]:
    """Return a group as it was enqueued, or raise GroupNotFound."""
    group = yield from group_store.find_group(group_id)
    then = None
    if group.then_job is not None:
        (found,) = yield from links.linked([group.then_job])
        then = None if found.task is None else EnqueuedJob(found.id, found.task)
    return EnqueuedGroup(group.id, group.total, then)


def cancel_group(
    group_id: int, *, tenant: str | None = None, reason: str | None = None, actor: str | None = None
) -> Plan[ChangedJobs]:
    """Cancel the job that follows a group, the groups inside of it, and its jobs that have not ended.

    The job that follows comes first: with on_dead="continue" it would start when the others are cancelled. `tenant`:
    only jobs of this tenant.
    """
    group = yield group_store.find_group(group_id)
    text = reason or f"group {group_id} was cancelled by {actor or default_actor()}"
    changed = ChangedJobs()
    if group.then_job is not None:
        then = JobFilter(ids=[group.then_job], tenant=tenant)
        _add(changed, (yield from operations.cancel(then, reason=text, actor=actor)))
    inner: list[int] = yield links.inner_groups(group_id)
    for inner_id in inner:
        _add(changed, (yield from cancel_group(inner_id, tenant=tenant, reason=text, actor=actor)))
    rest = JobFilter(group=group_id, tenant=tenant)
    _add(changed, (yield from operations.cancel(rest, reason=text, yes=True, actor=actor)))
    return changed


def _add(changed: ChangedJobs, more: ChangedJobs) -> None:
    changed.done += more.done
    changed.stopping += more.stopping
    changed.left += more.left
