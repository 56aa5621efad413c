"""The chunks that one attempt has emitted and that are not stored yet."""

import logging
import threading
from collections.abc import Collection, Sequence
from typing import Any

from sereno.database.database import Database
from sereno.error_text import describe
from sereno.errors import DatabaseUnavailable, InvalidArguments
from sereno.jobs.chunks import MOST_BYTES, MOST_CHUNKS, ChunkBatch, batches, encoded
from sereno.jobs.job_stream import write_chunks
from sereno.telemetry.log_events import emit

# Batches in one statement: at most 4 MiB.
STATEMENT_BATCHES = 64


class EmittedChunks:
    """Chunks in the order in which a handler emits them, in the event loop or in a thread."""

    def __init__(self, job_id: int, attempt: int) -> None:
        self._job_id = job_id
        self._attempt = attempt
        self._lock = threading.Lock()
        self._number = 0
        self._bytes = 0
        self._new: list[bytes] = []
        # Batches whose write is not confirmed. They never change: a repeated write is recognised by their numbers.
        self._unconfirmed: list[ChunkBatch] = []

    def add(self, chunk: Any) -> None:
        """Add a chunk, or raise InvalidArguments."""
        raw = encoded(self._job_id, chunk)
        with self._lock:
            if self._number >= MOST_CHUNKS or self._bytes + len(raw) > MOST_BYTES:
                raise InvalidArguments(
                    f"job {self._job_id}: attempt {self._attempt} has emitted {self._number:,} chunks with "
                    f"{self._bytes:,} bytes; at most {MOST_CHUNKS:,} with {MOST_BYTES:,} are possible: emit fewer"
                )
            self._number += 1
            self._bytes += len(raw)
            self._new.append(raw)

    def unstored(self) -> list[ChunkBatch]:
        """Return what is to be written, in order."""
        with self._lock:
            new, self._new = self._new, []
            self._unconfirmed += batches(self._job_id, self._attempt, self._number, new)
            return list(self._unconfirmed)

    def confirm(self, written: Collection[ChunkBatch]) -> None:
        """Forget batches that are stored, or that a lost attempt may not store."""
        with self._lock:
            numbers = {batch.number for batch in written}
            self._unconfirmed = [batch for batch in self._unconfirmed if batch.number not in numbers]


async def store_emitted(database: Database, session: int, emitted: Sequence[EmittedChunks]) -> bool:
    """Store the chunks of running attempts; return whether there were some. Those of a lost attempt are dropped."""
    unstored = [(chunks, batch) for chunks in emitted for batch in chunks.unstored()]
    for start in range(0, len(unstored), STATEMENT_BATCHES):
        page = unstored[start : start + STATEMENT_BATCHES]
        try:
            await database.arun_one(write_chunks(session, [batch for _, batch in page]))
        except DatabaseUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - chunks must not block heartbeats; they are written with the settlement
            text = f"chunks could not be stored: {describe(error)}"
            emit(logging.ERROR, "job.chunks_failed", text, session=session)
            return True
        for chunks, batch in page:
            chunks.confirm([batch])
    return bool(unstored)
