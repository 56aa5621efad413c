"""Storage of bulk operations, and the code of one batch. An operation does not depend on the client that began it."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

import msgspec

from sereno.access import audit
from sereno.bounded_count import BoundedCount
from sereno.database.json_values import encoder
from sereno.database.statement import Operation, Statement, queries
from sereno.errors import Refused
from sereno.jobs import bulk_selection, transitions
from sereno.jobs.filters import DeliveryFilter, JobFilter, ScheduleFilter
from sereno.jobs.job import DEFAULT_PRIORITY, JobOptions, NewJob
from sereno.jobs.rows import Action, BulkOperation, KeyConflict

# Bytes of a filter that a list shows; a filter may name ten thousand ids.
MOST_WANTED_BYTES = 16 * 1024

_sql = queries("jobs/bulk")
_json = msgspec.json.Decoder(dict[str, Any])

# The task that carries out operations. A parameter in SQL, because there a custom schema name would replace `sereno`.
TASK = "sereno.bulk"
USUAL_QUEUE = "default"
# The first priority of its queue, so that the jobs it requeues do not delay it.
PRIORITY = 0
assert PRIORITY < DEFAULT_PRIORITY
# Range of ids, and number of schedules, that one statement reads, so that none takes long.
STRETCH = 100_000
STRETCH_OF_SCHEDULES = 10_000
# Deliveries that are counted at most.
COUNT_BOUND = 1_000_000
# Operations that one statement deletes.
FORGOTTEN = 1000
# Seconds of changes in one batch, if the operation has a rate.
PACE_SECONDS = 0.5
LAST_ID = 2**63 - 1


@dataclass(frozen=True, slots=True)
class BulkRequest:
    """A requested bulk change. `wanted`: the filter in readable form. `selection`: the same filter as SQL parameters.

    `ids`: the ids that were given. `options`: other options of the change.
    """

    action: Action
    wanted: Mapping[str, Any]
    selection: Mapping[str, Any]
    tenant: str | None
    actor: str
    rate: float | None = None
    reason: str | None = None
    total: BoundedCount | None = None
    ids: Collection[int] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


class BulkBatch(NamedTuple):
    """The result of a batch. `wait`: seconds until the next one, None after the last. `share`: progress from 0 to 1."""

    wait: float | None
    share: float = 1.0
    changed: int = 0


def under_way(tenant: str | None) -> Operation[tuple[int, int]]:
    """Return the number of operations in progress, in total and of this tenant."""
    rows = yield Statement(_sql["under_way"], {"tenant": tenant, "bound": 1000})
    return int(rows[0][0]), int(rows[0][1])


def begin(request: BulkRequest) -> Operation[int]:
    """Store an operation and enqueue its job; return its id."""
    ids, total = request.ids, request.total
    given = {
        "action": request.action,
        "kind": request.action.partition(".")[0],
        "wanted": encoder.encode(request.wanted).decode(),
        "selection": encoder.encode(storable(request.selection)).decode(),
        "options": encoder.encode(request.options).decode(),
        "tenant": request.tenant,
        "rate": request.rate,
        "reason": request.reason,
        "actor": request.actor,
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
    """Move operations that wait in a queue without workers to the first of these queues."""
    if queues:
        yield Statement(_sql["adopt"], {"task": TASK, "queues": list(queues), "queue": queues[0]})


def listed(
    limit: int, before: int | None = None, tenant: str | None = None, *, most_bytes: int | None = MOST_WANTED_BYTES
) -> Operation[list[BulkOperation]]:
    """Return operations, newest first. `before`: the last id of the previous page. Filters are cut to `most_bytes`."""
    given = {"task": TASK, "limit": limit, "before": LAST_ID if before is None else before, "tenant": tenant}
    rows = yield Statement(_sql["listed"], {**given, "bytes": most_bytes})
    return [_shown(*row) for row in rows]


def _shown(number: int, action: str, state: str, wanted: str, options: str, *rest: Any) -> BulkOperation:
    return BulkOperation(number, action, state, _json.decode(wanted), _json.decode(options), *rest)


def one(number: int) -> Operation[BulkOperation | None]:
    """Return an operation by its id; None if there is none."""
    if not 0 < number < LAST_ID:
        return None
    found = yield from listed(1, number + 1, most_bytes=None)
    return found[0] if found and found[0].id == number else None


def ask_to_stop(number: int, actor: str) -> Operation[bool]:
    """Request an operation to stop; return False if it has ended already."""
    rows = yield Statement(_sql["ask_to_stop"], {"id": number, "actor": actor})
    return bool(rows)


def fail(number: int, error: str) -> Operation[None]:
    yield Statement(_sql["finish"], {"id": number, "state": "failed", "error": error})


def forget(days: int) -> Operation[None]:
    """Delete a bounded number of operations that ended more than `days` ago."""
    yield Statement(_sql["forget"], {"days": days, "limit": FORGOTTEN})


# One batch


@dataclass(frozen=True, slots=True)
class ClaimedBatch:
    """An operation that the running attempt of its job holds."""

    id: int
    action: str
    selection: str
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
    requested_at: datetime
    is_to_stop: bool
    wait: float

    @property
    def limit(self) -> int:
        """The largest number of changes in one batch."""
        return (
            bulk_selection.BATCH
            if self.rate is None
            else max(1, min(bulk_selection.BATCH, int(self.rate * PACE_SECONDS)))
        )

    def given(self) -> dict[str, Any]:
        """Return the options of the change."""
        return _json.decode(self.options)


class BulkCursor(NamedTuple):
    """The position of an operation: everything up to this id or key has been processed."""

    cursor: int
    key: str
    ends: bool


class BatchCounts(NamedTuple):
    """Counts of a batch. `stopping`: running jobs with a requested stop. `left`: matches that were not changed."""

    done: int
    stopping: int
    left: int
    place: BulkCursor


# The batch function of an action. Those for jobs are in this module; the application supplies the others.
Change: TypeAlias = Callable[[ClaimedBatch], Operation[BatchCounts]]


def batch(
    number: int, job: int, attempt: int, session: int, others: Mapping[str, Change] | None = None
) -> Operation[BulkBatch]:
    """Do the next batch and store the progress, in one transaction; only for the attempt that holds the job."""
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
        raise Refused(f"this worker does not know the bulk action {taken.action}")
    done, stopping, left, place = yield from change(taken)
    cost = (done + stopping) / taken.rate if taken.rate else 0.0
    progress = {"cursor": place.cursor, "key": place.key, "ends": place.ends, "cost": cost}
    yield Statement(_sql["advance"], {"id": number, "done": done, "stopping": stopping, "left": left, **progress})
    return BulkBatch(None if place.ends else cost, _share(taken, done + stopping + left), done + stopping)


def _share(taken: ClaimedBatch, more: int) -> float:
    """Return the progress from 0 to 1: by the total if it is known, else by the position among the ids."""
    seen = taken.changed + taken.left + more
    if taken.total:
        return min(1.0, seen / taken.total)
    return min(1.0, taken.cursor / max(1, taken.upper_id))


def storable(selection: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters to store: without unused search terms, which workers of an older version do not know."""
    return {name: value for name, value in selection.items() if name != "terms" or value is not None}


def _params(taken: ClaimedBatch, known: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of the filter, or raise Refused for one that this version does not know."""
    params = _json.decode(taken.selection)
    if params.keys() - known.keys():
        # Without the unknown condition the filter would match too much.
        raise Refused("the operation has a filter of a newer version, which this worker does not know: update it")
    return {**known, **params}


# Jobs


class BatchResult(NamedTuple):
    """The jobs of a batch that were changed, those that were requested to stop, and those whose unique key is taken."""

    done: Sequence[int] = ()
    stopping: Sequence[int] = ()
    conflicts: Sequence[KeyConflict] = ()


def _jobs(change: Callable[[Sequence[int], ClaimedBatch], Operation[BatchResult]]) -> Change:
    def step(taken: ClaimedBatch) -> Operation[BatchCounts]:
        params, upto = _params(taken, JobFilter().params()), min(taken.cursor + STRETCH, taken.upper_id)
        given = {"after": taken.cursor, "upto": upto, "limit": taken.limit, "requested_at": taken.requested_at}
        found = [row[0] for row in (yield Statement(_sql["matching"], params | given))]
        done, stopping, conflicts = (yield from change(found, taken)) if found else BatchResult()
        touched = sorted([*done, *stopping])
        if touched or conflicts:
            subject = f"job {touched[0]}" if len(touched) == 1 else f"{len(touched)} jobs"
            detail = {"ids": touched, "filter": _json.decode(taken.wanted)}
            yield from noted(taken, subject, detail | ({"conflicts": conflicts} if conflicts else {}), len(touched))
        return BatchCounts(len(done), len(stopping), len(found) - len(touched), _place(taken, found, upto))

    return step


def _place(taken: ClaimedBatch, found: Sequence[int], upto: int) -> BulkCursor:
    cursor = found[-1] if len(found) == taken.limit else upto
    return BulkCursor(cursor, "", cursor >= taken.upper_id)


def noted(taken: ClaimedBatch, subject: str, detail: Mapping[str, Any], count: int) -> Operation[None]:
    """Write the same audit line as an immediate change, with the id of the operation."""
    yield from audit.audit(taken.actor, taken.action, subject, {"count": count, **detail, "operation": taken.id})


def _retry(found: Sequence[int], taken: ClaimedBatch) -> Operation[BatchResult]:
    done = yield from transitions.requeue(found, ended_by=taken.requested_at)
    return BatchResult(done, conflicts=(yield from transitions.key_conflicts(set(found) - set(done))))


def _cancel(found: Sequence[int], taken: ClaimedBatch) -> Operation[BatchResult]:
    return BatchResult(*(yield from transitions.cancel(found, taken.reason or f"cancelled by {taken.actor}")))


def _delete(found: Sequence[int], taken: ClaimedBatch) -> Operation[BatchResult]:
    return BatchResult((yield from transitions.delete(found, taken.requested_at)))


_of_jobs: dict[str, Change] = {"job.retry": _jobs(_retry), "job.cancel": _jobs(_cancel), "job.delete": _jobs(_delete)}


# Schedules


def schedules_found(taken: ClaimedBatch) -> Operation[tuple[ScheduleFilter, BulkCursor]]:
    """Return a filter for the schedules of the next batch, and the position after it."""
    params = _params(taken, ScheduleFilter().params())
    given = {"after": taken.cursor_key, "upper": taken.upper_id, "limit": taken.limit, "stretch": STRETCH_OF_SCHEDULES}
    ((keys, last, seen),) = yield Statement(_sql["matching_schedules"], params | given)
    if len(keys) == taken.limit:
        place = BulkCursor(0, keys[-1], False)
    else:
        place = BulkCursor(0, last or taken.cursor_key, seen < STRETCH_OF_SCHEDULES)
    return replace(ScheduleFilter.again(params), keys=keys), place


# Deliveries


def delivery_selection(wanted: DeliveryFilter, ids: Collection[int] | None) -> dict[str, Any]:
    """Return the parameters of the query for deliveries."""
    params = wanted.params()
    named = params["ids"]
    if ids is not None:
        params["ids"] = sorted(ids if named is None else {*ids} & {*named})
    return params


def deliveries_found(taken: ClaimedBatch) -> Operation[tuple[list[int], BulkCursor]]:
    """Return the deliveries of the next batch, and the position after it."""
    params, upto = (
        _params(taken, delivery_selection(DeliveryFilter(), None)),
        min(taken.cursor + STRETCH, taken.upper_id),
    )
    given = {
        "after": taken.cursor,
        "upto": upto,
        "limit": taken.limit,
        "requested_at": taken.requested_at,
        "counts": False,
    }
    ((_, found),) = yield Statement(_sql["matching_deliveries"], params | given)
    return found, _place(taken, found, upto)


def count_deliveries(wanted: DeliveryFilter, ids: Collection[int] | None = None) -> Operation[BoundedCount]:
    """Return the number of matching deliveries, up to a bound."""
    given = {"after": 0, "upto": LAST_ID, "limit": COUNT_BOUND + 1, "requested_at": None, "counts": True}
    ((count, _),) = yield Statement(_sql["matching_deliveries"], delivery_selection(wanted, ids) | given)
    return BoundedCount.bounded(count, COUNT_BOUND)
