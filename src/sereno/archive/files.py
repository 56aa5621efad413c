"""Archived rows as views for queries, and as export files."""

import re
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from sereno.archive import restore_store as store
from sereno.archive import row_text
from sereno.archive.duckdb_views import ArchiveView, QueryRows
from sereno.archive.rows import ArchivedFile, TimeSpan
from sereno.archive.scratch import scratch
from sereno.archive.storage import Storage
from sereno.database.statement import Operation, Plan
from sereno.errors import ConfigurationError, InvalidArguments

ReportProgress = Callable[[float, str], None]

# DuckDB's options for each file format.
FORMS = {
    ".parquet": "format parquet, compression zstd",
    ".csv": "format csv, header true",
    ".jsonl": "format json",
}
# A part of a table's name: `"Odd ""name"".of mine"` or plain.
_PART = r'(?:"(?:[^"]|"")+"|[^".]+)'
_KIND = re.compile(rf"({_PART})\.({_PART})")


def views(span: TimeSpan, kind: str | None = None) -> Operation[list[ArchiveView]]:
    """Return a view for each kind that has files with rows of that time."""
    by_kind: dict[str, list[ArchivedFile]] = {}
    for file in (yield from store.files(kind, span)):
        by_kind.setdefault(file.kind, []).append(file)
    found = []
    for name, files in by_kind.items():
        doubled = yield from store.doubled(name)
        found.append(_view(name, files, doubled, span.from_at, span.to_at))
    return found


def export(kind: str, span: TimeSpan, place: Storage, out: Path, progress: ReportProgress) -> Plan[int]:
    """Export archived rows of a kind, from verified copies, to one file, completely or not at all. Return how many."""
    if out.suffix not in FORMS:
        raise InvalidArguments(f"{out.name}: the file name must end with one of {', '.join(FORMS)}")
    if not out.parent.is_dir():
        raise ConfigurationError(f"the directory {out.parent} does not exist")
    files: list[ArchivedFile] = yield store.files(kind, span)
    if not files:
        return 0
    doubled: list[str] = yield store.doubled(kind)
    part = out.absolute().with_name(f".{out.name}.part")
    with scratch("export") as directory:
        copies = Storage(f"file://{directory}", str(directory))
        total = sum(file.bytes for file in files)
        done = 0
        for file in files:
            progress(0.8 * done / total, f"copying and verifying {file.object}")
            copy = directory / file.object
            copy.parent.mkdir(parents=True, exist_ok=True)
            row_text.fetch(place, file.object, file.bytes, file.sha256, copy)
            done += file.bytes
        progress(0.8, f"writing {out.name}")
        view = _view(kind, files, doubled, span.from_at, span.to_at)
        try:
            with QueryRows(copies, [view], target=part) as rows:
                written = rows.write(view, FORMS[out.suffix])
            part.replace(out)
        finally:
            with suppress(FileNotFoundError):
                part.unlink()
    return written


def _view(
    kind: str, files: list[ArchivedFile], doubled: list[str], from_at: datetime | None, to_at: datetime | None
) -> ArchiveView:
    schema, name = _names(kind)
    return ArchiveView(
        schema=schema,
        name=name,
        objects={file.object: (file.bytes, file.batch) for file in files},
        key_columns=files[-1].key_columns,
        time_column=files[-1].time_column,
        types=_types(files),
        doubled=doubled,
        from_at=from_at,
        to_at=to_at,
    )


def _types(files: list[ArchivedFile]) -> dict[str, str]:
    """Return the types of columns that have always had the same type."""
    found: dict[str, set[str]] = {}
    for file in files:
        for column in file.columns:
            found.setdefault(column.name, set()).add(column.type)
    return {name: next(iter(types)) for name, types in found.items() if len(types) == 1}


def _names(kind: str) -> tuple[str | None, str]:
    """Return schema and name of a user's table; for a table of sereno, None and its kind."""
    parts = _KIND.fullmatch(kind)
    if parts is None:
        return None, kind
    schema, name = (part[1:-1].replace('""', '"') if part.startswith('"') else part for part in parts.groups())
    return schema, name
