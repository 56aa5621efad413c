"""The runs that handlers logged, and measures of limits on them, independent of the database.

Only one fact comes from the database: when the attempt of a killed process was ended. Until then it held its
slot, although its handler was gone.
"""

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Protocol

import psycopg

# Nanoseconds in a second.
SECOND = 1_000_000_000


@dataclass(slots=True)
class Run:
    """One call of a handler, in nanoseconds of the clock that all processes of a machine share.

    `claimed`: when the database claimed it. `alone`: in an isolated process, after its first process was killed.
    """

    job: int
    attempt: int
    task: str
    queue: str
    key: str
    pid: int
    claimed: float
    alone: bool
    begin: int
    end: int = 0
    was_killed: bool = False


def read(log: Path, connection: psycopg.Connection) -> list[Run]:
    """Return every run of every process, ordered by its start."""
    runs: list[Run] = []
    for path in log.parent.glob(f"{log.name}.*.events"):
        open_runs: dict[tuple[int, int], Run] = {}
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            at, event = entry.pop("at"), entry.pop("event")
            name = (entry["job"], entry["attempt"])
            if event == "begin":
                assert name not in open_runs, f"{name} began twice in one process"
                open_runs[name] = Run(**entry, begin=at)
                runs.append(open_runs[name])
            else:
                open_runs.pop(name).end = at
        for run in open_runs.values():
            run.end, run.was_killed = _ended_at(connection, run), True
    return sorted(runs, key=lambda run: run.begin)


def _ended_at(connection: psycopg.Connection, run: Run) -> int:
    """Return when the database ended the attempt of a killed process, on the clock of the handlers."""
    row = connection.execute(
        "select extract(epoch from finished_at)::double precision from sereno.attempts "
        "where job_id = %(job)s and number = %(attempt)s "
        "union all select extract(epoch from finished_at)::double precision from sereno.history "
        "where id = %(job)s and attempt = %(attempt)s",
        {"job": run.job, "attempt": run.attempt},
    ).fetchone()
    assert row is not None, f"{run} was never ended by the database"
    return int(row[0] * SECOND) - (time.time_ns() - time.monotonic_ns())


class Interval(Protocol):
    """From its begin until its end, in nanoseconds."""

    @property
    def begin(self) -> int: ...
    @property
    def end(self) -> int: ...


def peak(runs: Iterable[Interval]) -> int:
    """Return the largest number of concurrent runs."""
    steps = sorted(step for run in runs for step in ((run.begin, 1), (run.end, -1)))
    most = now = 0
    for _, step in steps:
        now += step
        most = max(most, now)
    return most


def excess(moments: Iterable[float], per_second: float, burst: float) -> float:
    """Return by how many seconds starts were too early at most, over all windows at once, as a bucket is overdrawn.

    In any window there may be burst + per_second * window starts; that is the same as a bucket of `burst` tokens that
    is never overdrawn. An overdraft of n tokens is n / per_second seconds too early.
    """
    ordered = sorted(moments)
    tokens, worst = burst, 0.0
    for number, moment in enumerate(ordered):
        if number:
            tokens = min(burst, tokens + (moment - ordered[number - 1]) * per_second)
        tokens -= 1
        worst = max(worst, -tokens)
    return worst / per_second


def longest_delay(runs: Iterable[Run]) -> float:
    """Return the seconds from the claim, which a rate counts, to the first line of the handler."""
    offset = time.time_ns() - time.monotonic_ns()
    return max((run.begin + offset) / SECOND - run.claimed for run in runs)


def disorder(runs: Sequence[Run]) -> list[tuple[Run, Run]]:
    """Return pairs of runs of one key that overlap, or of which the later one belongs to an earlier job."""
    return [
        (first, second)
        for first, second in pairwise(sorted(runs, key=lambda run: run.begin))
        if second.begin < first.end or second.job < first.job
    ]
