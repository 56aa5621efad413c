"""Read models of the archive: kinds, batches, files, days, locations. Only its catalogue is read."""

import json
from dataclasses import dataclass
from datetime import date, datetime
from typing import Literal, TypeAlias

from sereno.archive.rows import ParquetColumn
from sereno.bounded_count import BOUND
from sereno.database.statement import Operation, Statement, queries

_sql = queries("archive/queries")

# In the order of a batch's life; `failed` if a file could not be written or verified.
BatchState: TypeAlias = Literal["moved", "failed", "verified", "dropped"]
FileState: TypeAlias = Literal["planned", "uploaded", "failed", "verified"]
DayState: TypeAlias = Literal["archived", "waiting", "failed"]
FoundState: TypeAlias = Literal["waiting", "failed", "verified"]

MOST_FAILURES = 50
# Files of a batch per page, and locations of one row.
MOST_FILES = 1000
MOST_PLACES = 20


@dataclass(frozen=True, slots=True)
class KindLine:
    """The sums over all batches of one kind. `uncounted`: waiting batches whose rows have not been counted yet."""

    kind: str
    batches: int
    source: str
    waiting_batches: int
    waiting_rows: int
    uncounted: int
    verified_rows: int
    verified_bytes: int
    verified_files: int
    grace_batches: int
    grace_rows: int
    next_drop_at: datetime | None
    dropped_batches: int
    dropped_rows: int
    failures: int
    waiting_since: datetime | None
    last_moved_at: datetime | None
    last_verified_at: datetime | None
    last_dropped_at: datetime | None


@dataclass(frozen=True, slots=True)
class FailedFile:
    """A file that could not be written or verified. `held`: its rows are still in the database."""

    batch: int
    number: int
    kind: str
    object: str
    tries: int
    failed_at: datetime
    error: str | None
    held: bool


@dataclass(frozen=True, slots=True)
class RestoredSpan:
    """Restored rows; the first of them may leave after `until`."""

    kind: str
    rows: int
    until: datetime


@dataclass(frozen=True, slots=True)
class BatchLine:
    """A batch in a list. `rows`: None until they are counted."""

    id: int
    kind: str
    source: str
    state: BatchState
    rows: int | None
    files: int
    verified_files: int
    failed_files: int
    bytes: int
    from_at: datetime | None
    to_at: datetime | None
    moved_at: datetime
    verified_at: datetime | None
    drop_eligible_at: datetime | None
    dropped_at: datetime | None
    error: str | None


@dataclass(frozen=True, slots=True)
class FileLine:
    """A file of a batch. Its manifest is next to it, with the suffix `.json`."""

    number: int
    object: str
    state: FileState
    rows: int | None
    bytes: int | None
    sha256: str | None
    keys_hash: str | None
    first_id: int | None
    last_id: int | None
    from_at: datetime | None
    to_at: datetime | None
    uploaded_at: datetime | None
    verified_at: datetime | None
    checked_at: datetime | None
    tries: int
    failed_at: datetime | None
    error: str | None


@dataclass(frozen=True, slots=True)
class BatchInfo:
    """The properties of a batch. `held_in`: its table in the archive's schema, None once it was dropped."""

    held_in: str | None
    key_columns: list[str]
    time_column: str
    schema_version: int
    columns: list[ParquetColumn]
    children_moved: bool


@dataclass(frozen=True, slots=True)
class DayLine:
    """A day in UTC that files of a kind cover. `rows`, `bytes`: of files that begin on that day."""

    day: date
    kind: str
    rows: int
    bytes: int
    files: int
    state: DayState


@dataclass(frozen=True, slots=True)
class ArchivedLocation:
    """Where a row is, if `held`; where it may be otherwise. `object`: None before there is a file."""

    kind: str
    batch: int
    number: int | None
    object: str | None
    state: FoundState
    held: bool


def kinds() -> Operation[list[KindLine]]:
    return [KindLine(*row) for row in (yield Statement(_sql["kinds"]))]


def kind_names() -> Operation[list[str]]:
    """Return every kind that was ever archived."""
    return [row[0] for row in (yield Statement(_sql["kind_names"]))]


def failures(limit: int = MOST_FAILURES) -> Operation[list[FailedFile]]:
    return [FailedFile(*row) for row in (yield Statement(_sql["failures"], {"limit": limit}))]


def restored(bound: int = BOUND + 1) -> Operation[list[RestoredSpan]]:
    return [RestoredSpan(*row) for row in (yield Statement(_sql["restored"], {"bound": bound}))]


def batches(
    kind: str | None = None, state: BatchState | None = None, before: int | None = None, limit: int = 50
) -> Operation[list[BatchLine]]:
    """Return batches, newest first; `before`: the last id of the previous page."""
    wanted = {"kind": kind, "state": state, "before": before, "number": None, "limit": limit}
    return [BatchLine(*row) for row in (yield Statement(_sql["batches"], wanted))]


def batch(number: int) -> Operation[tuple[BatchLine, BatchInfo] | None]:
    wanted = {"kind": None, "state": None, "before": None, "number": number, "limit": 1}
    rows = yield Statement(_sql["batches"], wanted)
    if not rows:
        return None
    held_in, keys, moment, version, columns, complete = (yield Statement(_sql["about"], {"batch": number}))[0]
    known = [ParquetColumn(**each) for each in json.loads(columns)]
    return BatchLine(*rows[0]), BatchInfo(held_in, keys, moment, version, known, complete)


def files(batch: int, after: int = 0, limit: int = MOST_FILES) -> Operation[list[FileLine]]:
    rows = yield Statement(_sql["files"], {"batch": batch, "after": after, "limit": limit})
    return [FileLine(*row) for row in rows]


def days(kind: str | None, first: date, last: date) -> Operation[list[DayLine]]:
    """Return the days that files cover, both ends of the window included."""
    rows = yield Statement(_sql["days"], {"kind": kind, "first": first, "last": last})
    return [DayLine(*row) for row in rows]


def whereabouts(kind: str, number: int) -> Operation[list[ArchivedLocation]]:
    """Find by the first part of the key, if that is a number; the newest batch first."""
    rows = yield Statement(_sql["whereabouts"], {"kind": kind, "id": number, "limit": MOST_PLACES})
    return [ArchivedLocation(*row) for row in rows]
