"""Counters of the worker processes, in a memory-mapped file that the benchmark reads while they run.

Every slot is an unsigned 8-byte integer: for each worker its process id and its count of handler calls, then the
latency samples in microseconds. A worker reserves its own slots when it starts and writes only to them, so no lock is
needed afterwards.
"""

import fcntl
import mmap
import os
from pathlib import Path

SLOT_BYTES = 8
MOST_WORKERS = 16


class Tally:
    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("r+b") as file:
            self._slots = memoryview(mmap.mmap(file.fileno(), 0)).cast("Q")

    @classmethod
    def create(cls, path: Path, samples: int = 0) -> "Tally":
        path.write_bytes(bytes(SLOT_BYTES * (2 * MOST_WORKERS + samples)))
        return cls(path)

    def join(self) -> "WorkerCounter":
        """Reserve the next free slots for this worker process."""
        with self.path.open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            number = self._slots[:MOST_WORKERS].tolist().index(0)
            self._slots[number] = os.getpid()
        return WorkerCounter(self._slots[MOST_WORKERS + number :][:1], self._slots[2 * MOST_WORKERS :])

    @property
    def executed(self) -> int:
        return sum(self._slots[MOST_WORKERS : 2 * MOST_WORKERS])

    @property
    def processes(self) -> list[int]:
        """Process ids of the workers that have joined."""
        return [process for process in self._slots[:MOST_WORKERS] if process]

    @property
    def samples(self) -> list[int]:
        return list(self._slots[2 * MOST_WORKERS :])


class WorkerCounter:
    """The slots of one worker."""

    def __init__(self, count: "memoryview[int]", samples: "memoryview[int]") -> None:
        self._count = count
        self._samples = samples
        self._sampled = 0

    def count_up(self, jobs: int = 1) -> None:
        self._count[0] += jobs

    def add_sample(self, microseconds: int) -> None:
        self._samples[self._sampled] = microseconds
        self._sampled += 1
