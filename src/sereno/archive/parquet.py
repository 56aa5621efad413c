"""Rows as Parquet files: written while PostgreSQL sends them, read back in pieces. Memory does not grow with rows.

PostgreSQL's own COPY becomes Arrow in ADBC and Parquet in arro3, without one Python object a row.
"""

import hashlib
import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from sereno.archive.place import missing
from sereno.errors import ArchiveUnavailable, first_line

# Small pieces from the server, middling groups in the file: some tens of megabytes at any time.
PIECE = 4 * 1024 * 1024
GROUP_ROWS = 200_000
READ_ROWS = 8192
COMPRESSION = "zstd(3)"
# Written after one another in each file, and dense: they are nearly sorted.
RISING: Final = "delta_binary_packed"


# What is written as a text is written alike, whatever the server or the environment prefers.
ALIKE = {
    "timezone": "UTC",
    "datestyle": "ISO, YMD",
    "intervalstyle": "postgres",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "statement_timeout": "0",
    # To sort in, where no index does it. The index of the key costs less than helpers whose rows are merged.
    "work_mem": "128MB",
    "max_parallel_workers_per_gather": "0",
}
# Between the columns of a row, and for a value that is null, where a checksum is made of them.
BETWEEN, NULL = "\x1f", "\x1e"
# PostgreSQL's first instant, in microseconds of ours.
EPOCH_2000 = 946_684_800_000_000
# One entry of the file's own: of several, each file would have them in another order, and another checksum.
ABOUT = "sereno"


class BadFile(ArchiveUnavailable):
    """Rows that did not become a file, or a file that does not become rows; the place has no part in it."""


def write(url: str, select: str, file: Path, rising: Sequence[str], facts: Mapping[str, str]) -> None:
    """What a query of ours answers, as a file. `rising`: columns of numbers or instants that mostly grow."""
    try:
        import adbc_driver_manager as manager  # noqa: PLC0415 - heavy, and optional
        import adbc_driver_postgresql as driver  # noqa: PLC0415 - as above
        from arro3.core import RecordBatchReader  # noqa: PLC0415 - as above
        from arro3.io import write_parquet  # noqa: PLC0415 - as above
    except ImportError as error:
        raise missing(error) from None
    settings = ", ".join(f"set_config('{name}', '{value}', true)" for name, value in ALIKE.items())
    with (
        _trouble("the rows did not become a file"),
        driver.connect(url) as database,
        manager.AdbcConnection(database) as connection,
        manager.AdbcStatement(connection) as statement,
    ):
        # One transaction: behind a pooler, the settings would be somebody else's after it.
        connection.set_autocommit(False)
        statement.set_sql_query(f"select {settings}")
        list(RecordBatchReader.from_stream(statement.execute_query()[0]))
        statement.set_options(**{driver.StatementOptions.BATCH_SIZE_HINT_BYTES.value: str(PIECE)})
        statement.set_sql_query(select)
        stream, _ = statement.execute_query()
        write_parquet(
            RecordBatchReader.from_stream(stream),
            file,
            compression=COMPRESSION,
            max_row_group_size=GROUP_ROWS,
            write_batch_size=READ_ROWS,
            column_dictionary_enabled=dict.fromkeys(rising, False),
            column_encoding=dict.fromkeys(rising, RISING),
            key_value_metadata={ABOUT: json.dumps(dict(facts), sort_keys=True)},
        )


def batches(file: Path) -> Iterator[Any]:
    """Arrow record batches of a file, in its order; what is no such file is BadFile.

    Its checksum was compared before: some garbage would end the whole process, and other garbage would be believed.
    """
    try:
        from arro3.io import read_parquet  # noqa: PLC0415 - heavy, and optional
    except ImportError as error:
        raise missing(error) from None
    with _trouble("it cannot be read as Parquet"):
        yield from read_parquet(file, batch_size=READ_ROWS)


@contextmanager
def _trouble(words: str) -> Iterator[None]:
    """The libraries have no names of their own for most of what can happen, and panic over some of it."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        said = first_line(error).replace("C Data interface error: ", "")
        raise BadFile(f"{words}: {said}") from error


def checksums(file: Path, key_columns: Sequence[str]) -> tuple[int, str, str]:
    """Rows, the hash of their keys, and the sum of their contents, as SQL's `measure_file` says them."""
    digest, rows, contents = hashlib.sha256(), 0, 0
    for batch in batches(file):
        with _trouble("its rows cannot be read"):
            keys = "\n".join(keys_in(batch, key_columns))
            contents += content_sum(batch)
        digest.update(f"{chr(10) if rows else ''}{keys}".encode())
        rows += batch.num_rows
    return rows, digest.hexdigest(), str(contents)


def content_sum(batch: Any) -> int:
    """Of all columns of all rows, in any order; each row as SQL's `row_checksum` writes it."""
    hashed, columns = hashlib.sha256, _together(batch)
    digests = b"".join([hashed(BETWEEN.join(row).encode()).digest()[:8] for row in zip(*columns, strict=True)])
    return sum(struct.unpack(f">{len(digests) // 8}q", digests))


def _together(batch: Any) -> list[list[str]]:
    """The columns as texts. Neighbours that hold nothing but nulls are one: in most tables they are many."""
    found: list[list[str]] = []
    empty = 0
    for column in [*map(batch.column, batch.column_names), None]:
        if column is not None and column.null_count == batch.num_rows:
            empty += 1
            continue
        if empty:
            found.append([BETWEEN.join([NULL] * empty)] * batch.num_rows)
            empty = 0
        if column is not None:
            found.append(_contents(column))
    return found


def _contents(column: Any) -> list[str]:
    """Each value as a text; instants and floats by their bytes."""
    from arro3.core import DataType  # noqa: PLC0415 - as above

    kind = column.type
    if DataType.is_timestamp(kind):
        return _instants(column.cast(DataType.int64()).to_pylist())
    if DataType.is_date32(kind):
        column = column.cast(DataType.int32())
    values = column.to_pylist()
    write: Callable[[Any], str] | None = None
    if DataType.is_integer(column.type):
        write = str
    elif DataType.is_floating(kind):
        pack = struct.Struct(">f" if DataType.is_float32(kind) else ">d").pack
        write = lambda value: pack(value).hex()  # noqa: E731 - one of several
    elif DataType.is_boolean(kind):
        write = {True: "true", False: "false"}.__getitem__
    elif DataType.is_binary(kind) or DataType.is_large_binary(kind):
        write = bytes.hex
    if not column.null_count:
        return values if write is None else list(map(write, values))
    return [NULL if value is None else value if write is None else write(value) for value in values]


def _instants(moments: list[int | None]) -> list[str]:
    """Eight bytes each, from PostgreSQL's first instant on."""
    known = [moment - EPOCH_2000 for moment in moments if moment is not None]
    digits = struct.pack(f">{len(known)}q", *known).hex()
    texts = [digits[place : place + 16] for place in range(0, len(digits), 16)]
    if len(known) == len(moments):
        return texts
    following = iter(texts)
    return [NULL if moment is None else next(following) for moment in moments]


def keys_in(batch: Any, key_columns: Sequence[str]) -> list[str]:
    """The key of each row as a text, as SQL's `archive_key` says it."""
    columns = [_texts(batch.column(name)) for name in key_columns]
    return columns[0] if len(columns) == 1 else ["\t".join(parts) for parts in zip(*columns, strict=True)]


def _texts(column: Any) -> list[str]:
    from arro3.core import DataType  # noqa: PLC0415 - as above

    if DataType.is_timestamp(column.type):
        column = column.cast(DataType.int64())
    elif DataType.is_date32(column.type):
        column = column.cast(DataType.int32())
    return list(map(str, column.to_pylist()))


def sha256(file: Path) -> str:
    with file.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()
