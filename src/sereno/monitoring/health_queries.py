"""Queries of `sereno doctor`; they return facts, the doctor judges them."""

from dataclasses import dataclass
from typing import Any

from sereno.database.statement import Operation, Row, Statement, queries

_sql = queries("monitoring/health_queries")


@dataclass(frozen=True, slots=True)
class ServerHealth:
    """The server's own report; `moment` is its clock in seconds since the epoch."""

    number: int
    version: str
    synchronous_commit: str
    moment: float
    notifications: float


@dataclass(frozen=True, slots=True)
class LockHolder:
    """A transaction or slot that keeps vacuum from removing old rows."""

    kind: str
    name: str
    detail: str
    seconds: float | None
    transactions: int


def server() -> Operation[ServerHealth]:
    rows = yield Statement(_sql["server"])
    return ServerHealth(*rows[0])


def applied() -> Operation[dict[int, str] | None]:
    """Return the checksum of each applied migration by number; None when there is no schema."""
    rows = yield Statement(_sql["has_schema"])
    if not rows[0][0]:
        return None
    rows = yield Statement(_sql["applied"])
    return {row[0]: row[1] for row in rows}


def clock_ahead() -> Operation[float | None]:
    """Return the seconds by which the clock was moved, or None."""
    rows = yield Statement(_sql["clock"])
    return rows[0][0] if rows else None


def live_workers() -> Operation[tuple[int, int]]:
    """Return the number of live workers, and of sessions that expired and were not declared dead."""
    rows = yield Statement(_sql["live_workers"])
    return rows[0][0], rows[0][1]


def connections() -> Operation[tuple[int, int, int]]:
    """Return the connections available to clients, the live worker processes, and their slots."""
    rows = yield Statement(_sql["connections"])
    return rows[0][0], rows[0][1], rows[0][2]


def unserved_queues() -> Operation[list[str]]:
    rows = yield Statement(_sql["unserved_queues"])
    return [row[0] for row in rows]


def unknown_tasks() -> Operation[list[tuple[str, str]]]:
    """Return (task, queue) pairs."""
    rows: list[Any] = yield Statement(_sql["unknown_tasks"])
    return rows


def pinned() -> Operation[list[LockHolder]]:
    rows = yield Statement(_sql["pinned"])
    return [LockHolder(*row) for row in rows]


def dead_tuples() -> Operation[tuple[int, int]]:
    """Return the dead and live rows of the jobs table."""
    rows = yield Statement(_sql["dead_tuples"])
    return (rows[0][0], rows[0][1]) if rows else (0, 0)


def partitions() -> Operation[Row]:
    """Return whether today's and tomorrow's partitions exist, and the number of rows in the default one."""
    rows = yield Statement(_sql["partitions"])
    return rows[0]


@dataclass(frozen=True, slots=True)
class ScheduleHealth:
    """Whether schedules are due, whether a scheduler leads, its delay in seconds, and schedules that do not run.

    `refused`: declarations of the code that could not be stored, each with its service and the problem.
    """

    any_due: bool
    led: bool
    behind: float | None
    parked: list[str]
    failed: list[str]
    refused: list[str]


def schedules() -> Operation[ScheduleHealth]:
    rows = yield Statement(_sql["schedules"])
    return ScheduleHealth(*rows[0])


@dataclass(frozen=True, slots=True)
class LimitHealth:
    """Awaited limits (unknown, or closed for long), dead jobs that block an order, and unread wake-ups."""

    unknown: list[str]
    closed: list[str]
    blocking: list[int]
    wakes: int


def limits(closed: float, wakes: int) -> Operation[LimitHealth]:
    """`closed`: seconds for which a limit must be closed to count. `wakes`: bound of the count of wake-ups."""
    rows = yield Statement(_sql["limits"], {"closed": closed, "wakes": wakes})
    return LimitHealth(*rows[0])
