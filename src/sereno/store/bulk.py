"""Bulk operations: what is wanted, how far it is, and one batch of it. They outlive whoever asked for them."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import msgspec

from sereno.domain.job import DEFAULT_PRIORITY, JobOptions, NewJob
from sereno.domain.stored import encoder
from sereno.errors import Refused
from sereno.store import jobs, steering
from sereno.store.filters import JobFilter
from sereno.store.sights import Count
from sereno.store.statement import Operation, Statement, queries

_sql = queries("bulk")
_json = msgspec.json.Decoder(dict[str, Any])

# The task that carries operations out. Not written in SQL, where another schema's name would replace its first word.
TASK = "sereno.bulk"
USUAL_QUEUE = "default"
# Before everything else of its queue: what it sends back to work must not keep it waiting.
PRIORITY = 0
assert PRIORITY < DEFAULT_PRIORITY
# So many ids are looked through in one statement, so that none takes long.
STRETCH = 100_000
# With a rate, a batch is as many as may be changed in so many seconds.
PACE_SECONDS = 0.5
LAST_ID = 2**63 - 1

Action: TypeAlias = Literal["job.retry", "job.cancel", "job.delete"]
ACTIONS: tuple[Action, ...] = get_args(Action)


@dataclass(frozen=True, slots=True)
class BulkOperation:
    """A bulk change in the background.

    `total`: how many there were when it was asked for; null if nobody could count them in time, at least that many
    where it is not `total_exact`. `asked_to_stop`: running jobs, when cancelling. `left_alone`: matched, and could not
    be changed. `waits_for`: what is missing for it to go on.
    """

    id: int
    action: str
    state: str
    wanted: Mapping[str, Any]
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
class Asked:
    """What somebody wants done to many jobs."""

    action: Action
    wanted: JobFilter
    actor: str
    rate: float | None = None
    reason: str | None = None
    total: Count | None = None


class Batch(NamedTuple):
    """What became of a batch. `wait`: seconds until the next one; None when there is none. `share`: how far it is."""

    wait: float | None
    share: float = 1.0
    changed: int = 0


def begin(asked: Asked) -> Operation[int]:
    """Write it down and make its job; answers its id."""
    wanted, total = asked.wanted, asked.total
    ids = wanted.ids
    given = {
        "action": asked.action,
        "wanted": encoder.encode(wanted.as_detail()).decode(),
        "look": encoder.encode(wanted.params()).decode(),
        "tenant": wanted.tenant,
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
    (made,) = yield from jobs.enqueue([NewJob(TASK, arguments, JobOptions(queue=queue, priority=PRIORITY))])
    yield Statement(_sql["give_job"], {"id": number, "job": made.id})
    return int(number)


def adopt(queues: Sequence[str]) -> Operation[None]:
    """Operations that wait where nobody serves come into a queue of these."""
    if queues:
        yield Statement(_sql["adopt"], {"task": TASK, "queues": list(queues), "queue": queues[0]})


def listed(limit: int, before: int | None = None, tenant: str | None = None) -> Operation[list[BulkOperation]]:
    """Newest first; `before` is the last id of the page before."""
    rows = yield Statement(
        _sql["listed"],
        {"task": TASK, "limit": limit, "before": LAST_ID if before is None else before, "tenant": tenant},
    )
    return [_shown(*row) for row in rows]


def _shown(number: int, action: str, state: str, wanted: str, *rest: Any) -> BulkOperation:
    return BulkOperation(number, action, state, _json.decode(wanted), *rest)


def one(number: int) -> Operation[BulkOperation | None]:
    """By its id."""
    if not 0 < number < LAST_ID:
        return None
    found = yield from listed(1, number + 1)
    return found[0] if found and found[0].id == number else None


def ask_to_stop(number: int, actor: str) -> Operation[bool]:
    """False when it is over already."""
    rows = yield Statement(_sql["ask_to_stop"], {"id": number, "actor": actor})
    return bool(rows)


def fail(number: int, error: str) -> Operation[None]:
    yield Statement(_sql["finish"], {"id": number, "state": "failed", "error": error})


@dataclass(frozen=True, slots=True)
class _Taken:
    action: Action
    look: str
    wanted: str
    rate: float | None
    reason: str | None
    actor: str
    changed: int
    left: int
    total: int | None
    cursor: int
    upper_id: int
    asked_at: datetime
    is_to_stop: bool
    wait: float


def batch(number: int, job: int, attempt: int, session: int) -> Operation[Batch]:
    """The next batch, and how far it is then, in one transaction; for the attempt that holds the job alone."""
    rows = yield Statement(_sql["take"], {"id": number, "job": job, "attempt": attempt, "session": session})
    if not rows:
        return Batch(None)
    taken = _Taken(*rows[0])
    if taken.is_to_stop:
        yield Statement(_sql["finish"], {"id": number, "state": "stopped", "error": None})
        return Batch(None)
    if taken.wait > 0:
        return Batch(taken.wait, _share(taken, 0))
    found, cursor = yield from _found(taken)
    done, asked = (yield from _changes[taken.action](found, taken)) if found else ([], [])
    touched = sorted([*done, *asked])
    if touched:
        yield from _noted(number, taken, touched)
    cost = len(touched) / taken.rate if taken.rate else 0.0
    ends = cursor >= taken.upper_id
    yield Statement(
        _sql["advance"],
        {
            "id": number,
            "ends": ends,
            "cursor": cursor,
            "done": len(done),
            "asked": len(asked),
            "left": len(found) - len(touched),
            "cost": cost,
        },
    )
    return Batch(None if ends else cost, _share(taken, len(found)), len(touched))


def _found(taken: _Taken) -> Operation[tuple[list[int], int]]:
    """The jobs of the next batch, and up to which id everything has been looked at then."""
    known = JobFilter().params()
    look = _json.decode(taken.look)
    if look.keys() - known.keys():
        # Left out, it would find more than was meant.
        raise Refused("a newer version was asked for this, with a filter that this worker does not know")
    upto = min(taken.cursor + STRETCH, taken.upper_id)
    limit = steering.BATCH if taken.rate is None else max(1, min(steering.BATCH, int(taken.rate * PACE_SECONDS)))
    given = {"after": taken.cursor, "upto": upto, "limit": limit, "asked_at": taken.asked_at}
    rows = yield Statement(_sql["matching"], known | look | given)
    found = [row[0] for row in rows]
    return found, found[-1] if len(found) == limit else upto


def _share(taken: _Taken, more: int) -> float:
    """By the count, where there is one; else by the ids."""
    seen = taken.changed + taken.left + more
    if taken.total:
        return min(1.0, seen / taken.total)
    return min(1.0, taken.cursor / max(1, taken.upper_id))


def _noted(number: int, taken: _Taken, touched: Collection[int]) -> Operation[None]:
    """As it is noted when it is done at once, and of which operation it is a part."""
    ids = list(touched)
    subject = f"job {ids[0]}" if len(ids) == 1 else f"{len(ids)} jobs"
    detail = {"count": len(ids), "ids": ids, "filter": _json.decode(taken.wanted), "operation": number}
    yield from steering.audit(taken.actor, taken.action, subject, detail)


Changed: TypeAlias = tuple[Sequence[int], Sequence[int]]


def _retry(found: Sequence[int], taken: _Taken) -> Operation[Changed]:  # noqa: ARG001 - as the others
    return (yield from jobs.requeue(found)), ()


def _cancel(found: Sequence[int], taken: _Taken) -> Operation[Changed]:
    return (yield from jobs.cancel(found, taken.reason or f"cancelled by {taken.actor}"))


def _delete(found: Sequence[int], taken: _Taken) -> Operation[Changed]:  # noqa: ARG001 - as the others
    return (yield from jobs.delete(found)), ()


_changes: dict[Action, Callable[[Sequence[int], _Taken], Operation[Changed]]] = {
    "job.retry": _retry,
    "job.cancel": _cancel,
    "job.delete": _delete,
}
