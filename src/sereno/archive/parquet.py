"""Writes and reads Parquet files in pieces: memory does not grow with the number of rows.

Pages of columns from PostgreSQL become Arrow, and Parquet in arro3, without a Python object per row.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from sereno.archive import checksum
from sereno.archive.checksum import PAGE_ROWS
from sereno.archive.rows import FileMeasure, PlannedFile
from sereno.archive.storage import missing
from sereno.errors import ArchiveUnavailable, first_line

# Rows per group in the file: some tens of megabytes of memory.
GROUP_ROWS = 200_000
COMPRESSION = "zstd(3)"
# Encoding of columns that are nearly sorted.
RISING: Final = "delta_binary_packed"
# One metadata entry: with several, their order and thus the checksum would differ from file to file.
ABOUT = "sereno"


class InvalidParquetFile(ArchiveUnavailable):
    """Rows could not be written as a file, or a file could not be read; the storage is not the cause."""


def write(planned: PlannedFile, file: Path, facts: Mapping[str, str]) -> FileMeasure:
    """Write the rows of a planned file. Return what they are according to the table."""
    try:
        from arro3.core import RecordBatchReader  # noqa: PLC0415 - heavy, and optional
        from arro3.io import write_parquet  # noqa: PLC0415 - as above

        from sereno.archive.pages import PageReader  # noqa: PLC0415 - psycopg: a process that checks does not need it
    except ImportError as error:
        raise missing(error) from None
    with _trouble("the rows could not be written to a file"), PageReader(planned) as reader:
        write_parquet(
            RecordBatchReader.from_batches(reader.schema(), reader.pages()),
            file,
            compression=COMPRESSION,
            max_row_group_size=GROUP_ROWS,
            write_batch_size=PAGE_ROWS,
            column_dictionary_enabled=dict.fromkeys(reader.rising, False),
            column_encoding=dict.fromkeys(reader.rising, RISING),
            key_value_metadata={ABOUT: json.dumps(dict(facts), sort_keys=True)},
        )
        return reader.measure()


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
