"""Settles attempts: writes batches of outcomes, each fenced by (job, attempt, session)."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Any, Literal, NamedTuple

import msgspec
import psycopg

from sereno.database.json_values import encoder
from sereno.database.statement import Operation, Statement, array, queries
from sereno.errors import InvalidArguments, LeaseLost
from sereno.jobs import signals
from sereno.jobs.attempt import Settlement
from sereno.jobs.chunks import ChunkBatch
from sereno.jobs.job_stream import write_chunks

_sql = queries("jobs/settlement")
_ids = msgspec.json.Decoder(list[int])


class StoredStep(NamedTuple):
    """The result of a step, its position among the handler's steps, and the steps that had none when it was stored."""

    result: Any
    position: int | None = None
    pending: Sequence[str] = ()


_steps = msgspec.json.Decoder(dict[str, tuple[Any, int | None, list[str] | None]])

Way = Literal["succeed", "succeed_with_results", "forget", "bury", "reschedule"]


class SettleResult(msgspec.Struct, gc=False):
    """One attempt with its outcome. `began`: when it started, in seconds after its claim.

    `fingerprint`: of its failure, if it failed. `side_rows`: this or an earlier attempt may have written steps or
    progress, which are deleted with the job. `link`: its group, or 0 if other jobs wait for it; None for most jobs.
    `chunks`: emitted and not stored yet; only with `side_rows`.
    """

    id: int
    attempt: int
    began: float
    settlement: Settlement
    keep_history: bool = True
    fingerprint: str | None = None
    side_rows: bool = False
    link: int | None = None
    chunks: Sequence[ChunkBatch] = ()
    # Set by `settle`: it was to be tried again, and a requested cancel ended it instead; other jobs became ready.
    was_cancelled: bool = False
    has_continued: bool = False

    @property
    def has_more_rows(self) -> bool:
        """Return whether other rows than that of the job belong to it: steps, progress, or jobs that wait."""
        return self.side_rows or self.link is not None or bool(self.settlement.wait_for)

    @property
    def way(self) -> Way:
        match self.settlement.outcome:
            case "succeeded":
                if not self.keep_history:
                    return "forget"
                has_more = self.settlement.result is not None or self.settlement.reason is not None
                return "succeed_with_results" if has_more else "succeed"
            case "dead" | "cancelled":
                return "bury"
            case _:
                return "reschedule"

    def as_row(self) -> dict[str, Any]:
        row: dict[str, Any] = {"id": self.id, "attempt": self.attempt, "began": self.began}
        settlement = self.settlement
        if settlement.outcome == "succeeded":
            result = settlement.result
            return row | {"result": None if result is None else msgspec.Raw(result), "reason": settlement.reason}
        error = settlement.error
        row |= {
            "outcome": settlement.outcome,
            "reason": settlement.reason,
            "error_type": None if error is None else error.kind,
            "error_message": None if error is None else error.message,
            "traceback": None if error is None else error.traceback,
            "fingerprint": self.fingerprint,
        }
        if self.way == "bury":
            return row | {"failed": settlement.failed, "crashed": settlement.crashed}
        return row | {"delay": settlement.delay, "until": settlement.until, "started": settlement.started}


_id = attrgetter("id")


def settle(way: Way, session: int, batch: Sequence[SettleResult], *, claims_next: bool = False) -> Operation[set[int]]:
    """Write one kind of outcome for many attempts; return the ids of the jobs that the session still held.

    With `side_rows`, several statements run in one transaction: only the later ones see what an attempt wrote while
    the first one waited for the lock on the job's row. Chunks are stored before.
    `claims_next`: the session claims at once if jobs became ready (`has_continued`), so it is not notified of them.
    """
    with_side_rows = [item for item in batch if item.side_rows]
    if with_side_rows and (unstored := [chunks for item in with_side_rows for chunks in item.chunks]):
        yield from write_chunks(session, unstored, [item.id for item in batch])
    applied, stopped = yield from _settle(way, session, batch)
    if way == "reschedule":
        waits = [
            (item.id, item.attempt, item.settlement.signal)
            for item in batch
            if item.settlement.signal is not None and item.id in applied
        ]
        if waits:
            yield from signals.arm(waits)
    if ended := [item.id for item in with_side_rows if item.id in applied]:
        yield from forget_side_rows(ended)
    if waiting := [
        item for item in batch if item.settlement.wait_for and item.id in applied and item.id not in stopped
    ]:
        calls = [{"id": item.id, "after": item.settlement.wait_for, "calls": True} for item in waiting]
        yield from make_waiting(sorted(calls, key=itemgetter("id")))
    if linked := [item for item in batch if item.link is not None and item.id in applied]:
        settled_by = session if claims_next else None
        linked[0].has_continued = yield from _end_links(way, linked, stopped, settled_by)
    return applied


def _end_links(
    way: Way, linked: Sequence[SettleResult], stopped: Collection[int], settled_by: int | None
) -> Operation[bool]:
    """Continue what waited for these jobs, if they have ended; return whether jobs became ready."""
    by_state: dict[str, Sequence[SettleResult]]
    match way:
        case "reschedule":
            by_state = {"cancelled": [item for item in linked if item.id in stopped]}
        case "bury":
            by_state = {
                state: [item for item in linked if item.settlement.outcome == state] for state in ("cancelled", "dead")
            }
        case _:
            by_state = {"succeeded": linked}
    continued = False
    for state, items in by_state.items():
        if (yield from end_links([(item.id, item.link or 0) for item in items], state, settled_by=settled_by)):
            continued = True
    return continued


def end_links(linked: Collection[tuple[int, int]], state: str, *, settled_by: int | None = None) -> Operation[bool]:
    """Continue what waited for jobs that have just ended in this state; return whether jobs became ready.

    `linked`: their ids, and their groups (0: none). `settled_by`: the session that has settled them; it is not
    notified, because it claims at once if jobs became ready.
    """
    if not linked:
        return False
    ids, groups = zip(*sorted(linked), strict=True)
    if state == "succeeded" and 0 not in groups and (yield from _count_members(ids, groups)):
        return False
    given = {"ids": array(ids), "groups": array(groups), "state": state, "count": len(ids), "settled_by": settled_by}
    rows = yield Statement(_sql["end_links"], given)
    return bool(rows[0][0])


def _count_members(ids: Sequence[int], groups: Sequence[int]) -> Operation[bool]:
    """Count successes of jobs of groups, added up here; return False if they may continue a job: nothing is counted."""
    # The part of a job is that of sereno.group_part. With another one no row would fit, and nothing would be counted.
    found = Counter([(group, job_id >> 10 & 15) for job_id, group in zip(ids, groups, strict=True)])
    given = {
        "ids": array(ids),
        "groups": array([group for group, _ in found]),
        "parts": array([part for _, part in found]),
        "numbers": array(list(found.values())),
    }
    rows = yield Statement(_sql["count_members"], given)
    return bool(rows[0][0])


def make_waiting(jobs: Sequence[Mapping[str, Any]]) -> Operation[None]:
    """Let jobs, which this transaction has written, wait for others: the fields id, after and on_dead.

    `calls`: the others are jobs that it has called. It is woken however they end.
    """
    try:
        yield Statement(_sql["make_waiting"], {"jobs": encoder.encode(jobs).decode()})
    except psycopg.errors.InvalidParameterValue as error:
        raise InvalidArguments(f"{error.diag.message_primary}. {error.diag.message_hint or ''}".rstrip()) from None


def check_links() -> Operation[bool]:
    """Check dependencies that a settlement may not have known of; return whether there are any."""
    rows = yield Statement(_sql["check_links"])
    return bool(rows[0][0])


def _settle(way: Way, session: int, batch: Sequence[SettleResult]) -> Operation[tuple[set[int], Collection[int]]]:
    """Return the jobs that the session still held, and those of them that were cancelled instead of tried again."""
    ordered = sorted(batch, key=_id)
    if way in ("succeed", "forget"):
        numbers = {
            "ids": array([item.id for item in ordered]),
            "attempts": array([item.attempt for item in ordered]),
            "began": array([item.began for item in ordered]),
        }
        rows = yield Statement(_sql[way], {"session": session, "count": len(ordered), **numbers})
        done = {item.id for item in ordered} if rows[0][0] is None else set(_ids.decode(rows[0][0]))
        if way == "forget" and (tried := [item.id for item in ordered if item.attempt > 1 and item.id in done]):
            yield Statement(_sql["forget_attempts"], {"ids": tried})
        return done, ()
    rows = yield Statement(
        _sql[way],
        {
            "session": session,
            "ids": [item.id for item in ordered],
            "items": encoder.encode([item.as_row() for item in ordered]).decode(),
        },
    )
    stopped = _ids.decode(rows[0][3]) if way == "reschedule" else ()
    for item in ordered if stopped else ():
        item.was_cancelled = item.id in stopped
    return set(_ids.decode(rows[0][0])), stopped


def settled_before(session: int, batch: Sequence[SettleResult]) -> Operation[set[int]]:
    """Return the jobs whose settlement was not applied now because an earlier try, whose reply was lost, applied it."""
    rows = yield Statement(
        _sql["settled_before"],
        {
            "session": session,
            "ids": [item.id for item in batch],
            "items": encoder.encode(
                [{"id": item.id, "attempt": item.attempt, "outcome": item.settlement.outcome} for item in batch]
            ).decode(),
        },
    )
    return set(_ids.decode(rows[0][0]))


def steps(job_id: int) -> Operation[Mapping[str, StoredStep]]:
    """Return the stored steps of a job, by name."""
    rows = yield Statement(_sql["steps"], {"id": job_id})
    found = _steps.decode(rows[0][0])
    return {name: StoredStep(result, position, pending or ()) for name, (result, position, pending) in found.items()}


def keep_step(
    session: int,
    job_id: int,
    attempt: int,
    name: str,
    result: bytes,
    *,
    position: int | None = None,
    pending: Sequence[str] = (),
) -> Operation[None]:
    """Store the result of a step, or raise LeaseLost."""
    place = {"position": position, "pending": list(pending) or None}
    rows = yield Statement(
        _sql["keep_step"],
        {"session": session, "id": job_id, "attempt": attempt, "name": name, "result": result.decode(), **place},
    )
    if not rows:
        raise LeaseLost(f"job {job_id}: attempt {attempt} has lost its lease; step {name!r} was not stored")


def report_progress(session: int, job_id: int, attempt: int, fraction: float, note: str | None) -> Operation[bool]:
    rows = yield Statement(
        _sql["report_progress"],
        {"session": session, "id": job_id, "attempt": attempt, "fraction": fraction, "note": note},
    )
    return bool(rows)


def forget_side_rows(ids: Sequence[int]) -> Operation[None]:
    """Delete the steps, the progress and the waits for signals of these jobs."""
    yield Statement(_sql["forget_side_rows"], {"ids": list(ids)})
