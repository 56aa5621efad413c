"""Restores archived rows into their tables: a job with its attempts, a delivery with its receipts, a time span.

A file is copied and its checksum compared before any of it is used. Each file, and each few pages of a table that still
holds its rows, is one transaction with its audit entry; an interrupted restore can be repeated.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from sereno.access import audit
from sereno.access.actor import default_actor
from sereno.archive import restore_store as store
from sereno.archive import row_text
from sereno.archive.queries import kind_names
from sereno.archive.rows import FileSource, KindOfRows, RestoredRows, TimeSpan
from sereno.archive.scratch import scratch
from sereno.archive.storage import Storage
from sereno.database.statement import Operation, Plan
from sereno.errors import InvalidArguments, Refused
from sereno.settings import A_DAY

KEEP_DAYS = 30
LONGEST_KEEP = 3660 * A_DAY
# Rows that are restored without a confirmation.
MOST = 10_000
# Ids in one request.
MOST_KEYS = 10_000

ReportProgress = Callable[[float, str], None]

# Child kinds, and the column that refers to the parent.
CHILDREN = {"jobs": ("attempts", "job_id"), "deliveries": ("receipts", "delivery_id")}
_WHOLE = ("integer", "bigint", "smallint")
_MOMENTS = ("timestamp with time zone", "timestamp without time zone", "date")


@dataclass(frozen=True, slots=True)
class RestoreRequest:
    """What to restore, and for how many seconds. `without`: columns that the table no longer has."""

    kind: str
    span: TimeSpan
    keep: float = float(KEEP_DAYS * A_DAY)
    without: tuple[str, ...] = ()

    def check(self) -> None:
        """Raise InvalidArguments if the request is invalid. Reads nothing."""
        span = self.span
        if span.keys is None and span.from_at is None and span.to_at is None:
            raise InvalidArguments("choose rows: give ids, or a time span with --from and --to")
        if span.keys is not None and (span.from_at is not None or span.to_at is not None):
            raise InvalidArguments("give either ids or a time span, not both")
        if span.keys is not None and not 0 < len(span.keys) <= MOST_KEYS:
            raise InvalidArguments(f"give 1 to {MOST_KEYS:,} ids, or a time span")
        span.check_times()
        if not 0 < self.keep <= LONGEST_KEEP:
            raise InvalidArguments("restored rows must stay for more than 0 seconds and at most ten years")


@dataclass(slots=True)
class RestoreResult:
    """What was restored; `children`: rows that belong to it. `sources`: files and tables that were read."""

    kind: str
    rows: RestoredRows = field(default_factory=RestoredRows)
    children_kind: str | None = None
    children: RestoredRows = field(default_factory=RestoredRows)
    sources: int = 0


@dataclass(frozen=True, slots=True)
class RestoreJob:
    """A restore from the sources of one kind. `parent`: the parent's kind, and the column that refers to it."""

    request: RestoreRequest
    known: KindOfRows
    place: Storage
    actor: str
    parent: tuple[str, str] | None = None

    def wanted(self, source: FileSource) -> row_text.WantedRows:
        span = self.request.span
        column = self.parent[1] if self.parent else source.key_columns[0]
        keys = None if span.keys is None else frozenset(span.keys)
        if self.parent:
            return row_text.WantedRows(column, keys, source.time_column, None, None)
        return row_text.WantedRows(column, keys, source.time_column, span.from_at, span.to_at)

    def held_span(self, source: FileSource) -> TimeSpan:
        """Return the span to read; children are selected by their restored parents."""
        if self.parent is None:
            return self.request.span
        by_key = self.parent[1] == source.key_columns[0]
        return TimeSpan(keys=self.request.span.keys if by_key else None)


def restore(
    request: RestoreRequest, place: Storage, progress: ReportProgress, *, yes: bool = False, actor: str | None = None
) -> Plan[RestoreResult]:
    """Restore rows. Raises Refused if there are many and it is not confirmed."""
    restore_job = yield from _restore_job(request, place, actor)
    sources: list[FileSource] = yield _sources(restore_job)
    if not yes and not _are_few(request, sources):
        found = yield from _count(restore_job, sources, progress, MOST + 1)
        if found > MOST:
            raise Refused(
                f"more than {MOST:,} rows of {request.kind} would be restored: count with --dry-run, confirm with --yes"
            )
    outcome = RestoreResult(restore_job.known.kind)
    moved = yield from _walk(restore_job, sources, progress, outcome)
    if restore_job.known.kind in CHILDREN and outcome.rows.found:
        yield from _restore_children(restore_job, progress, outcome, moved)
    return outcome


def count(request: RestoreRequest, place: Storage, progress: ReportProgress) -> Plan[int]:
    """Count the rows that a request would restore. Changes nothing."""
    restore_job = yield from _restore_job(request, place, None)
    sources: list[FileSource] = yield _sources(restore_job)
    return (yield from _count(restore_job, sources, progress, None))


def checked_request(request: RestoreRequest) -> Operation[tuple[RestoreRequest, KindOfRows]]:
    """Return the request with normalized keys, and the kind. Raises InvalidArguments."""
    request.check()
    known = yield from store.kind(request.kind)
    children = {child for child, _ in CHILDREN.values()}
    if known is None or known.kind in children:
        names = yield from kind_names()
        raise unknown_kind(request.kind, [name for name in names if name not in children])
    keys = request.span.keys
    if keys is not None and known.key_type in _MOMENTS:
        raise InvalidArguments(f"rows of {known.kind} have no ids: give a time span with --from and --to")
    if keys is not None and known.key_type in _WHOLE and not all(_is_whole(key) for key in keys):
        raise InvalidArguments(f"an id of {known.kind} is a number")
    if keys is not None and known.key_type in _WHOLE:
        request = replace(request, span=TimeSpan(keys=[str(int(key)) for key in keys]))
    return request, known


def unknown_kind(kind: str, known: Sequence[str]) -> InvalidArguments:
    """Return the error for a kind that the archive has no rows of."""
    text = f"it has {', '.join(known)}" if known else "it is empty"
    return InvalidArguments(f"the archive has no rows of {kind!r:.80}: {text}")


def _restore_job(request: RestoreRequest, place: Storage, actor: str | None) -> Plan[RestoreJob]:
    request, known = yield checked_request(request)
    return RestoreJob(request, known, place, actor or default_actor())


def _sources(restore_job: RestoreJob) -> Operation[list[FileSource]]:
    keys = restore_job.request.span.keys
    low = high = None
    if keys is not None and restore_job.known.key_type in _WHOLE:
        low, high = min(map(int, keys)), max(map(int, keys))
    return store.sources(restore_job.known.kind, restore_job.request.span, low=low, high=high)


def _are_few(request: RestoreRequest, sources: Sequence[FileSource]) -> bool:
    if request.span.keys is not None:
        return True
    return all(source.rows is not None for source in sources) and sum(source.rows or 0 for source in sources) <= MOST


def _count(
    restore_job: RestoreJob, sources: Sequence[FileSource], progress: ReportProgress, enough: int | None
) -> Plan[int]:
    found = 0
    for number, source in enumerate(sources):
        progress(number / len(sources), f"{found:,} rows so far")
        if source.held:
            for blocks in source.blocks():
                found += yield store.count_held(source, blocks, restore_job.request.span)
        else:
            with scratch("restore") as directory:
                file = _fetched(restore_job, source, directory)
                found += row_text.count(file, restore_job.wanted(source))
        if enough is not None and found >= enough:
            return found
    return found


def _walk(
    restore_job: RestoreJob, sources: Sequence[FileSource], progress: ReportProgress, outcome: RestoreResult
) -> Plan[list[datetime]]:
    """Restore newest first, so that a row that was archived twice gets its last state. Return when each was moved."""
    moved: list[datetime] = []
    missing = None if restore_job.request.span.keys is None else set(restore_job.request.span.keys)
    alone = restore_job.parent is None and len(restore_job.known.key_columns) == 1
    for number, source in enumerate(sources):
        so_far = outcome.children if restore_job.parent else outcome.rows
        progress(number / len(sources), f"{so_far.restored:,} rows of {source.kind} are restored")
        rows: RestoredRows = yield from _from_source(restore_job, source)
        outcome.sources += 1
        if restore_job.parent:
            outcome.children += rows
        else:
            outcome.rows += rows
        if rows.found:
            moved.append(source.moved_at)
        if missing is not None and alone:
            missing -= yield store.marked(source.kind, list(missing))
            if not missing:
                break
    return moved


def _from_source(restore_job: RestoreJob, source: FileSource) -> Plan[RestoredRows]:
    rows = RestoredRows()
    if source.held:
        for blocks in source.blocks():
            part: RestoredRows = yield _from_pages(restore_job, source, blocks)
            rows += part
        return rows
    with scratch("restore") as directory:
        whole: RestoredRows = yield _from_file(restore_job, source, _fetched(restore_job, source, directory))
    return whole


def _fetched(restore_job: RestoreJob, source: FileSource, directory: Path) -> Path:
    file = directory / "fetched.parquet"
    row_text.fetch(restore_job.place, source.object, source.bytes, source.sha256, file)
    return file


def _from_pages(restore_job: RestoreJob, source: FileSource, blocks: tuple[int, int]) -> Operation[RestoredRows]:
    yield from store.one_at_a_time()
    request = restore_job.request
    rows = yield from store.restore_held(source, blocks, restore_job.held_span(source), request.keep, request.without)
    yield from _audit(restore_job, source, rows)
    return rows


def _from_file(restore_job: RestoreJob, source: FileSource, file: Path) -> Operation[RestoredRows]:
    yield from store.one_at_a_time()
    rows = RestoredRows()
    for piece in row_text.pieces(file, restore_job.wanted(source)):
        chosen = piece if restore_job.parent is None else (yield from _of_parents(piece, *restore_job.parent))
        if chosen.rows:
            rows += yield from store.restore_rows(
                source.batch, chosen.names, chosen.rows, restore_job.request.keep, restore_job.request.without
            )
    yield from _audit(restore_job, source, rows)
    return rows


def _of_parents(piece: row_text.RowBatch, kind: str, refers: str) -> Operation[row_text.RowBatch]:
    """Return the rows whose parent was restored, so that the others are not sent to PostgreSQL."""
    named = {key for key in piece.column(refers) if key is not None}
    here = yield from store.marked(kind, list(named))
    place = piece.names.index(refers)
    return piece.only(lambda row: row[place] in here)


def _restore_children(
    restore_job: RestoreJob, progress: ReportProgress, outcome: RestoreResult, moved: list[datetime]
) -> Plan[None]:
    kind, refers = CHILDREN[restore_job.known.kind]
    known: KindOfRows | None = yield store.kind(kind)
    if known is None:
        return
    outcome.children_kind = kind
    low = high = None
    if refers == known.key_columns[0]:
        keys = restore_job.request.span.keys
        between: tuple[int, int] | None = yield store.marked_range(restore_job.known.kind)
        if between is None:
            return
        low, high = between if keys is None else (min(map(int, keys)), max(map(int, keys)))
        sources: list[FileSource] = yield store.sources(kind, TimeSpan(), low=low, high=high)
    else:
        # Receipts were moved in the same transaction as their deliveries.
        sources = yield store.sources(kind, TimeSpan(), moved=sorted(set(moved)))
    child = RestoreJob(
        restore_job.request, known, restore_job.place, restore_job.actor, (restore_job.known.kind, refers)
    )
    yield from _walk(child, sources, progress, outcome)


def _audit(restore_job: RestoreJob, source: FileSource, rows: RestoredRows) -> Operation[None]:
    if not rows.restored:
        return
    span = restore_job.request.span
    detail = {
        "batch": source.batch,
        "file": source.object or None,
        "count": rows.restored,
        "ids": None if span.keys is None else list(span.keys)[:1000],
        "from": span.from_at,
        "to": span.to_at,
        "seconds": restore_job.request.keep,
    }
    subject = f"{rows.restored:,} {source.kind}"
    given = {name: value for name, value in detail.items() if value is not None}
    yield from audit.audit(restore_job.actor, "archive.restore", subject, given)


def _is_whole(text: str) -> bool:
    return text.isascii() and text.removeprefix("-").isdigit() and abs(int(text[:25])) < 2**63
