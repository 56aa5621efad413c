"""Statements of the archiver. Each step is a transaction that records its state, so that the next run can continue.

moved ──▶ planned ──▶ uploaded ──▶ verified ──▶ (grace) ──▶ dropped
"""

import json
from typing import Any

from sereno.archive.rows import ByDays, FileDescription, FileMeasure, PageColumn, ParquetColumn, Part, StoredFile
from sereno.database.statement import Operation, Statement, queries

_sql = queries("archive/store")


def move_day(kind: ByDays, name: str) -> Operation[int | None]:
    """Move a daily partition. Return its batch; None if it was empty or already gone."""
    found: int | None = _first((yield Statement(_sql["move_day"], {"kind": kind, "name": name})))
    return found


def move_rows(part: Part, age: float, most: int) -> Operation[int]:
    """Move rows older than `age` seconds. Return how many."""
    rows = yield Statement(_sql["move_rows"], {"part": part, "age": age, "most": most})
    return int(rows[0][0])


def move_table(name: str, moment: str, age: float, most: int) -> Operation[int]:
    """Move rows of a user's table. Return how many."""
    rows = yield Statement(_sql["move_table"], {"name": name, "moment": moment, "age": age, "most": most})
    return int(rows[0][0])


def without_children() -> Operation[list[int]]:
    return [row[0] for row in (yield Statement(_sql["without_children"]))]


def move_children(batch: int, most: int) -> Operation[tuple[int, bool]]:
    """Move a page of children of about `most` rows. Return how many moved, and whether that was the last page."""
    rows = yield Statement(_sql["move_children"], {"batch": batch, "most": most})
    return int(rows[0][0]), bool(rows[0][1])


def open_batches() -> Operation[list[tuple[int, str]]]:
    """Return number and kind of unverified batches."""
    return [(row[0], row[1]) for row in (yield Statement(_sql["open_batches"]))]


def plan(batch: int, most: int) -> Operation[None]:
    """Plan the files of a batch, of about `most` rows each; does nothing if they are planned."""
    yield Statement(_sql["plan"], {"batch": batch, "most": most})


def open_files() -> Operation[list[tuple[int, int]]]:
    """Return batch and number of each unverified file; those that failed before come last."""
    return [(row[0], row[1]) for row in (yield Statement(_sql["open_files"]))]


def describe(batch: int, number: int) -> Operation[FileDescription | None]:
    """Return what is known of a file before it is written; None if its rows were dropped in the meantime."""
    rows = yield Statement(_sql["describe"], {"batch": batch, "number": number})
    if not rows:
        return None
    kind, source, keys, moment, columns, *others = rows[0]
    return FileDescription(kind, source, keys, moment, [ParquetColumn(**each) for each in json.loads(columns)], *others)


def file_query(batch: int, number: int) -> Operation[tuple[str, list[PageColumn], list[str]]]:
    """Return the query for the pages of a file, its columns, and the names of those that mostly grow."""
    ((query, columns, rising),) = yield Statement(_sql["file_query"], {"batch": batch, "number": number})
    return query, [PageColumn(**each) for each in json.loads(columns)], rising


def uploaded(batch: int, number: int, measured: FileMeasure, name: str, sha256: str, length: int) -> Operation[bool]:
    """Record an upload. Return False for a file that is already verified."""
    facts = {"batch": batch, "number": number, "object": name, "sha256": sha256, "bytes": length}
    return bool((yield Statement(_sql["uploaded"], facts | measured.params())))


def verified(batch: int, number: int, sha256: str, *, since: int | None = None) -> Operation[bool]:
    """Mark a file as verified. Return False if another checksum was recorded, or if `tries` are no longer `since`."""
    given = {"batch": batch, "number": number, "sha256": sha256, "tries": since}
    return bool((yield Statement(_sql["verified"], given)))


def tries(batch: int, number: int) -> Operation[int]:
    """Return how often a file was written or found broken."""
    rows = yield Statement(_sql["tries"], {"batch": batch, "number": number})
    return int(rows[0][0]) if rows else 0


def failed(batch: int, number: int, error: str) -> Operation[None]:
    yield Statement(_sql["failed"], {"batch": batch, "number": number, "error": error})


def not_written(batch: int, number: int, error: str) -> Operation[bool]:
    """Record a failure. Return False if another archiver has verified the file in the meantime."""
    return bool((yield Statement(_sql["not_written"], {"batch": batch, "number": number, "error": error})))


def reopen(batch: int, number: int) -> Operation[bool]:
    """Reopen a file to be written again. Return False if its rows are no longer held."""
    return bool((yield Statement(_sql["reopen"], {"batch": batch, "number": number})))


def settle_batch(batch: int, grace: float) -> Operation[bool]:
    """Mark a batch as verified if all of its files are. Return whether it became so now."""
    return bool((yield Statement(_sql["settle_batch"], {"batch": batch, "grace": grace})))


def droppable() -> Operation[list[int]]:
    return [row[0] for row in (yield Statement(_sql["droppable"]))]


def files_of(batch: int) -> Operation[list[StoredFile]]:
    return [StoredFile(*row) for row in (yield Statement(_sql["files_of"], {"batch": batch}))]


def drop_batch(batch: int) -> Operation[bool]:
    """Drop a batch. Return whether it was dropped. psycopg.Error if its files differ from the table."""
    return bool(_first((yield Statement(_sql["drop_batch"], {"batch": batch}))))


def batch_failed(batch: int, error: str) -> Operation[None]:
    yield Statement(_sql["batch_failed"], {"batch": batch, "error": error})


def _first(rows: list[Any]) -> Any:
    return rows[0][0] if rows else None
