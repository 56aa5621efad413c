"""Waiting for facts, never for durations; queries and clock changes that many tests share."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import psycopg

T = TypeVar("T")

# Seconds. Long enough for a busy machine: only a defect takes this long.
TIMEOUT = 60.0
# Seconds between two checks.
SHORTEST_PAUSE, LONGEST_PAUSE = 0.01, 0.25
# The pause is this multiple of the duration of the last check, so that checks are not most of the work.
PAUSE_FACTOR = 3


def until(fact: Callable[[], T], timeout: float = TIMEOUT) -> T:
    """Return the first true result of `fact`."""
    began = time.monotonic()
    end = began + timeout
    while not (result := fact()):
        now = time.monotonic()
        if now > end:
            raise AssertionError(f"did not become true within {timeout} s")
        time.sleep(_pause(now - began))
        began = time.monotonic()
    return result


def until_at_rest(fact: Callable[[], T], measure: Callable[[], object], standstill: float = 2 * TIMEOUT) -> T:
    """Return the first true result, however long it takes; fail if `measure` is unchanged for `standstill` seconds."""
    seen, since = measure(), time.monotonic()
    while not (result := fact()):
        began = time.monotonic()
        if (now_seen := measure()) != seen:
            seen, since = now_seen, began
        elif began - since > standstill:
            raise AssertionError(f"not true, and nothing has changed for {standstill} s: {seen!r}")
        time.sleep(_pause(time.monotonic() - began))
    return result


async def auntil(fact: Callable[[], T], timeout: float = TIMEOUT) -> T:
    """Return the first true result of `fact`; the event loop runs meanwhile."""
    began = time.monotonic()
    end = began + timeout
    while not (result := fact()):
        now = time.monotonic()
        if now > end:
            raise AssertionError(f"did not become true within {timeout} s")
        await asyncio.sleep(_pause(now - began))
        began = time.monotonic()
    return result


def _pause(took: float) -> float:
    return max(SHORTEST_PAUSE, min(LONGEST_PAUSE, PAUSE_FACTOR * took))


def one(connection: psycopg.Connection, query: str, *params: Any) -> Any:
    """Return the first column of the first row, or None."""
    row = connection.execute(query.encode(), params).fetchone()
    return None if row is None else row[0]


def state(connection: psycopg.Connection, job_id: int) -> str | None:
    """Return the state of a job, live or finished; None if it does not exist."""
    found: str | None = one(
        connection,
        "select state from sereno.jobs where id = %s union all select state from sereno.history where id = %s",
        job_id,
        job_id,
    )
    return found


def advance(connection: psycopg.Connection, seconds: float) -> None:
    """Advance the clock of the database, and the leases of live sessions with it."""
    with connection.transaction():
        connection.execute(
            "update sereno.sessions set lease_until = lease_until + make_interval(secs => %s) where state = 'alive'",
            [seconds],
        )
        connection.execute(
            "insert into sereno.clock (ahead) values (make_interval(secs => %s)) "
            "on conflict (one_row) do update set ahead = clock.ahead + excluded.ahead",
            [seconds],
        )


def ten_past(connection: psycopg.Connection) -> None:
    """Advance to ten minutes past the next full hour, so that no full hour passes during the test."""
    advance(connection, 4200 - one(connection, "select sereno.now()").timestamp() % 3600)


def is_gone(pid: int) -> bool:
    """Return whether the process has ended. A zombie has: a container without init may never reap it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
