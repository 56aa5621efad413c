"""Reads the rows of a file from PostgreSQL in pages. A column of a page is one value and becomes an Arrow array.

SQL's `file_query` describes the columns, and `file_columns` what they are sent as. A column that cannot be sent so
(bytes, long texts, texts with a separator in them) is read by rows, through a second connection.
"""

import hashlib
import re
import sys
from array import array
from collections.abc import Iterator
from contextlib import ExitStack, closing
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, Self

import psycopg
from psycopg import IsolationLevel

from sereno.archive import store
from sereno.archive.checksum import BETWEEN, EPOCH_DAYS, EPOCH_MICROSECONDS, NULL, add_to_each
from sereno.archive.rows import FileMeasure, PageColumn, PlannedFile
from sereno.database.statement import run

# Settings that make text output identical, whatever the server or the environment prefers.
ALIKE: Final = {
    "timezone": "UTC",
    "datestyle": "ISO, YMD",
    "intervalstyle": "postgres",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "statement_timeout": "0",
    # Rows come in the order of the key from its index, which costs less than a sort, or workers whose rows are merged.
    "work_mem": "128MB",
    "max_parallel_workers_per_gather": "0",
    "enable_sort": "off",
    "jit": "off",
}
# For each type of fixed size: its code in `array`, and what is added to its values.
FIXED: Final = {
    "int2": ("h", 0),
    "int4": ("i", 0),
    "int8": ("q", 0),
    "float4": ("f", 0),
    "float8": ("d", 0),
    "bool": ("b", 0),
    "date": ("i", EPOCH_DAYS),
    "timestamp": ("q", EPOCH_MICROSECONDS),
    "timestamptz": ("q", EPOCH_MICROSECONDS),
}
_SETTINGS = ", ".join(f"set_config('{name}', '{value}', true)" for name, value in ALIKE.items())
_RUNS = re.compile("1+|0+")


class PageReader:
    """The pages of a file. Entering it connects; `measure` is complete when all `pages` were read."""

    def __init__(self, planned: PlannedFile) -> None:
        self._planned = planned
        self._open = ExitStack()
        self._rows, self._keys, self._content = 0, hashlib.sha256(), hashlib.sha256()
        self._ids: list[int] = []
        self._moments: list[datetime] = []
        # Columns read by rows, with the number of rows read.
        self._cursors: dict[str, tuple[psycopg.ServerCursor[Any], int]] = {}
        self._second: psycopg.Connection[Any] | None = None

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            self._first = opened.enter_context(closing(self._connect()))
            how = store.file_query(self._planned.batch, self._planned.number)
            self._query, self.columns, self.rising = run(self._first, how, self._planned.schema)
            self._open = opened.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        self._open.close()

    def schema(self) -> Any:
        from arro3.core import Field, Schema  # noqa: PLC0415 - heavy, and optional

        return Schema([Field(column.name, _type(column.type), nullable=True) for column in self.columns])

    def pages(self) -> Iterator[Any]:
        """Yield the rows as Arrow record batches."""
        from arro3.core import RecordBatch  # noqa: PLC0415 - heavy, and optional

        schema = self.schema()
        for page in self._first.cursor(binary=True).stream(self._query):
            _place, rows, keys, low, high, began, ended, digest, *sent = page
            fields = iter(sent)
            arrays = [self._column(column, rows, fields) for column in self.columns]
            yield RecordBatch.from_arrays(arrays, schema=schema)
            self._keys.update(f"{chr(10) if self._rows else ''}{keys}".encode())
            self._content.update(digest)
            self._ids = [each for each in (low, high, *self._ids) if each is not None]
            self._ids = [min(self._ids), max(self._ids)] if self._ids else []
            self._moments = [min((began, *self._moments)), max((ended, *self._moments))]
            self._rows += rows

    def measure(self) -> FileMeasure:
        """Return what PostgreSQL computed from the rows of the table."""
        return FileMeasure(
            self._rows,
            self._keys.hexdigest(),
            self._content.hexdigest(),
            *(self._ids or (None, None)),
            *(self._moments or (None, None)),
        )

    def _connect(self) -> psycopg.Connection[Any]:
        connection = psycopg.connect(self._planned.url)
        # One transaction: the counts of nulls and the pages are those of one moment, and behind a pooler, the settings
        # would otherwise affect other clients.
        connection.isolation_level = IsolationLevel.REPEATABLE_READ
        connection.execute(f"select {_SETTINGS}")
        return connection

    def _column(self, column: PageColumn, rows: int, fields: Iterator[Any]) -> Any:
        if column.nulls == "all":
            return _nulls(column.type, rows)
        if column.type in FIXED:
            return _fixed(column, rows, fields)
        found = _texts(rows, next(fields), next(fields)) if column.type == "text" else None
        return self._by_rows(column, rows) if found is None else found

    def _by_rows(self, column: PageColumn, rows: int) -> Any:
        """Return a page of a column, read by rows."""
        if self._second is None:
            self._second = self._open.enter_context(closing(self._connect()))
        if column.name not in self._cursors:
            cursor = self._open.enter_context(self._second.cursor(f"sereno_{len(self._cursors)}", binary=True))
            self._cursors[column.name] = cursor.execute(column.by_rows), 0
        cursor, read = self._cursors[column.name]
        if self._rows > read:
            cursor.scroll(self._rows - read)
        self._cursors[column.name] = cursor, self._rows + rows
        return _array_of([value for (value,) in cursor.fetchmany(rows)], column.type)


def _type(name: str) -> Any:
    from arro3.core import DataType  # noqa: PLC0415 - heavy, and optional

    return {
        "int2": DataType.int16(),
        "int4": DataType.int32(),
        "int8": DataType.int64(),
        "float4": DataType.float32(),
        "float8": DataType.float64(),
        "bool": DataType.bool(),
        "date": DataType.date32(),
        "timestamp": DataType.timestamp("us"),
        "timestamptz": DataType.timestamp("us", tz="UTC"),
        "bytea": DataType.binary(),
        "text": DataType.string(),
    }[name]


def _array_of(values: list[Any], name: str) -> Any:
    """Return an Arrow array of Python values; of integers for instants and dates."""
    from arro3.core import Array  # noqa: PLC0415 - heavy, and optional

    stored = {"date": "int4", "timestamp": "int8", "timestamptz": "int8"}.get(name, name)
    return Array(values, type=_type(stored)).cast(_type(name))


@lru_cache(maxsize=32)
def _nulls(name: str, rows: int) -> Any:
    return _array_of([None] * rows, name)


def _fixed(column: PageColumn, rows: int, fields: Iterator[Any]) -> Any:
    """Return the values of a type of fixed size, which were sent in network order."""
    from arro3.core import Array  # noqa: PLC0415 - heavy, and optional

    sent: bytes = next(fields)
    code, epoch = FIXED[column.type]
    present = next(fields) if column.nulls == "some" else ""
    values = array(code, _without_nulls(sent, present, array(code).itemsize) if "0" in present else sent)
    if sys.byteorder == "little":
        values.byteswap()
    if epoch:
        values = array(code, add_to_each(values.tobytes(), values.itemsize, epoch))
    if len(values) + present.count("0") != rows:
        raise ValueError(f"{column.name}: {len(values):,} values of {rows:,} rows were received")
    if column.type == "bool" or "0" in present:
        listed = iter(map(bool, values) if column.type == "bool" else values)
        return _array_of([next(listed) if each == "1" else None for each in present or "1" * rows], column.type)
    return Array.from_buffer(values).cast(_type(column.type))


def _without_nulls(sent: bytes, present: str, size: int) -> bytes:
    """Return values without the byte that stands for each null. `present`: 1 or 0 for each row."""
    kept, start = bytearray(), 0
    for found in _RUNS.findall(present):
        length = len(found) * (size if found[0] == "1" else len(NULL))
        kept += sent[start : start + length] if found[0] == "1" else b""
        start += length
    return bytes(kept)


def _texts(rows: int, joined: str, nulls: int | None) -> Any:
    """Return texts that were joined; None if it is not certain where each of them ends and which are null."""
    null = NULL.decode()
    values: list[Any] = joined.split(BETWEEN.decode())
    if nulls is None or len(values) != rows or (nulls and values.count(null) != nulls):
        return None
    if nulls:
        values = [None if value == null else value for value in values]
    return _array_of(values, "text")
