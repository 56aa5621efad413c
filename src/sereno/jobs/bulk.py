"""Bulk operations: what is wanted, how far it is, and one batch of it. They outlive whoever asked for them."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from sereno.access import audit
from sereno.database.json_values import encoder
from sereno.database.statement import Operation, Statement, queries
from sereno.errors import Refused
from sereno.jobs import bulk_selection, transitions
from sereno.jobs.filters import DeliveryFilter, JobFilter, ScheduleFilter
from sereno.jobs.job import DEFAULT_PRIORITY, JobOptions, NewJob
from sereno.jobs.rows import Count

# Of what one asked for, in a list: it may name ten thousand ids.
MOST_WANTED_BYTES = 16 * 1024

_sql = queries("jobs/bulk")
_json = msgspec.json.Decoder(dict[str, Any])

# The task that carries operations out. Not written in SQL, where another schema's name would replace its first word.
TASK = "sereno.bulk"
USUAL_QUEUE = "default"
# Before everything else of its queue: what it sends back to work must not keep it waiting.
PRIORITY = 0
assert PRIORITY < DEFAULT_PRIORITY
# So many ids are looked through in one statement, so that none takes long.
STRETCH = 100_000
STRETCH_OF_SCHEDULES = 10_000
# More deliveries than this are not counted.
COUNT_BOUND = 1_000_000
# So many operations are forgotten at a time.
FORGOTTEN = 1000
# With a rate, a batch is as many as may be changed in so many seconds.
PACE_SECONDS = 0.5
LAST_ID = 2**63 - 1

JobAction: TypeAlias = Literal["job.retry", "job.cancel", "job.delete"]
ScheduleAction: TypeAlias = Literal[
    "schedule.pause", "schedule.resume", "schedule.disable", "schedule.delete", "schedule.spread"
]
Action: TypeAlias = JobAction | ScheduleAction | Literal["delivery.requeue"]


@dataclass(frozen=True, slots=True)
class BulkOperation:
    """A bulk change in the background.

    `total`: how many there were when it was asked for; null if nobody could count them in time, at least that many
    where it is not `total_exact`. `asked_to_stop`: running jobs, when cancelling. `left_alone`: matched, and could not
    be changed. `options`: what else the change takes. `waits_for`: what is missing for it to go on.
    """

    id: int
    action: str
    state: str
    wanted: Mapping[str, Any]
    options: Mapping[str, Any]
    tenant: str | None
    rate: float | None
    reason: str | None
    asked_by: str
    total: int | None
    total_exact: bool
    done: int
    asked_to_stop: int
    left_alone: int
    created_at: datetime
    started_at: datetime | None
    seen_at: datetime | None
    stop_asked_at: datetime | None
    stop_asked_by: str | None
    finished_at: datetime | None
    job_id: int | None
    error: str | None
    waits_for: str | None

    @property
    def is_over(self) -> bool:
        return self.state in ("done", "stopped", "failed")


@dataclass(frozen=True, slots=True)
class BulkRequest:
    """What somebody wants done to many. `wanted`: the filter for people. `look`: the same as parameters, by kind.

    `ids`: those that are named. `options`: what else the change takes.
    """

    action: Action
    wanted: Mapping[str, Any]
    look: Mapping[str, Any]
    tenant: str | None
    actor: str
    rate: float | None = None
    reason: str | None = None
    total: Count | None = None
    ids: Collection[int] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


class BulkBatch(NamedTuple):
    """What became of a batch. `wait`: seconds until the next one; None when there is none. `share`: how far it is."""

    wait: float | None
    share: float = 1.0
    changed: int = 0


def under_way(tenant: str | None) -> Operation[tuple[int, int]]:
    """How many are, in all, and of this tenant."""
    rows = yield Statement(_sql["under_way"], {"tenant": tenant, "bound": 1000})
    return int(rows[0][0]), int(rows[0][1])


def begin(asked: BulkRequest) -> Operation[int]:
    """Write it down and make its job; answers its id."""
    ids, total = asked.ids, asked.total
    given = {
        "action": asked.action,
        "kind": asked.action.partition(".")[0],
        "wanted": encoder.encode(asked.wanted).decode(),
        "look": encoder.encode(kept(asked.look)).decode(),
        "options": encoder.encode(asked.options).decode(),
        "tenant": asked.tenant,
        "rate": asked.rate,
        "reason": asked.reason,
        "actor": asked.actor,
        "total": None if total is None else total.value,
        "total_exact": total is None or total.exact,
        "first": max(1, min(ids, default=1)) if ids is not None else 1,
        "last": LAST_ID if ids is None else min(LAST_ID, max(ids, default=0)),
    }
    ((number,),) = yield Statement(_sql["begin"], given)
    rows = yield Statement(_sql["queue_for"], {"task": TASK, "usual": USUAL_QUEUE})
    queue = rows[0][0] if rows else USUAL_QUEUE
    arguments = encoder.encode({"operation": number})
    (made,) = yield from transitions.enqueue([NewJob(TASK, arguments, JobOptions(queue=queue, priority=PRIORITY))])
    yield Statement(_sql["give_job"], {"id": number, "job": made.id})
    return int(number)


def adopt(queues: Sequence[str]) -> Operation[None]:
    """Operations that wait where nobody serves come into a queue of these."""
    if queues:
        yield Statement(_sql["adopt"], {"task": TASK, "queues": list(queues), "queue": queues[0]})


def listed(
    limit: int, before: int | None = None, tenant: str | None = None, *, most_bytes: int | None = MOST_WANTED_BYTES
) -> Operation[list[BulkOperation]]:
    """Newest first; `before` is the last id of the page before. What was asked for is shown up to `most_bytes`."""
    given = {"task": TASK, "limit": limit, "before": LAST_ID if before is None else before, "tenant": tenant}
    rows = yield Statement(_sql["listed"], {**given, "bytes": most_bytes})
    return [_shown(*row) for row in rows]


def _shown(number: int, action: str, state: str, wanted: str, options: str, *rest: Any) -> BulkOperation:
    return BulkOperation(number, action, state, _json.decode(wanted), _json.decode(options), *rest)


def one(number: int) -> Operation[BulkOperation | None]:
    """By its id."""
    if not 0 < number < LAST_ID:
        return None
    found = yield from listed(1, number + 1, most_bytes=None)
    return found[0] if found and found[0].id == number else None


def ask_to_stop(number: int, actor: str) -> Operation[bool]:
    """False when it is over already."""
    rows = yield Statement(_sql["ask_to_stop"], {"id": number, "actor": actor})
    return bool(rows)


def fail(number: int, error: str) -> Operation[None]:
    yield Statement(_sql["finish"], {"id": number, "state": "failed", "error": error})


def forget(days: int) -> Operation[None]:
    """Those that ended so long ago."""
    yield Statement(_sql["forget"], {"days": days, "limit": FORGOTTEN})


# One batch


@dataclass(frozen=True, slots=True)
class ClaimedBatch:
    """An operation in the hands of its job."""

    id: int
    action: str
    look: str
    wanted: str
    options: str
    rate: float | None
    reason: str | None
    actor: str
    changed: int
    left: int
    total: int | None
    cursor: int
    cursor_key: str
    upper_id: int
    asked_at: datetime
    is_to_stop: bool
    wait: float

    @property
    def limit(self) -> int:
        """As many are changed in one batch."""
        return (
            bulk_selection.BATCH
            if self.rate is None
            else max(1, min(bulk_selection.BATCH, int(self.rate * PACE_SECONDS)))
        )

    def given(self) -> dict[str, Any]:
        """What else the change takes."""
        return _json.decode(self.options)


class BulkCursor(NamedTuple):
    """How far it is: up to this id or key everything has been looked at."""

    cursor: int
    key: str
    ends: bool


class Step(NamedTuple):
    """What a batch did. `asked`: running jobs that were asked to stop. `left`: found, and not changed."""

    done: int
    asked: int
    left: int
    place: BulkCursor


# One batch of an action; of jobs it is here, of others the application brings it along.
Change: TypeAlias = Callable[[ClaimedBatch], Operation[Step]]


def batch(
    number: int, job: int, attempt: int, session: int, others: Mapping[str, Change] | None = None
) -> Operation[BulkBatch]:
    """The next batch, and how far it is then, in one transaction; for the attempt that holds the job alone."""
    rows = yield Statement(_sql["take"], {"id": number, "job": job, "attempt": attempt, "session": session})
    if not rows:
        return BulkBatch(None)
    taken = ClaimedBatch(*rows[0])
    if taken.is_to_stop:
        yield Statement(_sql["finish"], {"id": number, "state": "stopped", "error": None})
        return BulkBatch(None)
    if taken.wait > 0:
        return BulkBatch(taken.wait, _share(taken, 0))
    change = {**_of_jobs, **(others or {})}.get(taken.action)
    if change is None:
        raise Refused(f"this worker does not know how to carry out {taken.action}")
    done, asked, left, place = yield from change(taken)
    cost = (done + asked) / taken.rate if taken.rate else 0.0
    how_far = {"cursor": place.cursor, "key": place.key, "ends": place.ends, "cost": cost}
    yield Statement(_sql["advance"], {"id": number, "done": done, "asked": asked, "left": left, **how_far})
    return BulkBatch(None if place.ends else cost, _share(taken, done + asked + left), done + asked)


def _share(taken: ClaimedBatch, more: int) -> float:
    """By the count, where there is one; else by the ids."""
    seen = taken.changed + taken.left + more
    if taken.total:
        return min(1.0, seen / taken.total)
    return min(1.0, taken.cursor / max(1, taken.upper_id))


def kept(look: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters as they are kept: without what no search asks, which workers of an older version do not know."""
    return {name: value for name, value in look.items() if name != "terms" or value is not None}


def _look(taken: ClaimedBatch, known: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of its filter."""
    look = _json.decode(taken.look)
    if look.keys() - known.keys():
        # Left out, it would find more than was meant.
        raise Refused("a newer version was asked for this, with a filter that this worker does not know")
    return {**known, **look}


# Jobs


class BatchResult(NamedTuple):
    """The jobs of a batch that were changed, those that were asked to stop, and those whose unique key is taken."""

    done: Sequence[int] = ()
    asked: Sequence[int] = ()
    conflicts: Sequence[transitions.KeyConflict] = ()


def _jobs(change: Callable[[Sequence[int], ClaimedBatch], Operation[BatchResult]]) -> Change:
    def step(taken: ClaimedBatch) -> Operation[Step]:
        look, upto = _look(taken, JobFilter().params()), min(taken.cursor + STRETCH, taken.upper_id)
        given = {"after": taken.cursor, "upto": upto, "limit": taken.limit, "asked_at": taken.asked_at}
        found = [row[0] for row in (yield Statement(_sql["matching"], look | given))]
        done, asked, conflicts = (yield from change(found, taken)) if found else BatchResult()
        touched = sorted([*done, *asked])
        if touched or conflicts:
            subject = f"job {touched[0]}" if len(touched) == 1 else f"{len(touched)} jobs"
            detail = {"ids": touched, "filter": _json.decode(taken.wanted)}
            yield from noted(taken, subject, detail | ({"conflicts": conflicts} if conflicts else {}), len(touched))
        return Step(len(done), len(asked), len(found) - len(touched), _place(taken, found, upto))

    return step


def _place(taken: ClaimedBatch, found: Sequence[int], upto: int) -> BulkCursor:
    cursor = found[-1] if len(found) == taken.limit else upto
    return BulkCursor(cursor, "", cursor >= taken.upper_id)


def noted(taken: ClaimedBatch, subject: str, detail: Mapping[str, Any], count: int) -> Operation[None]:
    """As it is noted when it is done at once, and of which operation it is a part."""
    yield from audit.audit(taken.actor, taken.action, subject, {"count": count, **detail, "operation": taken.id})


def _retry(found: Sequence[int], taken: ClaimedBatch) -> Operation[BatchResult]:  # noqa: ARG001 - as the others
    done = yield from transitions.requeue(found)
    return BatchResult(done, conflicts=(yield from transitions.key_conflicts(set(found) - set(done))))


def _cancel(found: Sequence[int], taken: ClaimedBatch) -> Operation[BatchResult]:
    return BatchResult(*(yield from transitions.cancel(found, taken.reason or f"cancelled by {taken.actor}")))


def _delete(found: Sequence[int], taken: ClaimedBatch) -> Operation[BatchResult]:  # noqa: ARG001 - as the others
    return BatchResult((yield from transitions.delete(found)))


_of_jobs: dict[str, Change] = {"job.retry": _jobs(_retry), "job.cancel": _jobs(_cancel), "job.delete": _jobs(_delete)}


# Schedules


def schedules_found(taken: ClaimedBatch) -> Operation[tuple[ScheduleFilter, BulkCursor]]:
    """The schedules of the next batch, by their keys and what else must hold of them."""
    look = _look(taken, ScheduleFilter().params())
    given = {"after": taken.cursor_key, "upper": taken.upper_id, "limit": taken.limit, "stretch": STRETCH_OF_SCHEDULES}
    ((keys, last, seen),) = yield Statement(_sql["matching_schedules"], look | given)
    if len(keys) == taken.limit:
        place = BulkCursor(0, keys[-1], False)
    else:
        place = BulkCursor(0, last or taken.cursor_key, seen < STRETCH_OF_SCHEDULES)
    return replace(ScheduleFilter.again(look), keys=keys), place


# Deliveries


def delivery_look(wanted: DeliveryFilter, ids: Collection[int] | None) -> dict[str, Any]:
    """Parameters of the statement that looks for deliveries."""
    params = wanted.params()
    named = params["ids"]
    if ids is not None:
        params["ids"] = sorted(ids if named is None else {*ids} & {*named})
    return params


def deliveries_found(taken: ClaimedBatch) -> Operation[tuple[list[int], BulkCursor]]:
    """The deliveries of the next batch."""
    look, upto = _look(taken, delivery_look(DeliveryFilter(), None)), min(taken.cursor + STRETCH, taken.upper_id)
    given = {"after": taken.cursor, "upto": upto, "limit": taken.limit, "asked_at": taken.asked_at, "counts": False}
    ((_, found),) = yield Statement(_sql["matching_deliveries"], look | given)
    return found, _place(taken, found, upto)


def count_deliveries(wanted: DeliveryFilter, ids: Collection[int] | None = None) -> Operation[Count]:
    """How many there are now, up to a bound."""
    given = {"after": 0, "upto": LAST_ID, "limit": COUNT_BOUND + 1, "asked_at": None, "counts": True}
    ((count, _),) = yield Statement(_sql["matching_deliveries"], delivery_look(wanted, ids) | given)
    return Count.bounded(count, COUNT_BOUND)
