"""Rows of the archive: what its queries take and return to move, export, verify and restore."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias

from sereno.errors import InvalidArguments
from sereno.jobs.job import check_date

ByDays: TypeAlias = Literal["jobs", "fires", "attempts"]
# Tables that leave by rows: of `jobs` and `fires`, the rows outside their daily partitions.
Part: TypeAlias = Literal["dead", "jobs", "deliveries", "events", "fires", "logs"]

# Pages of a held table per transaction.
PAGES = 2000


@dataclass(frozen=True, slots=True)
class ParquetColumn:
    """A column and its type in PostgreSQL."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A file to write, and the database that has its rows."""

    url: str
    schema: str
    batch: int
    number: int


@dataclass(frozen=True, slots=True)
class PageColumn:
    """A column of a file. `nulls`: whether none, some or all of its values are null; `by_rows`: a query for them."""

    name: str
    type: str
    nulls: Literal["none", "some", "all"]
    by_rows: str


@dataclass(frozen=True, slots=True)
class FileDescription:
    """A planned file. `batch_rows`: rows of all files of its batch."""

    kind: str
    source: str
    key_columns: list[str]
    time_column: str
    columns: list[ParquetColumn]
    schema_version: int
    object: str
    batch_rows: int


@dataclass(frozen=True, slots=True)
class FileMeasure:
    """The expected contents of a file, computed from the table."""

    rows: int
    keys_hash: str
    content_hash: str
    first_id: int | None
    last_id: int | None
    from_at: datetime | None
    to_at: datetime | None

    def params(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file as it should be in the storage; `sha256` is None before it was written."""

    number: int
    object: str
    bytes: int | None
    sha256: str | None
    rows: int | None
    keys_hash: str | None


@dataclass(frozen=True, slots=True)
class KindOfRows:
    """How rows of a kind are identified. `key_type`: of the first key column; None if its table is gone."""

    kind: str
    source: str
    key_columns: list[str]
    time_column: str
    key_type: str | None


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """Selects rows by the first part of their keys, or by time (`to_at` exclusive); nothing set: all rows."""

    keys: Sequence[str] | None = None
    from_at: datetime | None = None
    to_at: datetime | None = None

    def check_times(self) -> None:
        """Raise InvalidArguments if a moment is out of range, or the span ends before it begins."""
        for moment in (self.from_at, self.to_at):
            check_date("moment", moment)
        if self.from_at is not None and self.to_at is not None and self.from_at >= self.to_at:
            raise InvalidArguments("the time span ends before it begins")


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
    columns: list[ParquetColumn]


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
