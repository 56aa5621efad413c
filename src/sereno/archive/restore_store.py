"""What was archived comes back, and leaves again when its time is over; and which files there are to read."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from sereno.archive.store import Column
from sereno.database.statement import Operation, Row, Statement, queries

_sql = queries("archive/restore_store")

# Marks whose time is over, looked at in one transaction.
MARKS = 5000
# Pages of a held table that are read in one transaction; and as many as a table can have.
PAGES = 2000
LAST_PAGE = 4294967294


@dataclass(frozen=True, slots=True)
class KindOfRows:
    """How rows of a kind are told apart. `key_type`: of the first column of the key; None where its table is gone."""

    kind: str
    source: str
    key_columns: list[str]
    time_column: str
    key_type: str | None


@dataclass(frozen=True, slots=True)
class Span:
    """Which rows: by the first part of their keys, or by time, from one moment to before another; nothing: all."""

    keys: Sequence[str] | None = None
    from_at: datetime | None = None
    to_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class FileSource:
    """Where rows may be: in a file, or in pages of a table that is still held. `rows`: None before anybody counted."""

    batch: int
    number: int
    kind: str
    held: bool
    first_block: int
    last_block: int
    pages: int | None
    object: str
    bytes: int
    sha256: str
    rows: int | None
    key_columns: list[str]
    time_column: str
    moved_at: datetime

    def blocks(self) -> Iterable[tuple[int, int]]:
        """Its pages, some at a time; the last ones up to the end, whatever that is."""
        end = min(self.last_block, self.pages or 0)
        for first in range(self.first_block, max(end, self.first_block + 1), PAGES):
            last = first + PAGES
            yield first, self.last_block if last >= end else last


@dataclass(frozen=True, slots=True)
class RestoredRows:
    """How many rows were found and brought back; `present` were there already. The others were refused."""

    found: int = 0
    restored: int = 0
    present: int = 0

    def __add__(self, other: "RestoredRows") -> "RestoredRows":
        return RestoredRows(self.found + other.found, self.restored + other.restored, self.present + other.present)

    @property
    def refused(self) -> int:
        return self.found - self.restored - self.present


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """A file to be read. `columns`: with their types in PostgreSQL."""

    batch: int
    number: int
    kind: str
    object: str
    bytes: int
    sha256: str
    rows: int
    key_columns: list[str]
    time_column: str
    columns: list[Column]


@dataclass(frozen=True, slots=True)
class CheckableFile:
    """All that the database knows of a file that was verified: as it should lie in its place, and be described."""

    batch: int
    number: int
    object: str
    bytes: int
    sha256: str
    rows: int
    keys_hash: str
    content_hash: str
    first_id: int | None
    last_id: int | None
    from_at: datetime | None
    to_at: datetime | None
    kind: str
    source: str
    schema_version: int
    key_columns: list[str]
    time_column: str
    columns: list[Column]


@dataclass(frozen=True, slots=True)
class FileSelection:
    """Which files are looked at: of one batch, or verified since then."""

    batch: int | None = None
    since: datetime | None = None

    def params(self) -> dict[str, Any]:
        return {"batch": self.batch, "since": self.since}


@dataclass(frozen=True, slots=True)
class ExpiredRestore:
    """Marks whose time was over: rows that left, and rows that are ordinary ones again."""

    gone: int
    changed: int


def one_at_a_time() -> Operation[None]:
    """Until the transaction ends, nobody else brings anything back or lets it leave."""
    yield Statement(_sql["one_at_a_time"])


def kind(name: str) -> Operation[KindOfRows | None]:
    rows = yield Statement(_sql["kind"], {"kind": name})
    return KindOfRows(*rows[0]) if rows else None


def kinds() -> Operation[list[str]]:
    return [row[0] for row in (yield Statement(_sql["kinds"]))]


def sources(
    kind: str,
    span: Span,
    *,
    low: int | None = None,
    high: int | None = None,
    moved: Sequence[datetime] | None = None,
) -> Operation[list[FileSource]]:
    """The newest batch first. `low`, `high`: numbers between which keys begin; `moved`: batches that left just then."""
    wanted = {"kind": kind, "low": low, "high": high, "moved": moved, "from_at": span.from_at, "to_at": span.to_at}
    return [FileSource(*row) for row in (yield Statement(_sql["sources"], wanted))]


def restore_rows(
    batch: int, names: Sequence[str], rows: Sequence[Sequence[str | None]], keep: float, without: Sequence[str]
) -> Operation[RestoredRows]:
    """Rows of a file, as texts; they stay for `keep` seconds."""
    given = {"batch": batch, "names": list(names), "rows": msgspec.json.encode(rows).decode(), "keep": keep}
    return RestoredRows(*(yield Statement(_sql["rows"], given | {"without": list(without)}))[0])


def restore_held(
    source: FileSource, blocks: tuple[int, int], span: Span, keep: float, without: Sequence[str]
) -> Operation[RestoredRows]:
    """Rows of some pages of a table that is still held."""
    given = _of_held(source, blocks, span) | {"keep": keep, "without": list(without)}
    return RestoredRows(*(yield Statement(_sql["held"], given))[0])


def count_held(source: FileSource, blocks: tuple[int, int], span: Span) -> Operation[int]:
    return int((yield Statement(_sql["count_held"], _of_held(source, blocks, span)))[0][0])


def marked(kind: str, keys: Sequence[str]) -> Operation[set[str]]:
    """Those of them that somebody brought back."""
    return {row[0] for row in (yield Statement(_sql["marked"], {"kind": kind, "keys": list(keys)}))}


def marked_range(kind: str) -> Operation[tuple[int, int] | None]:
    """Between which numbers they lie, of a kind whose keys are numbers."""
    low, high = (yield Statement(_sql["marked_range"], {"kind": kind}))[0]
    return None if low is None else (low, high)


def leaving() -> Operation[list[str]]:
    """Kinds of rows whose time is over, in the order in which they leave."""
    return [row[0] for row in (yield Statement(_sql["leaving"]))]


def leave(kind: str) -> Operation[ExpiredRestore | None]:
    """Some rows of a kind whose time is over; None when there are none."""
    gone, changed = (yield Statement(_sql["leave"], {"kind": kind, "most": MARKS}))[0]
    return None if gone is None else ExpiredRestore(gone, changed)


def doubled(kind: str) -> Operation[list[str]]:
    """Keys of rows that may lie in two files; all others lie in one."""
    return [row[0] for row in (yield Statement(_sql["doubled"], {"kind": kind}))]


def files(kind: str | None = None, span: Span | None = None) -> Operation[list[ArchivedFile]]:
    """Files of batches that are verified as a whole, the oldest first."""
    wanted = {"kind": kind, "from_at": span and span.from_at, "to_at": span and span.to_at}
    rows = yield Statement(_sql["files"], wanted)
    return [ArchivedFile(*[*row[:-1], _columns(row[-1])]) for row in rows]


def checkable(which: FileSelection, after: tuple[int, int], limit: int) -> Operation[list[CheckableFile]]:
    """In their order, after one of them."""
    given = which.params() | {"after_batch": after[0], "after_number": after[1], "limit": limit}
    return _checkable((yield Statement(_sql["checkable"], given)))


def sampled(which: FileSelection, limit: int) -> Operation[list[CheckableFile]]:
    return _checkable((yield Statement(_sql["sampled"], which.params() | {"limit": limit})))


def how_many(which: FileSelection) -> Operation[tuple[int, int]]:
    """Files, and bytes in them."""
    files, length = (yield Statement(_sql["how_many"], which.params()))[0]
    return files, length


def known(names: Sequence[str]) -> Operation[set[str]]:
    """Those that are files of a batch."""
    return {row[0] for row in (yield Statement(_sql["known"], {"names": list(names)}))}


def _checkable(rows: Sequence[Row]) -> list[CheckableFile]:
    return [CheckableFile(*[*row[:-1], _columns(row[-1])]) for row in rows]


def _columns(text: str) -> list[Column]:
    return [Column(**each) for each in json.loads(text)]


def _of_held(source: FileSource, blocks: tuple[int, int], span: Span) -> dict[str, Any]:
    keys = None if span.keys is None else list(span.keys)
    place = {"batch": source.batch, "first": blocks[0], "last": blocks[1]}
    return place | {"numbers": keys, "from_at": span.from_at, "to_at": span.to_at}
