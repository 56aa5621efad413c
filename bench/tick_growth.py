"""Cost of a scheduler tick in a table of a million schedules, compared with ten thousand and as many due."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median

import psycopg

from bench.context import BenchContext
from bench.population import Slot, load, set_clock
from bench.workers import BenchmarkFailed
from sereno.database.connect import PLANNER
from sereno.database.statement import run
from sereno.schedules.firing import SECOND
from sereno.schedules.ticker import BATCH, Ticker

SMALL = 10_000
# The first tick plans the statements, because the table has just been written or analyzed; the second one is timed.
TICKS_PER_ROUND = 2


@dataclass(frozen=True)
class TimedTicker:
    """A ticker on a connection with the scheduler's settings, and the seconds of its timed ticks."""

    connection: psycopg.Connection
    ticker: Ticker = field(default_factory=Ticker)
    seconds: list[float] = field(default_factory=list)

    def tick(self) -> float:
        began = time.perf_counter()
        with self.connection.transaction():
            done = run(self.connection, self.ticker.tick())
        seconds = time.perf_counter() - began
        if done.fires != BATCH:
            raise BenchmarkFailed(f"{done.fires} fires in a tick with {BATCH} due schedules")
        return seconds


def rows_for(rounds: int) -> int:
    """Return how many rows have to be due in the large table."""
    return rounds * TICKS_PER_ROUND * BATCH


def measure(
    context: BenchContext, large_url: str, begin: int, rounds: int, *, after_checkpoint: bool
) -> tuple[float, float, float]:
    """Return medians over the rounds: seconds of a tick in the large table, in the small one, and their ratio.

    The two ticks of a round follow each other, so that a slow moment of the machine affects both.
    """
    with timed_ticker(large_url) as large, context.server.fresh("schedules_small") as url, timed_ticker(url) as small:
        for _ in range(rounds):
            small.connection.execute("truncate sereno.schedules")
            load(small.connection, SMALL, [Slot(TICKS_PER_ROUND * BATCH, begin, SECOND)])
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
def timed_ticker(url: str) -> Iterator[TimedTicker]:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(PLANNER)
        yield TimedTicker(connection)
