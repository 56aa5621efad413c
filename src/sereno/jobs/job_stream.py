"""The stream of a job: stores the chunks that a running job emits, and reads them with its state and progress."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from sereno.database.json_values import encoder
from sereno.database.statement import Operation, Statement, queries
from sereno.jobs.chunks import ChunkBatch
from sereno.jobs.lifecycle import FINAL

_sql = queries("jobs/job_stream")
_ids = msgspec.json.Decoder(list[int])
_batches = msgspec.json.Decoder(list[tuple[int, list[msgspec.Raw]]])
_chunks = msgspec.json.Decoder(list[msgspec.Raw])
_values = msgspec.json.Decoder(list[Any])

# Batches of one job that one query returns: at most a megabyte.
PAGE = 16
# Streams that one round of maintenance deletes.
FORGET_PAGE = 500


@dataclass(frozen=True, slots=True)
class Position:
    """The last chunk that a reader knows; number 0 before the first one."""

    attempt: int = 0
    number: int = 0


@dataclass(frozen=True, slots=True)
class Chunk:
    """One chunk with its number. `value`: its JSON."""

    number: int
    value: bytes


@dataclass(frozen=True, slots=True)
class JobView:
    """A job as the readers of its stream see it. `last`: the number of its last chunk.

    `chunks`: those after the position that was asked for, at most a page. `error`: why it ended, unless it succeeded.
    """

    state: str
    attempt: int
    tenant: str | None
    fraction: float | None
    note: str | None
    last: int
    chunks: Sequence[Chunk]
    error: str | None

    @property
    def is_ended(self) -> bool:
        return self.state in FINAL


def write_chunks(session: int, written: Sequence[ChunkBatch], ids: Sequence[int] = ()) -> Operation[set[int]]:
    """Store batches of chunks; return the jobs that the session still held.

    `ids`: further jobs that the transaction changes afterwards. All are locked here, in order, so that it cannot
    deadlock with one that locks the same jobs.
    """
    rows = yield Statement(
        _sql["write_chunks"],
        {
            "session": session,
            "ids": sorted({*ids, *(batch.id for batch in written)}),
            "items": encoder.encode(written).decode(),
        },
    )
    return set(_ids.decode(rows[0][0]))


def forget_ended(seconds: float) -> Operation[bool]:
    """Delete the chunks of jobs that ended this many seconds ago; return whether there may be more."""
    yield Statement(_sql["mark_ended"])
    rows = yield Statement(_sql["delete_ended"], {"seconds": seconds, "most": FORGET_PAGE})
    return len(rows) >= FORGET_PAGE


def job_views(wanted: Sequence[tuple[int, Position]]) -> Operation[list[JobView | None]]:
    """Return the jobs in the same order, each with its chunks after the position; None for an unknown one."""
    rows = yield Statement(
        _sql["job_views"],
        {
            "ids": [job for job, _ in wanted],
            "attempts": [position.attempt for _, position in wanted],
            "numbers": [position.number for _, position in wanted],
            "most": PAGE,
        },
    )
    return [_view(*row[1:]) for row in rows]


def chunks_after(job_id: int, position: Position) -> Operation[list[Chunk]]:
    """Return a page of chunks of the position's attempt; empty if a later attempt has deleted them."""
    rows = yield Statement(
        _sql["chunks_after"],
        {"id": job_id, "attempt": position.attempt, "number": position.number, "most": PAGE},
    )
    return _numbered([(number, _chunks.decode(raw)) for number, raw in rows], position.number)


def last_chunks(job_id: int, most: int) -> Operation[list[Any]]:
    """Return the newest values that the newest attempt has emitted, in order."""
    rows = yield Statement(_sql["last_chunks"], {"id": job_id, "most": most})
    values: list[Any] = []
    for _, raw in rows:
        values[:0] = _values.decode(raw)
        if len(values) >= most:
            break
    return values[-most:]


def _view(
    state: str | None,
    attempt: int | None,
    tenant: str | None,
    fraction: float | None,
    note: str | None,
    last: int,
    raw: str,
    error: str | None,
    is_stream: bool,
) -> JobView | None:
    if state is None:
        if not is_stream:
            return None
        # Only a success without history leaves its chunks and no row of the job.
        state = "succeeded"
    chunks = _numbered(_batches.decode(raw), 0)
    shown = error if state in ("dead", "cancelled") else None
    return JobView(state, attempt or 0, tenant, fraction, note, last, chunks, shown or None)


def _numbered(found: Sequence[tuple[int, Sequence[msgspec.Raw]]], after: int) -> list[Chunk]:
    """Return single chunks with their numbers. The first batch may begin before the position."""
    return [
        Chunk(number, bytes(value))
        for last, values in found
        for number, value in enumerate(values, last - len(values) + 1)
        if number > after
    ]
