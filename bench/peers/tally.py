"""Counters of a peer's workers, in a memory-mapped file that the driver reads while they run.

Every slot is an unsigned 8-byte integer: one count of handler calls per worker process, then the latency samples in
microseconds. A worker writes only its own count, so no lock is needed. `harness.mjs` writes the same layout.
"""

import mmap
from pathlib import Path

SLOT_BYTES = 8
MOST_WORKERS = 2


class Tally:
    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._slots = memoryview(mmap.mmap(file.fileno(), 0)).cast("Q")

    @classmethod
    def create(cls, path: Path, samples: int = 0) -> "Tally":
        path.write_bytes(bytes(SLOT_BYTES * (MOST_WORKERS + samples)))
        return cls(path)

    def count_up(self, worker: int) -> None:
        self._slots[worker] += 1

    def add_sample(self, number: int, microseconds: int) -> None:
        self._slots[MOST_WORKERS + number] = microseconds

    @property
    def executed(self) -> int:
        return sum(self._slots[:MOST_WORKERS])

    @property
    def samples(self) -> list[int]:
        return list(self._slots[MOST_WORKERS:])
