"""What a tick costs in a table of a million schedules, against one of ten thousand with as many due."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median

import psycopg

from bench.population import Slot, load, set_clock
from bench.site import Site
from bench.workers import BenchmarkFailed
from sereno.database.connect import PLANNER
from sereno.database.statement import run
from sereno.schedules.firing import SECOND
from sereno.schedules.ticker import BATCH, Ticker

SMALL = 10_000
# One that plans the statements, whose table has just been written or analyzed, and one that is timed.
TICKS_IN_A_TURN = 2


@dataclass(frozen=True)
class Ticking:
    """A connection as the scheduler has one, and how long its timed ticks took."""

    connection: psycopg.Connection
    ticker: Ticker = field(default_factory=Ticker)
    seconds: list[float] = field(default_factory=list)

    def tick(self) -> float:
        began = time.perf_counter()
        with self.connection.transaction():
            done = run(self.connection, self.ticker.tick())
        seconds = time.perf_counter() - began
        if done.fires != BATCH:
            raise BenchmarkFailed(f"{done.fires} fires in a tick that was given {BATCH}")
        return seconds


def rows_for(turns: int) -> int:
    """How many rows have to be due in the large table."""
    return turns * TICKS_IN_A_TURN * BATCH


def measure(
    site: Site, large_url: str, begin: int, turns: int, *, after_checkpoint: bool
) -> tuple[float, float, float]:
    """Medians over the turns: seconds of a tick in the large table, in the small one, and how many times as long.

    The two ticks of a turn follow each other: what makes the machine slow for a while makes both of them slow.
    """
    with ticking(large_url) as large, site.server.fresh("schedules_small") as url, ticking(url) as small:
        for _ in range(turns):
            small.connection.execute("truncate sereno.schedules")
            load(small.connection, SMALL, [Slot(TICKS_IN_A_TURN * BATCH, begin, SECOND)])
            set_clock(small.connection, begin + SECOND)
            for table in (small, large):
                table.tick()
            if after_checkpoint:
                small.connection.execute("checkpoint")
            for table in (small, large):
                table.seconds.append(table.tick())
    ratios = [slow / quick for slow, quick in zip(large.seconds, small.seconds, strict=True)]
    return median(large.seconds), median(small.seconds), median(ratios)


@contextmanager
def ticking(url: str) -> Iterator[Ticking]:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(PLANNER)
        yield Ticking(connection)
