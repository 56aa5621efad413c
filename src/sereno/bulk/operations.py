"""Bulk changes in the background: begin, show, stop. Also the retry of one job with edited arguments."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sereno.access import audit
from sereno.access.actor import default_actor
from sereno.bounded_count import BoundedCount
from sereno.database.clock import clock
from sereno.database.statement import Operation
from sereno.duration import Duration, seconds
from sereno.errors import InvalidArguments, Refused
from sereno.jobs import bulk as store
from sereno.jobs import bulk_selection
from sereno.jobs import operations as jobs
from sereno.jobs import transitions as jobs_store
from sereno.jobs.bulk import BatchCounts, BulkRequest, Change, ClaimedBatch
from sereno.jobs.filters import DeliveryFilter, JobFilter, ScheduleFilter
from sereno.jobs.job import MOST_TAGS, EnqueuedJob, JobOptions, NewJob, check_date
from sereno.jobs.lifecycle import FINAL
from sereno.jobs.queries.rows import JobRow
from sereno.jobs.rows import BulkOperation, JobAction, ScheduleAction
from sereno.notifications import operations as notifications
from sereno.schedules import operations as schedules
from sereno.schedules.lists import Verb, tally
from sereno.schedules.rules.when import Daily, checked
from sereno.text import check_text
from sereno.zones import moment

# Prefix of the tag that links an edited retry to its original job.
ORIGIN = "retry-of:"

MakeJob = Callable[[str, bytes, JobOptions], NewJob]

# States in which an action applies; None: in all states.
_job_states: Mapping[JobAction, tuple[str, ...]] = {
    "job.retry": FINAL,
    "job.cancel": jobs.CANCELLABLE,
    "job.delete": jobs.DELETABLE,
}
_schedule_states: Mapping[ScheduleAction, tuple[str, ...] | None] = {
    "schedule.pause": ("enabled", "paused"),
    "schedule.resume": ("paused", "disabled", "parked", "finished"),
    "schedule.disable": ("enabled", "paused", "parked", "finished"),
    "schedule.delete": None,
    "schedule.spread": None,
}
_counts: Mapping[JobAction, Callable[[JobFilter], Operation[jobs.JobTally]]] = {
    "job.retry": jobs.count_retry,
    "job.cancel": jobs.count_cancel,
    "job.delete": jobs.count_delete,
}
_verbs: Mapping[ScheduleAction, Verb] = {
    "schedule.pause": "pause",
    "schedule.resume": "resume",
    "schedule.disable": "disable",
    "schedule.delete": "delete",
    "schedule.spread": "spread",
}

# Operations that may be in progress at once, in total and of one tenant: each occupies a worker slot.
MOST_UNDER_WAY, MOST_OF_A_TENANT = 50, 5


@dataclass(frozen=True, slots=True)
class ScheduleBulkRequest:
    """Options of a bulk change of schedules. pause: `until` and `note`; disable: `note`; spread: `window`."""

    until: datetime | None = None
    note: str | None = None
    window: Duration | None = None


def begin(
    action: JobAction,
    wanted: JobFilter,
    *,
    rate: float | None = None,
    reason: str | None = None,
    yes: bool = False,
    total: BoundedCount | None = None,
    actor: str | None = None,
) -> Operation[BulkOperation]:
    """Begin a bulk change of jobs. A worker carries it out; after a crash another one continues.

    It changes only jobs that match now; jobs that are created or end later are not changed. `rate`: changes per second
    at most. `total`: the count of a dry run.
    """
    _, _, verb = action.partition(".")
    check_text("reason", reason or None)
    if wanted.ids is None and not yes:
        raise Refused(f"this would {verb} every job that matches ({wanted}): check with a dry run, then confirm it")
    if action == "job.delete" and wanted.ids is not None:
        running = yield from bulk_selection.matching(wanted.within(["running"]))
        if running:
            names = ", ".join(map(str, running))
            raise Refused(f"job {names} is running: cancel it first; nothing was deleted")
    chosen = replace(wanted.within(_job_states[action]), window=None)
    author = actor or default_actor()
    seen, params = chosen.as_detail(), chosen.params()
    request = BulkRequest(action, seen, params, chosen.tenant, author, rate, reason, total, chosen.ids)
    return (yield from _begin(request))


def begin_schedules(
    action: ScheduleAction,
    wanted: ScheduleFilter,
    how: ScheduleBulkRequest | None = None,
    *,
    rate: float | None = None,
    yes: bool = False,
    total: BoundedCount | None = None,
    actor: str | None = None,
) -> Operation[BulkOperation]:
    """Begin a bulk change of schedules, in the order of their keys. Its options are checked first."""
    _, _, verb = action.partition(".")
    if wanted.keys is None and not yes:
        raise Refused(f"this would {verb} every schedule that matches: check with a dry run, then confirm it")
    how = how or ScheduleBulkRequest()
    yield from _check_options(how)
    allowed = _schedule_states[action]
    if allowed is not None:
        given = wanted.states
        wanted = replace(wanted, states=[state for state in allowed if given is None or state in given])
    if wanted.is_empty:
        wanted = replace(wanted, pattern="*")
    options: dict[str, object] = {}
    if how.until is not None:
        options["until"] = how.until
    if how.window is not None:
        options["window"] = seconds(how.window)
    seen, params, author = wanted.as_detail(), wanted.params(), actor or default_actor()
    request = BulkRequest(action, seen, params, wanted.tenant, author, rate, how.note, total, options=options)
    return (yield from _begin(request))


def _check_options(how: ScheduleBulkRequest) -> Operation[None]:
    check_text("note", how.note)
    if how.window is not None:
        # An invalid window is refused before anything is read, with the error of the schedule rule.
        checked(Daily("00:00", spread=how.window))
    if how.until is not None:
        check_date("until", how.until)
        if how.until <= moment((yield from clock())):
            raise Refused(f"a pause until {how.until.isoformat()} would already be over: give a later time")


def begin_requeue(
    wanted: DeliveryFilter,
    *,
    ids: Collection[int] | None = None,
    rate: float | None = None,
    yes: bool = False,
    total: BoundedCount | None = None,
    actor: str | None = None,
) -> Operation[BulkOperation]:
    """Begin to requeue deliveries, in the order of their ids; with `ids`, only those of them that match."""
    if ids is None and not yes:
        raise Refused("this would requeue every delivery that matches: check with a dry run, then confirm it")
    chosen = yield from _requeueable(wanted)
    seen = chosen.as_detail() | ({} if ids is None else {"ids": sorted(ids)})
    params, author = store.delivery_selection(chosen, ids), actor or default_actor()
    request = BulkRequest("delivery.requeue", seen, params, chosen.tenant, author, rate, None, total, ids)
    return (yield from _begin(request))


def _requeueable(wanted: DeliveryFilter) -> Operation[DeliveryFilter]:
    yield from notifications.check_filter(wanted)
    states = [state for state in notifications.REQUEUEABLE if wanted.states is None or state in wanted.states]
    return replace(wanted, states=states)


def _begin(request: BulkRequest) -> Operation[BulkOperation]:
    total, of_tenant = yield from store.under_way(request.tenant)
    if total >= MOST_UNDER_WAY or of_tenant >= MOST_OF_A_TENANT:
        raise Refused("too many bulk operations are in progress: wait for one to end, or stop one")
    number = yield from store.begin(request)
    detail = {"action": request.action, "filter": request.wanted, "rate": request.rate, "reason": request.reason}
    yield from audit.audit(request.actor, "operation.begin", f"operation {number}", {**detail, **request.options})
    return (yield from _find(number))


# Counts


def count_jobs(action: JobAction, wanted: JobFilter) -> Operation[BoundedCount]:
    """Return how many jobs the action would change, as in a dry run."""
    return (yield from _counts[action](wanted)).total


def count_schedules(action: ScheduleAction, wanted: ScheduleFilter) -> Operation[BoundedCount]:
    """Return how many schedules the action would change, as in a dry run."""
    return (yield from tally(wanted, _verbs[action])).total


def count_requeue(wanted: DeliveryFilter, ids: Collection[int] | None = None) -> Operation[BoundedCount]:
    """Return how many deliveries would be requeued. An immediate requeue reads only the newest."""
    return (yield from store.count_deliveries((yield from _requeueable(wanted)), ids))


# Carried out by a worker


def changes(requeue: Callable[[Sequence[int]], Operation[list[int]]]) -> dict[str, Change]:
    """Return for each action the function that changes one batch. `requeue`: requeues deliveries by their ids."""
    return {
        "schedule.pause": _of_schedules(_pause),
        "schedule.resume": _of_schedules(lambda wanted, taken: schedules.resume(wanted, actor=taken.actor)),
        "schedule.disable": _of_schedules(
            lambda wanted, taken: schedules.disable(wanted, note=taken.reason, actor=taken.actor)
        ),
        "schedule.delete": _of_schedules(lambda wanted, taken: schedules.delete(wanted, actor=taken.actor)),
        "schedule.spread": _of_schedules(
            lambda wanted, taken: schedules.spread(wanted, taken.given()["window"], actor=taken.actor)
        ),
        "delivery.requeue": _of_deliveries(requeue),
    }


def _pause(wanted: ScheduleFilter, taken: ClaimedBatch) -> Operation[int]:
    until = taken.given().get("until")
    at = None if until is None else datetime.fromisoformat(until)
    return schedules.pause(wanted, until=at, note=taken.reason, actor=taken.actor)


def _of_schedules(change: Callable[[ScheduleFilter, ClaimedBatch], Operation[int]]) -> Change:
    """Return a batch function for schedules; it writes the same audit lines as an immediate change."""

    def step(taken: ClaimedBatch) -> Operation[BatchCounts]:
        wanted, place = yield from store.schedules_found(taken)
        found = len(wanted.keys or ())
        done = (yield from change(wanted, taken)) if found else 0
        return BatchCounts(done, 0, found - done, place)

    return step


def _of_deliveries(requeue: Callable[[Sequence[int]], Operation[list[int]]]) -> Change:
    def step(taken: ClaimedBatch) -> Operation[BatchCounts]:
        found, place = yield from store.deliveries_found(taken)
        back = sorted((yield from requeue(found))) if found else []
        if back:
            subject = f"delivery {back[0]}" if len(back) == 1 else f"{len(back)} deliveries"
            yield from store.noted(taken, subject, {"ids": back}, len(back))
        return BatchCounts(len(back), 0, len(found) - len(back), place)

    return step


# Show and stop


def list_operations(
    limit: int, before: int | None = None, *, tenant: str | None = None
) -> Operation[list[BulkOperation]]:
    """Return operations, newest first; only those of `tenant`, if given."""
    return store.listed(limit, before, tenant)


def show(number: int) -> Operation[BulkOperation | None]:
    """Return an operation and its progress; None if there is none with this id."""
    return store.one(number)


def stop(number: int, *, actor: str | None = None) -> Operation[BulkOperation]:
    """Stop an operation within a second; its changes so far remain. Raises Refused if it has ended already."""
    before = yield from _find(number)
    author = actor or default_actor()
    if not (yield from store.ask_to_stop(number, author)):
        raise Refused(f"operation {number} has ended already: it is {before.state}")
    yield from audit.audit(author, "operation.stop", f"operation {number}", {"state": before.state})
    return (yield from _find(number))


def edited(row: JobRow, arguments: bytes, make_job: MakeJob) -> NewJob:
    """Return the new job for `retry_edited`: a copy of a job that has ended, with other arguments."""
    if row.finished_at is None:
        raise Refused(f"job {row.id} is {row.state}: only a job that has ended can be retried with edited arguments")
    tags = [tag for tag in row.tags or () if not tag.startswith(ORIGIN)]
    options = JobOptions(
        queue=row.queue,
        priority=row.priority,
        tenant=row.tenant,
        tags=[*tags[: MOST_TAGS - 1], f"{ORIGIN}{row.id}"],
        trace=row.trace,
    )
    return make_job(row.task, arguments, options)


def retry_edited(row: JobRow, job: NewJob, *, actor: str | None = None) -> Operation[EnqueuedJob]:
    """Enqueue a job made by `edited`; the original job stays unchanged."""
    (made,) = yield from jobs_store.enqueue([job])
    author = actor or default_actor()
    detail = {"task": row.task, "made": made.id}
    yield from audit.audit(author, "job.retry_edited", f"job {row.id}", detail)
    yield from audit.audit(author, "job.enqueue", f"job {made.id}", {"task": row.task, "retry_of": row.id})
    return made


def _find(number: int) -> Operation[BulkOperation]:
    found = yield from store.one(number)
    if found is None:
        raise InvalidArguments(f"there is no operation {number}: see sereno operation list")
    return found
