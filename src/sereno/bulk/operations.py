"""Bulk changes in the background: ask for one, look how far it is, stop it. And one job again, with other arguments."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sereno.access import audit
from sereno.access.actor import default_actor
from sereno.database.statement import Operation
from sereno.duration import Duration, seconds
from sereno.errors import InvalidArguments, Refused
from sereno.jobs import bulk as store
from sereno.jobs import bulk_selection
from sereno.jobs import operations as jobs
from sereno.jobs import transitions as jobs_store
from sereno.jobs.bulk import BulkOperation, BulkRequest, Change, ClaimedBatch, JobAction, ScheduleAction, Step
from sereno.jobs.filters import DeliveryFilter, JobFilter, ScheduleFilter
from sereno.jobs.job import MOST_TAGS, Job, JobOptions, NewJob, check_date
from sereno.jobs.lifecycle import FINAL
from sereno.jobs.rows import Count, JobRow
from sereno.notifications import operations as notifications
from sereno.schedules import operations as schedules
from sereno.schedules import store as schedules_store
from sereno.schedules.lists import Verb, tally
from sereno.schedules.rules.when import Daily, checked
from sereno.text import check_text
from sereno.zones import moment

# A job that was made from another one says so in a tag, by which each is found from the other.
ORIGIN = "retry-of:"

MakeJob = Callable[[str, bytes, JobOptions], NewJob]

# In which states something can be changed at all; None: in all.
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
_counts: Mapping[JobAction, Callable[[JobFilter], Operation[jobs.Tally]]] = {
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

# Each takes a slot of a worker while it works.
MOST_UNDER_WAY, MOST_OF_A_TENANT = 50, 5


@dataclass(frozen=True, slots=True)
class ScheduleBulkRequest:
    """What a change of schedules takes. `until`, `note`: of a pause; `note`: of a disabling. `window`: of a spread."""

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
        running = yield from bulk_selection.matching(wanted.within(["running"]))
        if running:
            names = ", ".join(map(str, running))
            raise Refused(f"job {names} is running: cancel it first, nothing was deleted")
    chosen = replace(wanted.within(_job_states[action]), window=None)
    who = actor or default_actor()
    seen, look = chosen.as_detail(), chosen.params()
    return (yield from _begun(BulkRequest(action, seen, look, chosen.tenant, who, rate, reason, total, chosen.ids)))


def begin_schedules(
    action: ScheduleAction,
    wanted: ScheduleFilter,
    how: ScheduleBulkRequest | None = None,
    *,
    rate: float | None = None,
    yes: bool = False,
    total: Count | None = None,
    actor: str | None = None,
) -> Operation[BulkOperation]:
    """The same for schedules, in the order of their keys. What the change takes is checked before it begins."""
    _, _, verb = action.partition(".")
    if wanted.keys is None and not yes:
        raise Refused(f"this would {verb} every schedule that matches: look with a dry run, then confirm it")
    how = how or ScheduleBulkRequest()
    yield from _check_how(how)
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
    seen, look, who = wanted.as_detail(), wanted.params(), actor or default_actor()
    asked = BulkRequest(action, seen, look, wanted.tenant, who, rate, how.note, total, options=options)
    return (yield from _begun(asked))


def _check_how(how: ScheduleBulkRequest) -> Operation[None]:
    check_text("note", how.note)
    if how.window is not None:
        # Refused before anything is looked at, in the words of the rule.
        checked(Daily("00:00", spread=how.window))
    if how.until is not None:
        check_date("until", how.until)
        if how.until <= moment((yield from schedules_store.clock())):
            raise Refused(f"a pause until {how.until.isoformat()} is over already: give a later moment")


def begin_requeue(
    wanted: DeliveryFilter,
    *,
    ids: Collection[int] | None = None,
    rate: float | None = None,
    yes: bool = False,
    total: Count | None = None,
    actor: str | None = None,
) -> Operation[BulkOperation]:
    """The same for deliveries that go back to work, by id; of those that are named, where `ids` are given."""
    if ids is None and not yes:
        raise Refused("this would requeue every delivery that matches: look with a dry run, then confirm it")
    chosen = yield from _requeueable(wanted)
    seen = chosen.as_detail() | ({} if ids is None else {"ids": sorted(ids)})
    look, who = store.delivery_look(chosen, ids), actor or default_actor()
    return (yield from _begun(BulkRequest("delivery.requeue", seen, look, chosen.tenant, who, rate, None, total, ids)))


def _requeueable(wanted: DeliveryFilter) -> Operation[DeliveryFilter]:
    yield from notifications.check_filter(wanted)
    states = [state for state in notifications.REQUEUEABLE if wanted.states is None or state in wanted.states]
    return replace(wanted, states=states)


def _begun(asked: BulkRequest) -> Operation[BulkOperation]:
    every, theirs = yield from store.under_way(asked.tenant)
    if every >= MOST_UNDER_WAY or theirs >= MOST_OF_A_TENANT:
        raise Refused("so many operations are under way already: wait for one to end, or stop one")
    number = yield from store.begin(asked)
    detail = {"action": asked.action, "filter": asked.wanted, "rate": asked.rate, "reason": asked.reason}
    yield from audit.audit(asked.actor, "operation.begin", f"operation {number}", {**detail, **asked.options})
    return (yield from _there(number))


# How many


def count_jobs(action: JobAction, wanted: JobFilter) -> Operation[Count]:
    """As in a dry run."""
    return (yield from _counts[action](wanted)).total


def count_schedules(action: ScheduleAction, wanted: ScheduleFilter) -> Operation[Count]:
    """As in a dry run."""
    return (yield from tally(wanted, _verbs[action])).total


def count_requeue(wanted: DeliveryFilter, ids: Collection[int] | None = None) -> Operation[Count]:
    """All of them, where a dry run looks at the newest."""
    return (yield from store.count_deliveries((yield from _requeueable(wanted)), ids))


# Carried out by a worker


def changes(requeue: Callable[[Sequence[int]], Operation[list[int]]]) -> dict[str, Change]:
    """What a worker does in one batch, by action. `requeue`: as the application sends deliveries back to work."""
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
    """They write the same lines in the audit as at once."""

    def step(taken: ClaimedBatch) -> Operation[Step]:
        wanted, place = yield from store.schedules_found(taken)
        found = len(wanted.keys or ())
        done = (yield from change(wanted, taken)) if found else 0
        return Step(done, 0, found - done, place)

    return step


def _of_deliveries(requeue: Callable[[Sequence[int]], Operation[list[int]]]) -> Change:
    def step(taken: ClaimedBatch) -> Operation[Step]:
        found, place = yield from store.deliveries_found(taken)
        back = sorted((yield from requeue(found))) if found else []
        if back:
            subject = f"delivery {back[0]}" if len(back) == 1 else f"{len(back)} deliveries"
            yield from store.noted(taken, subject, {"ids": back}, len(back))
        return Step(len(back), 0, len(found) - len(back), place)

    return step


# Look and stop


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
    yield from audit.audit(who, "operation.stop", f"operation {number}", {"state": before.state})
    return (yield from _there(number))


def edited(row: JobRow, arguments: bytes, make_job: MakeJob) -> NewJob:
    """The new job that `retry_edited` writes: like one that has ended, with other arguments."""
    if row.finished_at is None:
        raise Refused(f"job {row.id} is {row.state}: only one that has ended can be made again")
    tags = [tag for tag in row.tags or () if not tag.startswith(ORIGIN)]
    options = JobOptions(
        queue=row.queue,
        priority=row.priority,
        tenant=row.tenant,
        tags=[*tags[: MOST_TAGS - 1], f"{ORIGIN}{row.id}"],
        trace=row.trace,
    )
    return make_job(row.task, arguments, options)


def retry_edited(row: JobRow, wanted: NewJob, *, actor: str | None = None) -> Operation[Job]:
    """Write a job that was made from one that has ended, which stays as it is."""
    (made,) = yield from jobs_store.enqueue([wanted])
    who = actor or default_actor()
    detail = {"task": row.task, "made": made.id}
    yield from audit.audit(who, "job.retry_edited", f"job {row.id}", detail)
    yield from audit.audit(who, "job.enqueue", f"job {made.id}", {"task": row.task, "retry_of": row.id})
    return made


def _there(number: int) -> Operation[BulkOperation]:
    found = yield from store.one(number)
    if found is None:
        raise InvalidArguments(f"there is no operation {number}: see sereno operation list")
    return found
