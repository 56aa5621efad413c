"""Cost of a scheduler tick in a large table of schedules, compared with ten thousand rows and as many due.

A page that is changed for the first time after a checkpoint is written to the log as a whole. The due rows of a large
table are on pages of their own: right after a checkpoint, a fire writes one page of the table and one of each of three
indexes. In a small table all fires share a few pages. So the growth is measured twice: right after a checkpoint, and
when as many schedules have fired since then as a minute or two of ordinary work fires.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median

import psycopg

from bench.context import BenchContext
from bench.population import Slot, load, set_clock
from bench.process import on_processor_seconds
from bench.workers import BenchmarkFailed
from sereno.database.connect import PLANNER
from sereno.database.statement import run
from sereno.schedules.firing import SECOND
from sereno.schedules.ticker import BATCH, Ticker

SMALL = 10_000
# The first tick plans the statements, because the table has just been written or analyzed; the second one is timed.
TICKS_PER_ROUND = 2

WAL = "select wal_fpi, pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint from pg_stat_wal"


@dataclass(frozen=True)
class GrowthRounds:
    """Rounds right after a checkpoint, then ticks in the large table alone, then rounds without a checkpoint."""

    after_checkpoint: int
    ticks_between: int
    later: int

    @property
    def rows(self) -> int:
        """Return how many rows have to be due in the large table."""
        return ((self.after_checkpoint + self.later) * TICKS_PER_ROUND + self.ticks_between) * BATCH


@dataclass(frozen=True)
class TickCost:
    """Seconds of a tick, processor seconds of both sides, and its whole pages and bytes of log."""

    seconds: float
    processor: float
    pages: int
    log_bytes: int


@dataclass(frozen=True)
class Growth:
    """Medians over some rounds: the ticks of both tables, and how the large one compares with the small one."""

    large: TickCost
    small: TickCost
    ratio: float
    processor_ratio: float


@dataclass(frozen=True)
class TimedTicker:
    """A ticker on a connection with the scheduler's settings, and the costs of its timed ticks."""

    connection: psycopg.Connection
    ticker: Ticker = field(default_factory=Ticker)
    costs: list[TickCost] = field(default_factory=list)

    def tick(self) -> TickCost:
        backend = self.connection.info.backend_pid
        pages, log_bytes = self._written()
        spent, began = on_processor_seconds(backend) + time.thread_time(), time.perf_counter()
        with self.connection.transaction():
            done = run(self.connection, self.ticker.tick())
        seconds = time.perf_counter() - began
        spent = on_processor_seconds(backend) + time.thread_time() - spent
        if done.fires != BATCH:
            raise BenchmarkFailed(f"{done.fires} fires in a tick with {BATCH} due schedules")
        pages_after, log_bytes_after = self._written()
        return TickCost(seconds, spent, pages_after - pages, log_bytes_after - log_bytes)

    def _written(self) -> tuple[int, int]:
        """Return the whole pages that the server has written to its log, and the bytes of the log."""
        # A session reports its statistics about once a second, unless it is told to.
        self.connection.execute("select pg_stat_force_next_flush()")
        row = self.connection.execute(WAL).fetchone()
        assert row is not None
        return int(row[0]), int(row[1])


def measure(context: BenchContext, large_url: str, begin: int, rounds: GrowthRounds) -> tuple[Growth, Growth]:
    """Return the growth right after a checkpoint, and when many schedules have fired since the last one."""
    with timed_ticker(large_url) as large, context.server.fresh("schedules_small") as url, timed_ticker(url) as small:
        first = _rounds(large, small, begin, rounds.after_checkpoint, checkpoint=True)
        for _ in range(rounds.ticks_between):
            large.tick()
        return first, _rounds(large, small, begin, rounds.later, checkpoint=False)


def _rounds(large: TimedTicker, small: TimedTicker, begin: int, rounds: int, *, checkpoint: bool) -> Growth:
    """Time one tick of each table in every round: they follow each other, so that a slow moment affects both."""
    for table in (small, large):
        table.costs.clear()
    for _ in range(rounds):
        small.connection.execute("truncate sereno.schedules")
        load(small.connection, SMALL, [Slot(TICKS_PER_ROUND * BATCH, begin, SECOND)])
        set_clock(small.connection, begin + SECOND)
        for table in (small, large):
            table.tick()
        if checkpoint:
            small.connection.execute("checkpoint")
        for table in (small, large):
            table.costs.append(table.tick())
    pairs = list(zip(large.costs, small.costs, strict=True))
    return Growth(
        _median(large.costs),
        _median(small.costs),
        median(slow.seconds / quick.seconds for slow, quick in pairs),
        median(slow.processor / quick.processor for slow, quick in pairs),
    )


def _median(costs: list[TickCost]) -> TickCost:
    return TickCost(
        median(cost.seconds for cost in costs),
        median(cost.processor for cost in costs),
        int(median(cost.pages for cost in costs)),
        int(median(cost.log_bytes for cost in costs)),
    )


@contextmanager
def timed_ticker(url: str) -> Iterator[TimedTicker]:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(PLANNER)
        yield TimedTicker(connection)
