"""The cursors of iterations: where the next attempt of a job continues."""

from typing import Any

import msgspec

from sereno.database.json_values import stored
from sereno.database.statement import Operation, Statement, queries
from sereno.errors import InvalidArguments, LeaseLost

_sql = queries("jobs/cursors")


class Cursor(msgspec.Struct, frozen=True):
    """How far an iteration is: the cursor of its source after the last committed item, and the count of items."""

    cursor: Any = None
    items: int = 0
    done: bool = False


_decoder = msgspec.json.Decoder(Cursor)


def read_cursor(job_id: int, name: str) -> Operation[Cursor]:
    """Return the stored cursor, or one at the beginning."""
    rows = yield Statement(_sql["read_cursor"], {"id": job_id, "name": name})
    return _decoder.decode(rows[0][0]) if rows else Cursor()


def keep_cursor(session: int, job_id: int, attempt: int, name: str, cursor: Cursor) -> Operation[None]:
    """Store a cursor, or raise LeaseLost."""
    raw = stored(cursor, lambda why: InvalidArguments(f"the cursor of iteration {name!r} cannot be stored: {why}"))
    params = {"session": session, "id": job_id, "attempt": attempt, "name": name, "result": raw.decode()}
    if not (yield Statement(_sql["keep_cursor"], params)):
        raise LeaseLost(f"job {job_id}: attempt {attempt} has lost its lease; iteration {name!r} was not advanced")


def has_advanced(job_id: int, attempt: int) -> Operation[bool]:
    """Return whether this attempt has moved a cursor."""
    return bool((yield Statement(_sql["has_advanced"], {"id": job_id, "attempt": attempt}))[0][0])
