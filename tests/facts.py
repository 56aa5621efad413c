"""Tests wait for facts, never for durations."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import psycopg

T = TypeVar("T")

# Long enough for a busy machine; only a broken promise ever takes this long.
PATIENCE = 30.0
# Seconds between two looks. Looking must not be most of the work: after a slow look the pause is so many times longer.
SHORTEST_PAUSE, LONGEST_PAUSE = 0.01, 0.25
SLOWER = 3


def until(fact: Callable[[], T], patience: float = PATIENCE) -> T:
    """The first true answer."""
    began = time.monotonic()
    end = began + patience
    while not (answer := fact()):
        now = time.monotonic()
        if now > end:
            raise AssertionError(f"did not become true within {patience} s")
        time.sleep(_pause(now - began))
        began = time.monotonic()
    return answer


def until_at_rest(fact: Callable[[], T], measure: Callable[[], object], standstill: float = 2 * PATIENCE) -> T:
    """The first true answer, however long it takes: only a measure that does not change for this long is a failure."""
    seen, since = measure(), time.monotonic()
    while not (answer := fact()):
        began = time.monotonic()
        if (now_seen := measure()) != seen:
            seen, since = now_seen, began
        elif began - since > standstill:
            raise AssertionError(f"not true, and nothing has changed for {standstill} s: {seen!r}")
        time.sleep(_pause(time.monotonic() - began))
    return answer


async def auntil(fact: Callable[[], T], patience: float = PATIENCE) -> T:
    """`until` beside a running loop."""
    began = time.monotonic()
    end = began + patience
    while not (answer := fact()):
        now = time.monotonic()
        if now > end:
            raise AssertionError(f"did not become true within {patience} s")
        await asyncio.sleep(_pause(now - began))
        began = time.monotonic()
    return answer


def _pause(took: float) -> float:
    return max(SHORTEST_PAUSE, min(LONGEST_PAUSE, SLOWER * took))


def one(connection: psycopg.Connection, query: str, *params: Any) -> Any:
    """One value."""
    row = connection.execute(query.encode(), params).fetchone()
    return None if row is None else row[0]


def state(connection: psycopg.Connection, job_id: int) -> str | None:
    """Where a job is, live or finished."""
    found: str | None = one(
        connection,
        "select state from sereno.jobs where id = %s union all select state from sereno.history where id = %s",
        job_id,
        job_id,
    )
    return found


def advance(connection: psycopg.Connection, seconds: float) -> None:
    """Move the only clock that decides anything; the leases of living sessions move along."""
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
    """The next full hour, and ten minutes: another one does not come while a test runs."""
    advance(connection, 4200 - one(connection, "select sereno.now()").timestamp() % 3600)


def is_gone(pid: int) -> bool:
    """Also when nobody has asked for its exit code yet, as where the first process of a container is no init."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
