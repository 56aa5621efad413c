"""Statements that restore archived rows, remove them when their time is over, and list the files to read."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from sereno.archive.manifest import Manifest
from sereno.archive.rows import (
    ArchivedFile,
    ExpiredRestore,
    FileSelection,
    FileSource,
    KindOfRows,
    ParquetColumn,
    RestoredRows,
    TimeSpan,
)
from sereno.database.statement import Operation, Row, Statement, queries

_sql = queries("archive/restore_store")

# Expired marks that are handled in one transaction.
MARKS = 5000


def one_at_a_time() -> Operation[None]:
    """Allow only one restore or removal at a time, until the transaction ends."""
    yield Statement(_sql["one_at_a_time"])


def kind(name: str) -> Operation[KindOfRows | None]:
    rows = yield Statement(_sql["kind"], {"kind": name})
    return KindOfRows(*rows[0]) if rows else None


def sources(
    kind: str,
    span: TimeSpan,
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
    source: FileSource, blocks: tuple[int, int], span: TimeSpan, keep: float, without: Sequence[str]
) -> Operation[RestoredRows]:
    """Restore rows of some pages of a table that is still held."""
    given = _of_held(source, blocks, span) | {"keep": keep, "without": list(without)}
    return RestoredRows(*(yield Statement(_sql["held"], given))[0])


def count_held(source: FileSource, blocks: tuple[int, int], span: TimeSpan) -> Operation[int]:
    return int((yield Statement(_sql["count_held"], _of_held(source, blocks, span)))[0][0])


def marked(kind: str, keys: Sequence[str]) -> Operation[set[str]]:
    """Return those of the keys that were restored."""
    return {row[0] for row in (yield Statement(_sql["marked"], {"kind": kind, "keys": list(keys)}))}


def marked_range(kind: str) -> Operation[tuple[int, int] | None]:
    """Return the range of restored keys, of a kind whose keys are numbers."""
    low, high = (yield Statement(_sql["marked_range"], {"kind": kind}))[0]
    return None if low is None else (low, high)


def expired_kinds() -> Operation[list[str]]:
    """Return the kinds with expired rows, in the order of their removal."""
    return [row[0] for row in (yield Statement(_sql["expired_kinds"]))]


def remove_expired(kind: str) -> Operation[ExpiredRestore | None]:
    """Remove some expired rows of a kind; None if there are none."""
    gone, changed = (yield Statement(_sql["remove_expired"], {"kind": kind, "most": MARKS}))[0]
    return None if gone is None else ExpiredRestore(gone, changed)


def doubled(kind: str) -> Operation[list[str]]:
    """Return keys of rows that may be in two files; all others are in one."""
    return [row[0] for row in (yield Statement(_sql["doubled"], {"kind": kind}))]


def files(kind: str | None = None, span: TimeSpan | None = None) -> Operation[list[ArchivedFile]]:
    """Return the files of fully verified batches, oldest first."""
    wanted = {"kind": kind, "from_at": span and span.from_at, "to_at": span and span.to_at}
    rows = yield Statement(_sql["files"], wanted)
    return [ArchivedFile(*[*row[:-1], _columns(row[-1])]) for row in rows]


def checkable(which: FileSelection, after: tuple[int, int], limit: int) -> Operation[list[Manifest]]:
    """Return a page of files in order, after the given one, as the database knows them."""
    given = which.params() | {"after_batch": after[0], "after_number": after[1], "limit": limit}
    return _manifests((yield Statement(_sql["checkable"], given)))


def sampled(which: FileSelection, limit: int) -> Operation[list[Manifest]]:
    return _manifests((yield Statement(_sql["sampled"], which.params() | {"limit": limit})))


def how_many(which: FileSelection) -> Operation[tuple[int, int]]:
    """Return the number of files and their bytes."""
    files, length = (yield Statement(_sql["how_many"], which.params()))[0]
    return files, length


def known(names: Sequence[str]) -> Operation[set[str]]:
    """Return those that are files of a batch."""
    return {row[0] for row in (yield Statement(_sql["known"], {"names": list(names)}))}


def _manifests(rows: Sequence[Row]) -> list[Manifest]:
    found = [dict(zip(Manifest.__struct_fields__, row, strict=True)) for row in rows]
    return [Manifest(**values | {"columns": _columns(values["columns"])}) for values in found]


def _columns(text: str) -> list[ParquetColumn]:
    return [ParquetColumn(**each) for each in json.loads(text)]


def _of_held(source: FileSource, blocks: tuple[int, int], span: TimeSpan) -> dict[str, Any]:
    keys = None if span.keys is None else list(span.keys)
    place = {"batch": source.batch, "first": blocks[0], "last": blocks[1]}
    return place | {"numbers": keys, "from_at": span.from_at, "to_at": span.to_at}
