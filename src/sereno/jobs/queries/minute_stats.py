"""Job statistics by minute: how many attempts ended, and how long they waited and ran."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from sereno.database.statement import Operation, Statement, queries
from sereno.database.vacuum import PAGE
from sereno.jobs.queries import error_groups
from sereno.telemetry.metrics import BUCKETS, MetricTally

_sql = queries("jobs/queries/minute_stats")

# Outcomes of attempts, and the column in which each is counted.
COLUMNS = {"succeeded": "succeeded", "retry": "retried", "crash": "retried", "dead": "dead", "cancelled": "cancelled"}

# Seconds. From LONG on, a step that is a multiple of TENS is read from the ten-minute table.
TENS, LONG = 600, 21_600


@dataclass(frozen=True, slots=True)
class AttemptCounts:
    """Ended attempts by outcome."""

    succeeded: int
    retried: int
    dead: int
    cancelled: int
    other: int


@dataclass(frozen=True, slots=True)
class AttemptStep(AttemptCounts):
    """Attempts that ended in a time range, and their run time in seconds."""

    at: datetime
    run_seconds: float


@dataclass(frozen=True, slots=True)
class AttemptFigures(AttemptStep):
    """A time range with its durations. `waits`, `runs`: counts by duration bucket."""

    waits: Sequence[int]
    runs: Sequence[int]


@dataclass(frozen=True, slots=True)
class TenantFigures:
    """A tenant's ended attempts, those that did not succeed, and their run time in seconds."""

    tenant: str
    ended: int
    failed: int
    seconds: float


_figures = msgspec.json.Decoder(AttemptFigures)
_tenants = msgspec.json.Decoder(TenantFigures)


def add(tally: MetricTally) -> Operation[None]:
    """Add a worker's ended attempts."""
    lines: dict[str, dict[str, Any]] = {}
    for pair, waits in tally.waits.items():
        queue, task = pair.split("\t", 1)
        runs = tally.runs[pair]
        lines[pair] = {
            **dict.fromkeys((*COLUMNS.values(), "other"), 0),
            "queue": queue,
            "task": task,
            "waits": waits.counts,
            "runs": runs.counts,
            "run_seconds": runs.total,
        }
    for key, count in tally.finished.items():
        pair, _, outcome = key.rpartition("\t")
        lines[pair][COLUMNS.get(outcome, "other")] += count
    if lines:
        values = {"lines": msgspec.json.encode(list(lines.values())).decode()}
        yield Statement(_sql["add"], values)
        yield Statement(_sql["add_tens"], values)
    if tally.tenants:
        tenants = [
            {"tenant": tenant, "ended": int(ended), "failed": int(failed), "seconds": seconds}
            for tenant, (ended, failed, seconds) in tally.tenants.items()
        ]
        yield Statement(_sql["add_tenants"], {"lines": msgspec.json.encode(tenants).decode()})


def forget() -> Operation[bool]:
    """Delete a page of expired statistics, error groups included; return whether there may be more."""
    more = (yield Statement(_sql["forget"], {"most": PAGE}))[0][0] >= PAGE
    more = (yield Statement(_sql["forget_deliveries"], {"most": PAGE}))[0][0] >= PAGE or more
    return (yield from error_groups.forget()) or more


def read(
    since: float, *, step: float = 60.0, queue: str | None = None, task: str | None = None
) -> Operation[list[AttemptFigures]]:
    """Return the figures of the last `since` seconds, oldest first."""
    query = _sql["read_tens" if step % TENS == 0 and since >= LONG else "read"]
    rows = yield Statement(query, {"since": since, "step": step, "queue": queue, "task": task})
    return [_figures.decode(row[0]) for row in rows]


def tenants(since: float, *, tenant: str | None = None, most: int = 100) -> Operation[list[TenantFigures]]:
    """Return the figures by tenant, busiest first."""
    rows = yield Statement(_sql["tenants"], {"since": since, "tenant": tenant, "most": most})
    return [_tenants.decode(row[0]) for row in rows]


def run_times(since: float) -> Operation[dict[str, float]]:
    """Return the average run time of an attempt in seconds, by queue."""
    rows = yield Statement(_sql["run_times"], {"since": since})
    return {row[0]: float(row[1]) for row in rows}


def quantile(counts: Sequence[int], share: float) -> float | None:
    """Return the duration below which that share lies, interpolated within its bucket; None without data."""
    total = sum(counts)
    if not total:
        return None
    wanted, seen, low = share * total, 0, 0.0
    for edge, count in zip(BUCKETS, counts, strict=False):
        if count and seen + count >= wanted:
            return low + (edge - low) * max(0.0, wanted - seen) / count
        seen, low = seen + count, edge
    return BUCKETS[-1]
