"""What the doctor looks at: facts, no judgement."""

from dataclasses import dataclass
from typing import Any

from sereno.database.statement import Operation, Row, Statement, queries

_sql = queries("monitoring/health_queries")


@dataclass(frozen=True, slots=True)
class Server:
    """The server as it says of itself; `moment` is its clock in seconds since the epoch."""

    number: int
    version: str
    synchronous_commit: str
    moment: float
    notifications: float


@dataclass(frozen=True, slots=True)
class LockHolder:
    """Something that keeps old rows from being cleaned."""

    kind: str
    name: str
    detail: str
    seconds: float | None
    transactions: int


def server() -> Operation[Server]:
    rows = yield Statement(_sql["server"])
    return Server(*rows[0])


def applied() -> Operation[dict[int, str] | None]:
    """Number and checksum of each migration; None when there is no schema."""
    rows = yield Statement(_sql["has_schema"])
    if not rows[0][0]:
        return None
    rows = yield Statement(_sql["applied"])
    return {row[0]: row[1] for row in rows}


def clock_ahead() -> Operation[float | None]:
    """Seconds by which somebody moved the clock."""
    rows = yield Statement(_sql["clock"])
    return rows[0][0] if rows else None


def live_workers() -> Operation[tuple[int, int]]:
    """Alive, and expired without a burial."""
    rows = yield Statement(_sql["live_workers"])
    return rows[0][0], rows[0][1]


def connections() -> Operation[tuple[int, int, int]]:
    """Connections that the server gives to clients, worker processes alive, and their slots."""
    rows = yield Statement(_sql["connections"])
    return rows[0][0], rows[0][1], rows[0][2]


def unserved_queues() -> Operation[list[str]]:
    rows = yield Statement(_sql["unserved_queues"])
    return [row[0] for row in rows]


def unknown_tasks() -> Operation[list[tuple[str, str]]]:
    """(task, queue) pairs."""
    rows: list[Any] = yield Statement(_sql["unknown_tasks"])
    return rows


def pinned() -> Operation[list[LockHolder]]:
    rows = yield Statement(_sql["pinned"])
    return [LockHolder(*row) for row in rows]


def dead_tuples() -> Operation[tuple[int, int]]:
    """Dead and live rows of the jobs table."""
    rows = yield Statement(_sql["dead_tuples"])
    return (rows[0][0], rows[0][1]) if rows else (0, 0)


def partitions() -> Operation[Row]:
    """Today's is there, tomorrow's is there, rows in the default one."""
    rows = yield Statement(_sql["partitions"])
    return rows[0]


@dataclass(frozen=True, slots=True)
class ScheduleHealth:
    """Anything to fire, anybody who keeps time, seconds behind, and keys that are out of the way.

    `refused`: declarations of the code that could not be written, each with its service and why.
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
    """Limits that somebody waits for (unknown, closed for long), dead letters that block, wake-ups that nobody read."""

    unknown: list[str]
    closed: list[str]
    blocking: list[int]
    wakes: int


def limits(closed: float, wakes: int) -> Operation[LimitHealth]:
    """`closed`: for more seconds than these. `wakes`: counted so far."""
    rows = yield Statement(_sql["limits"], {"closed": closed, "wakes": wakes})
    return LimitHealth(*rows[0])
