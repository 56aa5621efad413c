"""Bulk changes in the background: ask for one, look how far it is, stop it. And one job again, with other arguments."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from sereno.domain.job import Job, JobOptions, NewJob, check_text
from sereno.domain.lifecycle import FINAL
from sereno.errors import InvalidArguments, Refused
from sereno.operations.actor import default_actor
from sereno.operations.jobs import CANCELLABLE, DELETABLE
from sereno.store import bulk as store
from sereno.store import jobs as jobs_store
from sereno.store import steering
from sereno.store.bulk import Action, Asked, BulkOperation
from sereno.store.filters import JobFilter
from sereno.store.sights import Count, JobRow
from sereno.store.statement import Operation

# A job that was made from another one says so in a tag, by which each is found from the other.
ORIGIN = "retry-of:"

MakeJob = Callable[[str, bytes, JobOptions], NewJob]

_states: Mapping[Action, tuple[str, ...]] = {
    "job.retry": FINAL,
    "job.cancel": CANCELLABLE,
    "job.delete": DELETABLE,
}


def begin(
    action: Action,
    wanted: JobFilter,
    *,
    rate: float | None = None,
    reason: str | None = None,
    yes: bool = False,
    total: Count | None = None,
    actor: str | None = None,
) -> Operation[BulkOperation]:
    """A worker does it, so many a second at most, and goes on where another ended.

    Only with what is there now: what is made or ends later is left alone. `total`: what a dry run counted.
    """
    _, _, verb = action.partition(".")
    check_text("reason", reason or None)
    if wanted.ids is None and not yes:
        raise Refused(f"this would {verb} every job that matches ({wanted}): look with a dry run, then confirm it")
    if action == "job.delete" and wanted.ids is not None:
        running = yield from steering.matching(wanted.within(["running"]))
        if running:
            names = ", ".join(map(str, running))
            raise Refused(f"job {names} is running: cancel it first, nothing was deleted")
    chosen = replace(wanted.within(_states[action]), window=None)
    who = actor or default_actor()
    number = yield from store.begin(Asked(action, chosen, who, rate, reason, total))
    detail = {"action": action, "filter": chosen.as_detail(), "rate": rate, "reason": reason}
    yield from steering.audit(who, "operation.begin", f"operation {number}", detail)
    return (yield from _there(number))


def list_operations(
    limit: int, before: int | None = None, *, tenant: str | None = None
) -> Operation[list[BulkOperation]]:
    """Newest first; those of a tenant alone, if one is given."""
    return store.listed(limit, before, tenant)


def show(number: int) -> Operation[BulkOperation | None]:
    """How far it is; None if there is none."""
    return store.one(number)


def stop(number: int, *, actor: str | None = None) -> Operation[BulkOperation]:
    """It ends within a second; what was done stays done. Refused when it is over."""
    before = yield from _there(number)
    who = actor or default_actor()
    if not (yield from store.ask_to_stop(number, who)):
        raise Refused(f"operation {number} is over: it is {before.state}")
    yield from steering.audit(who, "operation.stop", f"operation {number}", {"state": before.state})
    return (yield from _there(number))


def retry_edited(row: JobRow, arguments: bytes, make_job: MakeJob, *, actor: str | None = None) -> Operation[Job]:
    """A new job like one that has ended, with other arguments. The one that has ended stays as it is."""
    if row.finished_at is None:
        raise Refused(f"job {row.id} is {row.state}: only one that has ended can be made again")
    tags = [tag for tag in row.tags or () if not tag.startswith(ORIGIN)]
    options = JobOptions(
        queue=row.queue,
        priority=row.priority,
        tenant=row.tenant,
        tags=[*tags, f"{ORIGIN}{row.id}"],
        trace=row.trace,
    )
    (made,) = yield from jobs_store.enqueue([make_job(row.task, arguments, options)])
    who = actor or default_actor()
    detail = {"task": row.task, "made": made.id}
    yield from steering.audit(who, "job.retry_edited", f"job {row.id}", detail)
    yield from steering.audit(who, "job.enqueue", f"job {made.id}", {"task": row.task, "retry_of": row.id})
    return made


def _there(number: int) -> Operation[BulkOperation]:
    found = yield from store.one(number)
    if found is None:
        raise InvalidArguments(f"there is no operation {number}: see sereno operation list")
    return found
