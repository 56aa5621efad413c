"""Counts of archived rows and files. The archiver counts; the worker reports the counts with its own metrics."""

from typing import Literal, TypeAlias

import msgspec

# `failed`: the file could not be written or read. `unverified`: the content that was read back differs.
Outcome: TypeAlias = Literal["verified", "unverified", "failed"]


class ArchiveTally(msgspec.Struct):
    """Counts since the last `take`. `rows`, `bytes`: in verified files. `dropped`: batches that were dropped."""

    rows: int = 0
    bytes: int = 0
    dropped: int = 0
    files: dict[str, int] = msgspec.field(default_factory=dict)

    def file(self, outcome: Outcome, rows: int = 0, length: int = 0) -> None:
        self.files[outcome] = self.files.get(outcome, 0) + 1
        self.rows += rows
        self.bytes += length

    def add(self, other: "ArchiveTally") -> None:
        self.rows += other.rows
        self.bytes += other.bytes
        self.dropped += other.dropped
        for outcome, count in other.files.items():
            self.files[outcome] = self.files.get(outcome, 0) + count

    def take(self) -> "ArchiveTally":
        """Return the counts and reset them."""
        counts = msgspec.structs.replace(self)
        self.rows = self.bytes = self.dropped = 0
        self.files = {}
        return counts


# One for the process, because an archive job has no reference to the worker that runs it.
COUNTED = ArchiveTally()
