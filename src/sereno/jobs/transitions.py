"""State transitions of live jobs: enqueue, promote, claim, release, cancel, delete, requeue."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, cast

import msgspec

from sereno.database.fast_path import PreparedStatement
from sereno.database.json_values import encoder
from sereno.database.statement import Operation, Statement, queries
from sereno.duration import seconds
from sereno.errors import DuplicateJob
from sereno.jobs.claim_reply import decode_claimed
from sereno.jobs.job import ClaimedJob, EnqueuedJob, NewJob
from sereno.jobs.rows import KeyConflict
from sereno.jobs.settlement import end_links, make_waiting
from sereno.telemetry import tracing

_sql = queries("jobs/transitions")
_ids = msgspec.json.Decoder(list[int])
_results = msgspec.json.Decoder(list[dict[str, Any]])
_links = msgspec.json.Decoder(list[tuple[int, int]])

# A hundred years in seconds: includes every job that became due while no worker was running.
EVERYTHING = 86400.0 * 36500


def enqueue(jobs: Sequence[NewJob]) -> Operation[list[EnqueuedJob]]:
    """Write the jobs with one statement; return them in the same order. Jobs with unique keys take a slower path.

    Jobs that wait for others need a second statement, in the same transaction.
    """
    if tracing.active is not None:
        jobs = tracing.active.with_trace(jobs)
    made = yield from _enqueue(jobs)
    if waiting := [
        {"id": job.id, "after": wanted.options.after, "on_dead": wanted.options.on_dead}
        for wanted, job in zip(jobs, made, strict=True)
        if wanted.options.after
    ]:
        yield from make_waiting(waiting)
    return made


def _enqueue(jobs: Sequence[NewJob]) -> Operation[list[EnqueuedJob]]:
    if not jobs:
        return []
    first = jobs[0]
    if first.options.unique_key is None and all(job.is_like(first) for job in jobs):
        return (yield from _enqueue_alike(first, jobs))
    payload = encoder.encode([job.as_row() for job in jobs]).decode()
    if not any(job.options.unique_key for job in jobs):
        limited = any(job.keys is not None or job.requires is not None for job in jobs)
        rows = yield Statement(_sql["enqueue_limited" if limited else "enqueue"], {"jobs": payload})
        return [
            EnqueuedJob(job_id, job.task) for job_id, job in zip(sorted(_ids.decode(rows[0][0])), jobs, strict=True)
        ]
    rows = yield Statement(_sql["enqueue_keyed"], {"jobs": payload})
    accepted = [
        EnqueuedJob(result["id"], job.task, result["created"])
        for result, job in zip(_results.decode(rows[0][0]), jobs, strict=True)
    ]
    for wanted, job in zip(jobs, accepted, strict=True):
        if not job.created and wanted.options.on_conflict == "raise":
            raise DuplicateJob(
                f"task {wanted.task}: job {job.id} has the unique key {wanted.options.unique_key!r} already", job.id
            )
    return accepted


# For the application's own sync connection: the same statement without the overhead of a driver cursor.
ENQUEUE_ONE = PreparedStatement(_sql["enqueue_one"])


def one_job_values(job: NewJob) -> list[bytes | None]:
    """Return the values of ENQUEUE_ONE, in the order of its parameters."""
    options = job.options
    queue, priority = cast(str, options.queue), cast(int, options.priority)
    values = {"task": job.task.encode(), "args": job.args, "queue": queue.encode(), "priority": b"%d" % priority}
    return [values[name] for name in ENQUEUE_ONE.names]


def _enqueue_alike(first: NewJob, jobs: Sequence[NewJob]) -> Operation[list[EnqueuedJob]]:
    """Enqueue jobs that differ only in their arguments."""
    options = first.options
    shared = {"task": first.task, "queue": options.queue, "priority": options.priority}
    if len(jobs) == 1 and options.is_plain:
        rows = yield Statement(_sql["enqueue_one"], {**shared, "args": first.args.decode()})
        return [EnqueuedJob(rows[0][0], first.task)]
    payload = b"[" + b",".join([job.args for job in jobs]) + b"]"
    rest = {
        "run_at": options.run_at,
        "delay": seconds(options.delay or 0),
        "tenant": options.tenant,
        "expires_at": options.expires_at,
        "tags": list(options.tags) or None,
        "trace": options.trace,
        "group_id": options.group_id,
    }
    rows = yield Statement(_sql["enqueue_alike"], {**shared, **rest, "args": payload.decode()})
    return [EnqueuedJob(job_id, first.task) for job_id in sorted(_ids.decode(rows[0][0]))]


class ReadyIndex(NamedTuple):
    """The last ready_seq drawn, and the size in bytes of the index of ready jobs."""

    head: int
    size: int


class ClaimResult(NamedTuple):
    """The result of a claim of plain jobs, and what the worker has to do next.

    `lane_queues`: queues with lanes that have work and are not blocked. `limited_queues`: queues with own limits.
    `has_wakes`: there are lanes to wake. `has_due`: a limiter is due. `limits_changed_at`: when a limit was last
    changed. `paused`: kind and name of each pause.
    """

    jobs: list[ClaimedJob]
    lane_queues: frozenset[str] = frozenset()
    limited_queues: frozenset[str] = frozenset()
    has_wakes: bool = False
    has_due: bool = False
    limits_changed_at: datetime | None = None
    ready: ReadyIndex = ReadyIndex(0, 0)
    paused: frozenset[tuple[str, str]] = frozenset()


def claim(
    session: int,
    tasks: Collection[str],
    queues: Sequence[Mapping[str, Any]],
    wakes: int = 0,
    served: Collection[str] = (),
) -> Operation[ClaimResult]:
    """Claim ready jobs. `queues`: objects with queue, slots (free slots) and floors (priority, floor, ceiling).

    `wakes`: the lowest id of the wake-ups to check. `served`: all queues of the worker.
    """
    rows = yield Statement(
        _sql["claim"],
        {
            "session": session,
            "tasks": list(tasks),
            "queues": encoder.encode(queues).decode(),
            "wakes": wakes,
            "served": list(served),
        },
    )
    jobs, lane_queues, limited_queues, has_wakes, has_due, changed_at, head, index_bytes, paused = rows[0]
    return ClaimResult(
        decode_claimed(jobs),
        frozenset(lane_queues or ()),
        frozenset(limited_queues or ()),
        bool(has_wakes),
        bool(has_due),
        changed_at,
        ReadyIndex(head, index_bytes),
        frozenset((kind, name) for kind, name in paused or ()),
    )


def ready_index() -> Operation[ReadyIndex]:
    """Return the state of the index of ready jobs, which a claim also returns; for the first claim of a worker."""
    rows = yield Statement(_sql["ready_index"])
    return ReadyIndex(*rows[0])


def promote(look_back: float = EVERYTHING, until: float = 0.0) -> Operation[int]:
    """Make scheduled jobs ready that became due between `look_back` and `until` seconds ago; return how many.

    At most a thousand per call.
    """
    rows = yield Statement(_sql["promote"], {"look_back": look_back, "until": until})
    return int(rows[0][0])


def release_unlisted(session: int, held: Collection[int], older_than: float) -> Operation[int]:
    """Release jobs that belong to the session in the database but not in its process: their claim's reply was lost."""
    rows = yield Statement(_sql["release_unlisted"], {"session": session, "held": list(held), "older_than": older_than})
    return int(rows[0][0])


def cancel(ids: Collection[int], reason: str) -> Operation[tuple[list[int], list[int]]]:
    """Cancel jobs; return the ids of those that ended at once, and of running ones with a requested cancel."""
    rows = yield Statement(_sql["cancel"], {"ids": sorted(ids), "reason": reason})
    yield from end_links(_links.decode(rows[0][4]), "cancelled")
    return _ids.decode(rows[0][0]), _ids.decode(rows[0][1])


def delete(ids: Collection[int], ended_by: datetime | None = None) -> Operation[list[int]]:
    """Delete waiting and finished jobs, but none that ended after `ended_by`; running jobs are not touched."""
    rows = yield Statement(_sql["delete"], {"ids": sorted(ids), "ended_by": ended_by})
    yield from end_links(_links.decode(rows[0][1]), "cancelled")
    return _ids.decode(rows[0][0])


def requeue(
    ids: Collection[int], spacing: float = 0.0, start: float = 0.0, ended_by: datetime | None = None
) -> Operation[list[int]]:
    """Requeue finished jobs under their own ids, `spacing` seconds apart, the first in `start` seconds.

    None that ended after `ended_by`.
    """
    given = {"ids": sorted(ids), "spacing": spacing, "start": start, "ended_by": ended_by}
    rows = yield Statement(_sql["requeue"], given)
    return _ids.decode(rows[0][0])


def key_conflicts(ids: Collection[int]) -> Operation[list[KeyConflict]]:
    """Return those of the finished jobs whose unique key a live job holds."""
    if not ids:
        return []
    rows = yield Statement(_sql["key_holders"], {"ids": sorted(ids)})
    return [KeyConflict(*row) for row in rows]
