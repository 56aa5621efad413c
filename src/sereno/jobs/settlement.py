"""Settles attempts: writes batches of outcomes, each fenced by (job, attempt, session)."""

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any, Literal

import msgspec

from sereno.database.json_values import encoder
from sereno.database.statement import Operation, Statement, array, queries
from sereno.errors import LeaseLost
from sereno.jobs.attempt import Settlement
from sereno.jobs.chunks import ChunkBatch
from sereno.jobs.job_stream import write_chunks

_sql = queries("jobs/settlement")
_ids = msgspec.json.Decoder(list[int])
_object = msgspec.json.Decoder(dict[str, Any])

Way = Literal["succeed", "forget", "bury", "reschedule"]


class SettleResult(msgspec.Struct, gc=False):
    """One attempt with its outcome. `began`: when it started, in seconds after its claim.

    `fingerprint`: of its failure, if it failed. `side_rows`: this or an earlier attempt may have written steps or
    progress, which are deleted with the job. `chunks`: emitted and not stored yet; only with `side_rows`.
    """

    id: int
    attempt: int
    began: float
    settlement: Settlement
    keep_history: bool = True
    fingerprint: str | None = None
    side_rows: bool = False
    chunks: Sequence[ChunkBatch] = ()

    @property
    def way(self) -> Way:
        match self.settlement.outcome:
            case "succeeded":
                return "succeed" if self.keep_history else "forget"
            case "dead" | "cancelled":
                return "bury"
            case _:
                return "reschedule"

    def as_row(self) -> dict[str, Any]:
        row: dict[str, Any] = {"id": self.id, "attempt": self.attempt, "began": self.began}
        settlement = self.settlement
        if settlement.outcome == "succeeded":
            return row
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


def settle(way: Way, session: int, batch: Sequence[SettleResult]) -> Operation[set[int]]:
    """Write one kind of outcome for many attempts; return the ids of the jobs that the session still held.

    With `side_rows`, two statements run in one transaction: only the second one sees what an attempt wrote while the
    first one waited for the lock on the job's row. Chunks are stored before both.
    """
    with_side_rows = [item for item in batch if item.side_rows]
    if with_side_rows and (unstored := [chunks for item in with_side_rows for chunks in item.chunks]):
        yield from write_chunks(session, unstored, [item.id for item in batch])
    applied = yield from _settle(way, session, batch)
    if ended := [item.id for item in with_side_rows if item.id in applied]:
        yield from forget_side_rows(ended)
    return applied


def _settle(way: Way, session: int, batch: Sequence[SettleResult]) -> Operation[set[int]]:
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
        return done
    rows = yield Statement(
        _sql[way],
        {
            "session": session,
            "ids": [item.id for item in ordered],
            "items": encoder.encode([item.as_row() for item in ordered]).decode(),
        },
    )
    return set(_ids.decode(rows[0][0]))


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


def steps(job_id: int) -> Operation[Mapping[str, Any]]:
    """Return the stored results of a job's steps, by name."""
    rows = yield Statement(_sql["steps"], {"id": job_id})
    return _object.decode(rows[0][0])


def keep_step(session: int, job_id: int, attempt: int, name: str, result: bytes) -> Operation[None]:
    """Store the result of a step, or raise LeaseLost."""
    rows = yield Statement(
        _sql["keep_step"],
        {"session": session, "id": job_id, "attempt": attempt, "name": name, "result": result.decode()},
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
    """Delete the steps and the progress of these jobs."""
    yield Statement(_sql["forget_side_rows"], {"ids": list(ids)})
