"""Selected rows of a file as texts that PostgreSQL can read, in pieces."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sereno.archive import parquet
from sereno.archive.storage import Storage
from sereno.errors import ArchiveUnavailable

# A piece ends at this number of rows or characters, whichever comes first.
PIECE_ROWS = 2000
PIECE_LETTERS = 4 * 1024 * 1024

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
A_DAY = 86_400_000_000

Row = list[str | None]


@dataclass(frozen=True, slots=True)
class WantedRows:
    """Selects rows whose `column` is one of `keys`, rows between two instants, or all rows."""

    column: str
    keys: frozenset[str] | None
    time_column: str
    from_at: datetime | None
    to_at: datetime | None

    def places(self, batch: Any) -> list[int]:
        """Return their positions in a batch."""
        chosen: Sequence[int] = range(batch.num_rows)
        if self.keys is not None:
            values = texts(batch.column(self.column))
            chosen = [place for place in chosen if values[place] in self.keys]
        if self.from_at is not None or self.to_at is not None:
            low = -1 if self.from_at is None else microseconds(self.from_at)
            high = None if self.to_at is None else microseconds(self.to_at)
            moments = _instants(batch.column(self.time_column))
            chosen = [
                place
                for place in chosen
                if (self.from_at is None or moments[place] >= low) and (high is None or moments[place] < high)
            ]
        return list(chosen)


@dataclass(frozen=True, slots=True)
class RowBatch:
    """Rows with their values in the order of `names`."""

    names: list[str]
    rows: list[Row]

    def column(self, name: str) -> list[str | None]:
        place = self.names.index(name)
        return [row[place] for row in self.rows]

    def only(self, is_wanted: Callable[[Row], bool]) -> "RowBatch":
        return RowBatch(self.names, [row for row in self.rows if is_wanted(row)])


def fetch(place: Storage, name: str, length: int, sha256: str, file: Path) -> None:
    """Copy an object to a file. Raises ArchiveUnavailable if it differs from the verified one. Blocks."""
    found, read = place.get(name, file)
    if (read, found) != (length, sha256):
        raise ArchiveUnavailable(
            f"{name} differs from the file that was verified ({read:,} bytes, {found[:12]}…): it is not used; "
            "run sereno archive verify"
        )


def count(file: Path, wanted: WantedRows) -> int:
    """Return how many rows match."""
    return sum(len(wanted.places(batch)) for batch in parquet.batches(file))


def pieces(file: Path, wanted: WantedRows) -> Iterator[RowBatch]:
    """Yield the matching rows in pieces of a few megabytes at most."""
    for batch in parquet.batches(file):
        chosen = wanted.places(batch)
        for start in range(0, len(chosen), PIECE_ROWS):
            yield from _pieces_of(batch.take(_numbers(chosen[start : start + PIECE_ROWS])))


def _pieces_of(batch: Any) -> Iterator[RowBatch]:
    names = list(batch.column_names)
    rows: list[Row] = []
    letters = 0
    for values in zip(*(texts(batch.column(name)) for name in names), strict=True):
        rows.append(list(values))
        letters += sum(len(value) for value in values if value is not None)
        if letters > PIECE_LETTERS:
            yield RowBatch(names, rows)
            rows, letters = [], 0
    if rows:
        yield RowBatch(names, rows)


def _numbers(places: list[int]) -> Any:
    from arro3.core import Array, DataType  # noqa: PLC0415 - heavy, and optional

    return Array(places, type=DataType.uint64())


def texts(column: Any) -> list[str | None]:
    """Return each value as text in a form that PostgreSQL reads."""
    from arro3.core import DataType  # noqa: PLC0415 - heavy, and optional

    kind = column.type
    if DataType.is_timestamp(kind):
        zone = UTC if kind.tz is not None else None
        return [None if n is None else _moment(n).replace(tzinfo=zone).isoformat(" ") for n in _as_numbers(column)]
    if DataType.is_date(kind):
        return [None if n is None else _moment(n * A_DAY).date().isoformat() for n in _as_numbers(column)]
    values = column.to_pylist()
    if DataType.is_boolean(kind):
        return [None if value is None else str(value).lower() for value in values]
    if DataType.is_binary(kind) or DataType.is_large_binary(kind):
        return [None if value is None else f"\\x{value.hex()}" for value in values]
    return [None if value is None else str(value) for value in values]


def _as_numbers(column: Any) -> list[int | None]:
    from arro3.core import DataType  # noqa: PLC0415 - heavy, and optional

    number = DataType.int32() if DataType.is_date32(column.type) else DataType.int64()
    found: list[int | None] = column.cast(number).to_pylist()
    return found


def _moment(number: int) -> datetime:
    try:
        return EPOCH + timedelta(microseconds=number)
    except OverflowError:
        raise ArchiveUnavailable(f"an instant of {number} microseconds is outside the calendar") from None


def microseconds(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


def _instants(column: Any) -> list[float]:
    """Return comparable instants in microseconds; a null comes before everything."""
    from arro3.core import DataType  # noqa: PLC0415 - heavy, and optional

    if DataType.is_timestamp(column.type) or DataType.is_date(column.type):
        factor = A_DAY if DataType.is_date(column.type) else 1
        return [float("-inf") if number is None else number * factor for number in _as_numbers(column)]
    return [float("-inf") if text is None else _instant(text) for text in column.to_pylist()]


def _instant(text: str) -> float:
    """Return the instant of a text of PostgreSQL, which may be outside Python's calendar."""
    if text == "-infinity" or text.endswith(" BC"):
        return float("-inf")
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        # Infinity, and years with five or more digits.
        return float("inf")
    return microseconds(found if found.tzinfo else found.replace(tzinfo=UTC))
