"""Stores limits: declared by code, overridden or closed by operators, throttled by jobs."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from sereno.database.json_values import encoder
from sereno.database.statement import Operation, Row, Statement, queries
from sereno.jobs.limits.limit import AnyLimit, Limit
from sereno.jobs.limits.rows import BOUND, LimiterRow, LimitRow
from sereno.jobs.task import Registry

_sql = queries("jobs/limits/store")
_names = msgspec.json.Decoder(list[str])
_pairs = msgspec.json.Decoder(list[tuple[str, str]])

# Escapes text for SQL LIKE patterns.
_EXACTLY = str.maketrans({special: f"\\{special}" for special in "\\%_"})
# Rows read per page of a sweep.
SWEEP = 5000
# Lanes and limiters have hashes as ids: any bigint.
FIRST, LAST = -(2**63), 2**63 - 1
# Queue and key that sort before all shares.
FIRST_SHARE = ("", "")


_row = msgspec.json.Decoder(LimitRow)
_limiter = msgspec.json.Decoder(LimiterRow)


def declare(registry: Registry, service: str) -> Operation[list[str]]:
    """Store declared limits and key rules; return the names of new and changed limits."""
    own = {str(limit.name): queue.name for queue in registry.declared_queues for limit in queue.own}
    limits = [_declared(limit, own.get(name)) for name, limit in sorted(registry.limits.items())]
    rules = [
        {
            "kind": "task",
            "name": task.name,
            "rule": task.rule.as_row() | _defaults(task.arguments.defaults, task.rule.words),
        }
        for task in registry
        if task.rule
    ]
    rules += [
        {"kind": "queue", "name": queue.name, "rule": queue.rule.as_row()}
        for queue in registry.declared_queues
        if queue.rule
    ]
    rows = yield Statement(
        _sql["declare"],
        {"limits": encoder.encode(limits).decode(), "rules": encoder.encode(rules).decode(), "service": service},
    )
    return _names.decode(rows[0][0])


def _declared(limit: AnyLimit, queue: str | None) -> dict[str, Any]:
    kind = "slots" if isinstance(limit, Limit) else "rate"
    return {
        "name": limit.name,
        "kind": kind,
        "queue": queue,
        "key": limit.key,
        "declared": limit.numbers,
    } | limit.numbers


def _defaults(defaults: Mapping[str, Any], words: set[str]) -> dict[str, Any]:
    used = {name: value for name, value in defaults.items() if name in words}
    return {"defaults": used} if used else {}


def change(
    name: str, kind: str, numbers: Mapping[str, Any], *, queue: str | None, actor: str, note: str | None
) -> Operation[bool]:
    """Override or create a limit; return False when one of this name has another kind."""
    given = dict.fromkeys(("slots", "units", "period", "burst")) | dict(numbers)
    rows = yield Statement(
        _sql["change"], {"name": name, "kind": kind, "queue": queue, "actor": actor, "note": note, **given}
    )
    return bool(rows[0][0])


def reset(name: str, actor: str) -> Operation[str | None]:
    """Return "declared" or "gone"; None when it is as declared already, or cannot be deleted because jobs use it."""
    rows = yield Statement(_sql["reset"], {"name": name, "actor": actor})
    return "declared" if rows[0][0] else "gone" if rows[0][1] else None


def find(name: str) -> Operation[LimitRow | None]:
    rows = yield Statement(_sql["list"], {"pattern": name.translate(_EXACTLY), "queue": None, "most": 1})
    return _row.decode(rows[0][0]) if rows else None


def list_limits(pattern: str | None = None, queue: str | None = None, most: int = BOUND) -> Operation[list[LimitRow]]:
    """Return limits by name. `pattern`: a name with * as wildcard; `queue`: limits of this whole queue."""
    like = None if pattern is None else pattern.translate(_EXACTLY).replace("*", "%")
    rows = yield Statement(_sql["list"], {"pattern": like, "queue": queue, "most": most})
    return [_row.decode(row[0]) for row in rows]


def names(most: int = BOUND) -> Operation[list[str]]:
    rows = yield Statement(_sql["names"], {"most": most})
    return [row[0] for row in rows]


def limiters(name: str, key: str | None = None, most: int = 20) -> Operation[list[LimiterRow]]:
    rows = yield Statement(_sql["limiters"], {"name": name, "key": key, "most": most})
    return [_limiter.decode(row[0]) for row in rows]


def close(name: str, key: str, seconds: float) -> Operation[datetime | None]:
    """Close a key; return until when it is closed, None when there is no such limit."""
    rows = yield Statement(_sql["close"], {"name": name, "key": key, "seconds": seconds})
    return rows[0][0] if rows else None


def reopen(name: str, key: str | None) -> Operation[int]:
    rows = yield Statement(_sql["open"], {"name": name, "key": key})
    return int(rows[0][0])


def throttle(
    session: int, job_id: int, attempt: int, seconds: float, name: str | None = None, key: str | None = None
) -> Operation[Sequence[tuple[str, str]]]:
    """Close the rate limits of a job that was throttled; return the closed limits and keys."""
    rows = yield Statement(
        _sql["throttle"],
        {"session": session, "id": job_id, "attempt": attempt, "seconds": seconds, "name": name, "key": key},
    )
    return _pairs.decode(rows[0][0])


def weigh(key: str, weight: float, actor: str) -> Operation[None]:
    yield Statement(_sql["weigh"], {"key": key, "weight": weight, "actor": actor})


def unweigh(key: str) -> Operation[bool]:
    rows = yield Statement(_sql["unweigh"], {"key": key})
    return bool(rows)


def weights(most: int = 1000) -> Operation[list[tuple[str, float, str | None, datetime]]]:
    rows = yield Statement(_sql["weights"], {"most": most})
    return [(row[0], row[1], row[2], row[3]) for row in rows]


def sweep_lanes(first: int = FIRST) -> Operation[int | None]:
    """Delete unused lanes of one page; return where the next page begins, None after the last."""
    return _next_page((yield Statement(_sql["sweep_lanes"], {"first": first, "most": SWEEP})))


def sweep_limiters(first: int = FIRST) -> Operation[int | None]:
    """Delete unused limiters of one page; return where the next page begins, None after the last."""
    return _next_page((yield Statement(_sql["sweep_limiters"], {"first": first, "most": SWEEP})))


def sweep_shares(after: tuple[str, str] = FIRST_SHARE) -> Operation[tuple[str, str] | None]:
    """Delete a page of shares whose lanes are gone; return where it ended, None after the last page."""
    rows = yield Statement(_sql["sweep_shares"], {"queue": after[0], "key": after[1], "most": SWEEP})
    return (rows[0][1], rows[0][2]) if rows and rows[0][0] == SWEEP else None


def _next_page(rows: list[Row]) -> int | None:
    count, last = rows[0]
    return last + 1 if count == SWEEP and last < LAST else None
