"""Chunks that a running job emits: their bounds, and their order.

An attempt numbers its chunks from 1. They are stored in batches, each under the number of its last chunk; a batch never
changes, so a write can be repeated after a lost reply.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from sereno.database.json_values import stored
from sereno.error_text import storable
from sereno.errors import InvalidArguments

# Bytes of one chunk as JSON, and of one batch with several.
LARGEST_CHUNK = LARGEST_BATCH = 64 * 1024
# Chunks of one attempt, and their bytes together.
MOST_CHUNKS = 10_000
MOST_BYTES = 4 * 1024 * 1024


class ChunkBatch(msgspec.Struct, frozen=True):
    """Consecutive chunks of one attempt as a JSON array. `number`: that of the last one."""

    id: int
    attempt: int
    number: int
    chunks: msgspec.Raw


def encoded(job_id: int, chunk: Any) -> bytes:
    """Return the JSON of a chunk, or raise InvalidArguments.

    Chunks are often texts from elsewhere, so characters that PostgreSQL cannot store are replaced and not refused.
    """

    def refusal(why: str) -> InvalidArguments:
        return InvalidArguments(f"job {job_id}: ctx.emit got a chunk that cannot be stored: {why}")

    # In an array, as it is stored: the depth is bounded there.
    try:
        raw = stored([chunk], refusal)
    except InvalidArguments:
        raw = stored([_replaced(chunk)], refusal)
    if len(raw) - 2 > LARGEST_CHUNK:
        raise refusal(f"it has {len(raw) - 2:,} bytes, and at most {LARGEST_CHUNK:,} are possible; emit it in parts")
    return raw[1:-1]


def batches(job_id: int, attempt: int, last: int, chunks: Sequence[bytes]) -> list[ChunkBatch]:
    """Return encoded chunks as batches of bounded size. `last`: the number of the last chunk."""
    found: list[ChunkBatch] = []
    number, batch, size = last - len(chunks), list[bytes](), 0
    for chunk in chunks:
        if batch and size + len(chunk) > LARGEST_BATCH:
            found.append(_batch(job_id, attempt, number, batch))
            batch, size = [], 0
        batch.append(chunk)
        size += len(chunk)
        number += 1
    if batch:
        found.append(_batch(job_id, attempt, number, batch))
    return found


def _batch(job_id: int, attempt: int, number: int, chunks: Sequence[bytes]) -> ChunkBatch:
    return ChunkBatch(job_id, attempt, number, msgspec.Raw(b"[" + b",".join(chunks) + b"]"))


def _replaced(value: Any) -> Any:
    """Return the value with U+FFFD for NUL and lone surrogates in texts."""
    match value:
        case str():
            return storable(value, len(value))
        case dict():
            return {_replaced(key): _replaced(each) for key, each in value.items()}
        case list() | tuple():
            return [_replaced(each) for each in value]
        case _:
            return value
