"""The time at which a transaction became visible to other sessions.

`now()` in a row is the begin of its transaction, and the commit timestamp of the server is taken before it waits for
the disk. So a separate connection takes a snapshot every few milliseconds, which costs the server next to nothing. The
first snapshot that includes a transaction dates it: too late by one interval at most, never too early.
"""

import threading
from bisect import bisect_right
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import psycopg

from bench.process import processor_seconds

SECONDS_BETWEEN_POLLS = 0.005
SNAPSHOT = "select pg_current_snapshot()::text, sereno.micros(clock_timestamp() + (sereno.now() - now()))"
# `xmin` of a row holds the lower 32 bits of a transaction id.
EPOCH = 2**32


@dataclass
class CommitTimes:
    """Snapshots in order, each with its time by the clock of the schedules, in microseconds."""

    backend: int
    _moments: list[int] = field(default_factory=list)
    # Of each snapshot: the first transaction id that had not begun, and the ids that were in progress.
    _ends: list[int] = field(default_factory=list)
    _unfinished: list[Collection[int]] = field(default_factory=list)

    def add(self, snapshot: str, moment: int) -> None:
        _, end, unfinished = snapshot.split(":")
        self._moments.append(moment)
        self._ends.append(int(end) % EPOCH)
        self._unfinished.append({int(number) % EPOCH for number in unfinished.split(",") if number})

    def visible_at(self, transaction: int) -> int | None:
        """Return the time of the first snapshot that includes the transaction, or None."""
        for snapshot in range(bisect_right(self._ends, transaction), len(self._ends)):
            if transaction not in self._unfinished[snapshot]:
                return self._moments[snapshot]
        return None

    def processor_seconds(self) -> float:
        """Return the processor time that the snapshots have cost the server."""
        return processor_seconds(self.backend)


@contextmanager
def record_commits(url: str) -> Iterator[CommitTimes]:
    """Take snapshots for as long as the block lasts."""
    ended = threading.Event()
    with psycopg.connect(url, autocommit=True, prepare_threshold=0) as connection:
        commits = CommitTimes(connection.info.backend_pid)

        def take_snapshots() -> None:
            while not ended.wait(SECONDS_BETWEEN_POLLS):
                row = connection.execute(SNAPSHOT).fetchone()
                assert row is not None
                commits.add(*row)

        thread = threading.Thread(target=take_snapshots, name="snapshots")
        thread.start()
        try:
            yield commits
        finally:
            ended.set()
            thread.join()
