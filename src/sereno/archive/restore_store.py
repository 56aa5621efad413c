"""Statements that restore archived rows, remove them when their time is over, and list the files to read."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from sereno.archive.store import Column
from sereno.database.statement import Operation, Row, Statement, queries

_sql = queries("archive/restore_store")

# Expired marks that are handled in one transaction.
MARKS = 5000
# Pages of a held table per transaction; and the highest page number of any table.
PAGES = 2000
LAST_PAGE = 4294967294


@dataclass(frozen=True, slots=True)
class KindOfRows:
    """How rows of a kind are identified. `key_type`: of the first key column; None if its table is gone."""

    kind: str
    source: str
    key_columns: list[str]
    time_column: str
    key_type: str | None


@dataclass(frozen=True, slots=True)
class Span:
    """Selects rows by the first part of their keys, or by time (`to_at` exclusive); nothing set: all rows."""

    keys: Sequence[str] | None = None
    from_at: datetime | None = None
    to_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class FileSource:
    """Where rows may be: in a file, or in pages of a table that is still held. `rows`: None until counted."""

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
        """Yield its pages in ranges; the last range reaches to the end, whatever that is."""
        end = min(self.last_block, self.pages or 0)
        for first in range(self.first_block, max(end, self.first_block + 1), PAGES):
            last = first + PAGES
            yield first, self.last_block if last >= end else last


@dataclass(frozen=True, slots=True)
class RestoredRows:
    """How many rows were found and restored; `present` existed already. The others were refused."""

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
    """A file to read. `columns`: with their types in PostgreSQL."""

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
    """Everything that the database knows of a verified file, to compare with the object and its manifest."""

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
    """Selects files: of one batch, or verified since a moment."""

    batch: int | None = None
    since: datetime | None = None

    def params(self) -> dict[str, Any]:
        return {"batch": self.batch, "since": self.since}


@dataclass(frozen=True, slots=True)
class ExpiredRestore:
    """Expired marks: rows that were removed, and rows that became ordinary ones because they changed."""

    gone: int
    changed: int


def one_at_a_time() -> Operation[None]:
    """Allow only one restore or removal at a time, until the transaction ends."""
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
    """Return sources, newest batch first. `low`, `high`: range of the first key; `moved`: batches moved just then."""
    wanted = {"kind": kind, "low": low, "high": high, "moved": moved, "from_at": span.from_at, "to_at": span.to_at}
    return [FileSource(*row) for row in (yield Statement(_sql["sources"], wanted))]


def restore_rows(
    batch: int, names: Sequence[str], rows: Sequence[Sequence[str | None]], keep: float, without: Sequence[str]
) -> Operation[RestoredRows]:
    """Restore rows of a file, given as texts, for `keep` seconds."""
    given = {"batch": batch, "names": list(names), "rows": msgspec.json.encode(rows).decode(), "keep": keep}
    return RestoredRows(*(yield Statement(_sql["rows"], given | {"without": list(without)}))[0])


def restore_held(
    source: FileSource, blocks: tuple[int, int], span: Span, keep: float, without: Sequence[str]
) -> Operation[RestoredRows]:
    """Restore rows of some pages of a table that is still held."""
    given = _of_held(source, blocks, span) | {"keep": keep, "without": list(without)}
    return RestoredRows(*(yield Statement(_sql["held"], given))[0])


def count_held(source: FileSource, blocks: tuple[int, int], span: Span) -> Operation[int]:
    return int((yield Statement(_sql["count_held"], _of_held(source, blocks, span)))[0][0])


def marked(kind: str, keys: Sequence[str]) -> Operation[set[str]]:
    """Return those of the keys that were restored."""
    return {row[0] for row in (yield Statement(_sql["marked"], {"kind": kind, "keys": list(keys)}))}


def marked_range(kind: str) -> Operation[tuple[int, int] | None]:
    """Return the range of restored keys, of a kind whose keys are numbers."""
    low, high = (yield Statement(_sql["marked_range"], {"kind": kind}))[0]
    return None if low is None else (low, high)


def leaving() -> Operation[list[str]]:
    """Return the kinds with expired rows, in the order of their removal."""
    return [row[0] for row in (yield Statement(_sql["leaving"]))]


def leave(kind: str) -> Operation[ExpiredRestore | None]:
    """Remove some expired rows of a kind; None if there are none."""
    gone, changed = (yield Statement(_sql["leave"], {"kind": kind, "most": MARKS}))[0]
    return None if gone is None else ExpiredRestore(gone, changed)


def doubled(kind: str) -> Operation[list[str]]:
    """Return keys of rows that may be in two files; all others are in one."""
    return [row[0] for row in (yield Statement(_sql["doubled"], {"kind": kind}))]


def files(kind: str | None = None, span: Span | None = None) -> Operation[list[ArchivedFile]]:
    """Return the files of fully verified batches, oldest first."""
    wanted = {"kind": kind, "from_at": span and span.from_at, "to_at": span and span.to_at}
    rows = yield Statement(_sql["files"], wanted)
    return [ArchivedFile(*[*row[:-1], _columns(row[-1])]) for row in rows]


def checkable(which: FileSelection, after: tuple[int, int], limit: int) -> Operation[list[CheckableFile]]:
    """Return a page of files in order, after the given one."""
    given = which.params() | {"after_batch": after[0], "after_number": after[1], "limit": limit}
    return _checkable((yield Statement(_sql["checkable"], given)))


def sampled(which: FileSelection, limit: int) -> Operation[list[CheckableFile]]:
    return _checkable((yield Statement(_sql["sampled"], which.params() | {"limit": limit})))


def how_many(which: FileSelection) -> Operation[tuple[int, int]]:
    """Return the number of files and their bytes."""
    files, length = (yield Statement(_sql["how_many"], which.params()))[0]
    return files, length


def known(names: Sequence[str]) -> Operation[set[str]]:
    """Return those that are files of a batch."""
    return {row[0] for row in (yield Statement(_sql["known"], {"names": list(names)}))}


def _checkable(rows: Sequence[Row]) -> list[CheckableFile]:
    return [CheckableFile(*[*row[:-1], _columns(row[-1])]) for row in rows]


def _columns(text: str) -> list[Column]:
    return [Column(**each) for each in json.loads(text)]


def _of_held(source: FileSource, blocks: tuple[int, int], span: Span) -> dict[str, Any]:
    keys = None if span.keys is None else list(span.keys)
    place = {"batch": source.batch, "first": blocks[0], "last": blocks[1]}
    return place | {"numbers": keys, "from_at": span.from_at, "to_at": span.to_at}
