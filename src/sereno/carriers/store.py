"""Operations on jobs that leave PostgreSQL for a carrier, and on jobs that come back."""

import base64
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from sereno.database.json_values import encoder
from sereno.database.statement import Operation, Statement, queries

_sql = queries("carriers/store")
_ids = msgspec.json.Decoder(list[int])
_shares = msgspec.json.Decoder(dict[str, int])

# The task of a message that cannot be decoded.
UNDECODABLE = "sereno.undecodable"
# Ids in a block of `next_ids`.
BLOCK = 1_000_000
# Seconds for which it is known which jobs were stored: longer than a worker trusts a message that it could not report.
KEEP_STORED = 300.0
# Messages of dead sessions that one call takes over at most.
MOST_BATCHES = 20


class RelayBatch(NamedTuple):
    """A message to publish. Its id is that of its row, so that every worker publishes it under the same one."""

    id: int
    queue: str
    body: bytes


def next_ids() -> Operation[range]:
    """Return a block of ids for jobs that are published directly."""
    rows = yield Statement(_sql["next_ids"])
    return range(rows[0][0], rows[0][0] + BLOCK)


def shares() -> Operation[Mapping[str, int]]:
    """Return the share of new jobs that the carrier gets, in per cent, of the queues for which it was set."""
    rows = yield Statement(_sql["shares"])
    return _shares.decode(rows[0][0])


def set_share(queue: str, share: int) -> Operation[None]:
    yield Statement(_sql["set_share"], {"queue": queue, "share": share})


def store(session: int, jobs: Sequence[Mapping[str, Any]]) -> Operation[set[int]]:
    """Store carried jobs as running jobs of the session; return those that belong to it. The others ran elsewhere."""
    rows = yield Statement(_sql["store"], {"session": session, "jobs": encoder.encode(jobs).decode()})
    return set(_ids.decode(rows[0][0]))


def record(session: int, jobs: Sequence[Mapping[str, Any]]) -> Operation[set[int]]:
    """Store successes of carried jobs in the history; return those that this session has recorded."""
    rows = yield Statement(_sql["record"], {"session": session, "jobs": encoder.encode(jobs).decode()})
    return set(_ids.decode(rows[0][0]))


def park(
    session: int,
    queue: str,
    position: int,
    body: bytes,
    reason: str,
    task: str = UNDECODABLE,
    job_id: int | None = None,
) -> Operation[None]:
    """Store what cannot become a job as a dead job; its bytes are in the arguments, as base64."""
    args = {"message": base64.b64encode(body).decode()}
    values = {"queue": queue, "position": position, "session": session, "reason": reason, "task": task, "job": job_id}
    yield Statement(_sql["park"], {**values, "args": encoder.encode(args).decode()})


def stored(ids: Collection[int]) -> Operation[set[int]]:
    """Return those of the jobs that are, or were, stored in PostgreSQL."""
    rows = yield Statement(_sql["stored"], {"ids": list(ids)})
    return set(_ids.decode(rows[0][0]))


def forget_stored(queue: str, position: int) -> Operation[None]:
    """Delete what is known of the jobs of acknowledged messages that were stored long ago: none is delivered again."""
    yield Statement(_sql["forget_stored"], {"queue": queue, "position": position, "kept": KEEP_STORED})


def carry(session: int, queue: str, ids: Collection[int]) -> Operation[tuple[RelayBatch | None, set[int]]]:
    """Move claimed jobs into a message; return it, and the jobs that have to run from here.

    What is neither is no longer the session's: it lost the job, or an earlier call whose reply was lost has moved it.
    """
    rows = yield Statement(_sql["carry"], {"session": session, "queue": queue, "ids": sorted(ids)})
    number, body, kept = rows[0]
    batch = None if number is None else RelayBatch(number, queue, body.encode())
    return batch, set(_ids.decode(kept))


def published(batch: RelayBatch, position: int, *, is_repeated: bool) -> Operation[None]:
    """Delete a message that the carrier has stored at `position`; `is_repeated`: it may have stored it before."""
    values = {"id": batch.id, "queue": batch.queue, "position": position, "repeated": is_repeated}
    yield Statement(_sql["published"], values)


def take_batches(session: int, queues: Collection[str]) -> Operation[list[RelayBatch]]:
    """Return messages that this session or a dead one has not published; they belong to this session now."""
    rows = yield Statement(_sql["take_batches"], {"session": session, "queues": list(queues), "most": MOST_BATCHES})
    return [RelayBatch(number, queue, body.encode()) for number, queue, body in sorted(rows)]


def return_batches(queue: str, batch: int | None = None) -> Operation[int]:
    """Make the jobs of unpublished messages, all or one, ready in PostgreSQL; return how many."""
    rows = yield Statement(_sql["return_batches"], {"queue": queue, "batch": batch})
    return int(rows[0][0])


def unpublished(session: int, batches: Collection[int]) -> Operation[set[int]]:
    """Return those of the messages that the session still has to publish."""
    rows = yield Statement(_sql["unpublished"], {"session": session, "ids": list(batches)})
    return set(_ids.decode(rows[0][0]))
