"""Writes and reads Parquet files in pieces: memory does not grow with the number of rows.

PostgreSQL's COPY becomes Arrow in ADBC and Parquet in arro3, without a Python object per row.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from sereno.archive import checksum
from sereno.archive.checksum import PAGE_ROWS
from sereno.archive.storage import missing
from sereno.errors import ArchiveUnavailable, first_line

# Bytes per piece from the server, and rows per group in the file: some tens of megabytes of memory.
PIECE = 4 * 1024 * 1024
GROUP_ROWS = 200_000
COMPRESSION = "zstd(3)"
# Encoding of columns that are nearly sorted.
RISING: Final = "delta_binary_packed"


# Settings that make text output identical, whatever the server or the environment prefers.
ALIKE = {
    "timezone": "UTC",
    "datestyle": "ISO, YMD",
    "intervalstyle": "postgres",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "statement_timeout": "0",
    # For sorts without an index. The index of the key costs less than parallel workers whose rows are merged.
    "work_mem": "128MB",
    "max_parallel_workers_per_gather": "0",
}
# One metadata entry: with several, their order and thus the checksum would differ from file to file.
ABOUT = "sereno"


class InvalidParquetFile(ArchiveUnavailable):
    """Rows could not be written as a file, or a file could not be read; the storage is not the cause."""


def write(url: str, select: str, file: Path, rising: Sequence[str], facts: Mapping[str, str]) -> None:
    """Write the result of a query to a file. `rising`: columns of numbers or instants that mostly grow."""
    try:
        import adbc_driver_manager as manager  # noqa: PLC0415 - heavy, and optional
        import adbc_driver_postgresql as driver  # noqa: PLC0415 - as above
        from arro3.core import RecordBatchReader  # noqa: PLC0415 - as above
        from arro3.io import write_parquet  # noqa: PLC0415 - as above
    except ImportError as error:
        raise missing(error) from None
    settings = ", ".join(f"set_config('{name}', '{value}', true)" for name, value in ALIKE.items())
    with (
        _trouble("the rows could not be written to a file"),
        driver.connect(url) as database,
        manager.AdbcConnection(database) as connection,
        manager.AdbcStatement(connection) as statement,
    ):
        # One transaction: behind a pooler, the settings would otherwise affect other clients.
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
            write_batch_size=PAGE_ROWS,
            column_dictionary_enabled=dict.fromkeys(rising, False),
            column_encoding=dict.fromkeys(rising, RISING),
            key_value_metadata={ABOUT: json.dumps(dict(facts), sort_keys=True)},
        )


def batches(file: Path) -> Iterator[Any]:
    """Yield Arrow record batches of a file in order. Raises InvalidParquetFile.

    The checksum must have been compared before: some corrupt files crash the process, others are read as valid.
    """
    try:
        from arro3.io import read_parquet  # noqa: PLC0415 - heavy, and optional
    except ImportError as error:
        raise missing(error) from None
    with _trouble("it cannot be read as Parquet"):
        yield from read_parquet(file, batch_size=PAGE_ROWS)


@contextmanager
def _trouble(problem: str) -> Iterator[None]:
    """Turn errors of the libraries into InvalidParquetFile: they have few classes of their own, and some panic."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        text = first_line(error).replace("C Data interface error: ", "")
        raise InvalidParquetFile(f"{problem}: {text}") from error


def checksums(file: Path, key_columns: Sequence[str]) -> tuple[int, str, str]:
    """Return the number of rows, the hash of their keys, and that of all columns, as SQL's `measure_file` does."""
    keys_hash, content_hash, rows = hashlib.sha256(), hashlib.sha256(), 0
    for batch in batches(file):
        with _trouble("its rows cannot be read"):
            keys = checksum.keys_text(batch, key_columns)
            content_hash.update(checksum.page_digest(batch))
        keys_hash.update(f"{chr(10) if rows else ''}{keys}".encode())
        rows += batch.num_rows
    return rows, keys_hash.hexdigest(), content_hash.hexdigest()


def sha256(file: Path) -> str:
    with file.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()
