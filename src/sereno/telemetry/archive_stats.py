"""Figures of the archive, counted in plain Python by whoever writes files; a worker tells them with its own."""

from typing import Literal, TypeAlias

import msgspec

# `failed`: it could not be written or read. `unverified`: what was read back is something else.
Outcome: TypeAlias = Literal["verified", "unverified", "failed"]


class ArchiveTally(msgspec.Struct):
    """What was done since it was last taken. `rows`, `bytes`: in files that were verified. `dropped`: batches."""

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
        """What it holds; it begins anew."""
        taken = msgspec.structs.replace(self)
        self.rows = self.bytes = self.dropped = 0
        self.files = {}
        return taken


# Of this process: a job of the archive knows nothing of the worker that runs it.
COUNTED = ArchiveTally()
