"""When what a transaction wrote could be seen by others.

`now()` in a row is when its transaction began, and the time that the server notes for a commit is before it waits for
the disk. So a connection of its own takes a snapshot every few milliseconds, which costs the server next to nothing,
and the first snapshot that holds a transaction dates it: too late by one look at most, never too early.
"""

import threading
from bisect import bisect_right
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import psycopg

from bench.process import processor_seconds

SECONDS_BETWEEN_LOOKS = 0.005
LOOK = "select pg_current_snapshot()::text, sereno.micros(clock_timestamp() + (sereno.now() - now()))"
# Rows hold the lower half of a transaction's number.
EPOCH = 2**32


@dataclass
class Sight:
    """Snapshots in order; each with when it was taken, by the clock of the schedules, in microseconds."""

    backend: int
    _moments: list[int] = field(default_factory=list)
    # Transactions from here on had not begun, and these were under way.
    _ends: list[int] = field(default_factory=list)
    _unfinished: list[Collection[int]] = field(default_factory=list)

    def add(self, snapshot: str, moment: int) -> None:
        _, end, unfinished = snapshot.split(":")
        self._moments.append(moment)
        self._ends.append(int(end) % EPOCH)
        self._unfinished.append({int(number) % EPOCH for number in unfinished.split(",") if number})

    def seen(self, transaction: int) -> int | None:
        """When it was first seen; None if it never was."""
        for look in range(bisect_right(self._ends, transaction), len(self._ends)):
            if transaction not in self._unfinished[look]:
                return self._moments[look]
        return None

    def processor_seconds(self) -> float:
        """What looking has cost the server."""
        return processor_seconds(self.backend)


@contextmanager
def watching(url: str) -> Iterator[Sight]:
    """Look for as long as the block lasts."""
    ended = threading.Event()
    with psycopg.connect(url, autocommit=True, prepare_threshold=0) as connection:
        sight = Sight(connection.info.backend_pid)

        def look() -> None:
            while not ended.wait(SECONDS_BETWEEN_LOOKS):
                row = connection.execute(LOOK).fetchone()
                assert row is not None
                sight.add(*row)

        thread = threading.Thread(target=look, name="sight")
        thread.start()
        try:
            yield sight
        finally:
            ended.set()
            thread.join()
