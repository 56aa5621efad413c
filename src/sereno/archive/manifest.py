"""The manifest next to a file: enough to verify and read it without a database."""

from datetime import datetime

import msgspec

from sereno.archive.rows import ParquetColumn


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """One file. `keys_hash`: SHA-256 of the keys in the file's order, one per line.

    `content_hash`: of all columns, 8,192 rows at a time, as described in `checksum.py`.
    """

    object: str
    kind: str
    source: str
    batch: int
    number: int
    schema_version: int
    key_columns: list[str]
    time_column: str
    columns: list[ParquetColumn]
    rows: int
    keys_hash: str
    content_hash: str
    from_at: datetime | None
    to_at: datetime | None
    first_id: int | None
    last_id: int | None
    bytes: int
    sha256: str

    @property
    def name(self) -> str:
        return name_of(self.object)


def encode(manifest: Manifest) -> bytes:
    return msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"


def name_of(file: str) -> str:
    """Return the name of the manifest of a file."""
    return f"{file}.json"


def decode(content: bytes) -> Manifest:
    return msgspec.json.decode(content, type=Manifest)
