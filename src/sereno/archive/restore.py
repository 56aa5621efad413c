"""What was archived comes back to where it was: a job with its attempts, a delivery with its receipts, a span of time.

A file is copied and its checksum compared before anything of it is used. Each file, and each few pages of a table that
still holds its rows, is one transaction with its line in the audit; whoever is interrupted says it again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from sereno.access import audit
from sereno.access.actor import default_actor
from sereno.archive import restore_store as store
from sereno.archive import row_text
from sereno.archive.restore_store import FileSource, KindOfRows, RestoredRows, Span
from sereno.archive.scratch import scratch
from sereno.archive.storage import Storage
from sereno.database.statement import Operation, Plan
from sereno.errors import InvalidArguments, Refused
from sereno.jobs.job import check_date
from sereno.settings import A_DAY

KEEP_DAYS = 30
LONGEST_KEEP = 3660 * A_DAY
# Without a confirmation.
MOST = 10_000
# As many as are named one by one.
MOST_KEYS = 10_000

Said = Callable[[float, str], None]

# What hangs on what, and by which column.
CHILDREN = {"jobs": ("attempts", "job_id"), "deliveries": ("receipts", "delivery_id")}
_WHOLE = ("integer", "bigint", "smallint")
_MOMENTS = ("timestamp with time zone", "timestamp without time zone", "date")


@dataclass(frozen=True, slots=True)
class RestoreRequest:
    """What is to come back, and for how many seconds. `without`: columns that the table no longer has."""

    kind: str
    span: Span
    keep: float = float(KEEP_DAYS * A_DAY)
    without: tuple[str, ...] = ()

    def check(self) -> None:
        """InvalidArguments, and why, before anything is looked at."""
        span = self.span
        if span.keys is None and span.from_at is None and span.to_at is None:
            raise InvalidArguments("say which: ids, or a span of time with --from and --to")
        if span.keys is not None and (span.from_at is not None or span.to_at is not None):
            raise InvalidArguments("ids, or a span of time: not both")
        if span.keys is not None and not 0 < len(span.keys) <= MOST_KEYS:
            raise InvalidArguments(f"name up to {MOST_KEYS:,} ids, or a span of time")
        for moment in (span.from_at, span.to_at):
            check_date("moment", moment)
        if span.from_at is not None and span.to_at is not None and span.from_at >= span.to_at:
            raise InvalidArguments("the span of time ends before it begins")
        if not 0 < self.keep <= LONGEST_KEEP:
            raise InvalidArguments("what comes back stays for a moment at least, and for ten years at most")


@dataclass(slots=True)
class RestoreResult:
    """What came back; `children`: what hangs on it. `sources`: files and tables that were looked at."""

    kind: str
    brought: RestoredRows = field(default_factory=RestoredRows)
    children_kind: str | None = None
    children: RestoredRows = field(default_factory=RestoredRows)
    sources: int = 0


@dataclass(frozen=True, slots=True)
class RestoreJob:
    """One walk through the sources of one kind. `parent`: of which kind, and by which column it is named."""

    asked: RestoreRequest
    known: KindOfRows
    place: Storage
    actor: str
    parent: tuple[str, str] | None = None

    def wanted(self, source: FileSource) -> row_text.WantedRows:
        span = self.asked.span
        column = self.parent[1] if self.parent else source.key_columns[0]
        keys = None if span.keys is None else frozenset(span.keys)
        if self.parent:
            return row_text.WantedRows(column, keys, source.time_column, None, None)
        return row_text.WantedRows(column, keys, source.time_column, span.from_at, span.to_at)

    def held_span(self, source: FileSource) -> Span:
        """Of children, whoever has come back: that is looked up beside the rows."""
        if self.parent is None:
            return self.asked.span
        by_key = self.parent[1] == source.key_columns[0]
        return Span(keys=self.asked.span.keys if by_key else None)


def restore(
    asked: RestoreRequest, place: Storage, said: Said, *, yes: bool = False, actor: str | None = None
) -> Plan[RestoreResult]:
    """Bring rows back; Refused where they are many and nobody confirmed it."""
    restore_job = yield from _restore_job(asked, place, actor)
    sources: list[FileSource] = yield _sources(restore_job)
    if not yes and not _are_few(asked, sources):
        found = yield from _count(restore_job, sources, said, MOST + 1)
        if found > MOST:
            raise Refused(
                f"more than {MOST:,} rows of {asked.kind} would come back: look with --dry-run, confirm with --yes"
            )
    outcome = RestoreResult(restore_job.known.kind)
    moved = yield from _walk(restore_job, sources, said, outcome)
    if restore_job.known.kind in CHILDREN and outcome.brought.found:
        yield from _restore_children(restore_job, said, outcome, moved)
    return outcome


def count(asked: RestoreRequest, place: Storage, said: Said) -> Plan[int]:
    """How many rows the archive has of what is asked for. Changes nothing."""
    restore_job = yield from _restore_job(asked, place, None)
    sources: list[FileSource] = yield _sources(restore_job)
    return (yield from _count(restore_job, sources, said, None))


def meant(asked: RestoreRequest) -> Operation[tuple[RestoreRequest, KindOfRows]]:
    """The kind of rows that is meant, and its keys as they are written; InvalidArguments, and why."""
    asked.check()
    known = yield from store.kind(asked.kind)
    if known is None or known.kind in {child for child, _ in CHILDREN.values()}:
        names = yield from store.kinds()
        there = [name for name in names if name not in {child for child, _ in CHILDREN.values()}]
        words = f"there are {', '.join(there)}" if there else "it is empty"
        raise InvalidArguments(f"the archive has nothing of {asked.kind!r:.80}: {words}")
    keys = asked.span.keys
    if keys is not None and known.key_type in _MOMENTS:
        raise InvalidArguments(f"rows of {known.kind} have no ids: say when, with --from and --to")
    if keys is not None and known.key_type in _WHOLE and not all(_is_whole(key) for key in keys):
        raise InvalidArguments(f"an id of {known.kind} is a number")
    if keys is not None and known.key_type in _WHOLE:
        asked = replace(asked, span=Span(keys=[str(int(key)) for key in keys]))
    return asked, known


def _restore_job(asked: RestoreRequest, place: Storage, actor: str | None) -> Plan[RestoreJob]:
    asked, known = yield meant(asked)
    return RestoreJob(asked, known, place, actor or default_actor())


def _sources(restore_job: RestoreJob) -> Operation[list[FileSource]]:
    keys = restore_job.asked.span.keys
    low = high = None
    if keys is not None and restore_job.known.key_type in _WHOLE:
        low, high = min(map(int, keys)), max(map(int, keys))
    return store.sources(restore_job.known.kind, restore_job.asked.span, low=low, high=high)


def _are_few(asked: RestoreRequest, sources: Sequence[FileSource]) -> bool:
    if asked.span.keys is not None:
        return True
    return all(source.rows is not None for source in sources) and sum(source.rows or 0 for source in sources) <= MOST


def _count(restore_job: RestoreJob, sources: Sequence[FileSource], said: Said, enough: int | None) -> Plan[int]:
    found = 0
    for number, source in enumerate(sources):
        said(number / len(sources), f"{found:,} rows so far")
        if source.held:
            for blocks in source.blocks():
                found += yield store.count_held(source, blocks, restore_job.asked.span)
        else:
            with scratch("restore") as directory:
                file = _fetched(restore_job, source, directory)
                found += row_text.count(file, restore_job.wanted(source))
        if enough is not None and found >= enough:
            return found
    return found


def _walk(
    restore_job: RestoreJob, sources: Sequence[FileSource], said: Said, outcome: RestoreResult
) -> Plan[list[datetime]]:
    """Newest first: what was archived twice comes back as it was last. Answers when those that had any were moved."""
    moved: list[datetime] = []
    missing = None if restore_job.asked.span.keys is None else set(restore_job.asked.span.keys)
    alone = restore_job.parent is None and len(restore_job.known.key_columns) == 1
    for number, source in enumerate(sources):
        so_far = outcome.children if restore_job.parent else outcome.brought
        said(number / len(sources), f"{so_far.restored:,} rows of {source.kind} are back")
        brought: RestoredRows = yield from _from_source(restore_job, source)
        outcome.sources += 1
        if restore_job.parent:
            outcome.children += brought
        else:
            outcome.brought += brought
        if brought.found:
            moved.append(source.moved_at)
        if missing is not None and alone:
            missing -= yield store.marked(source.kind, list(missing))
            if not missing:
                break
    return moved


def _from_source(restore_job: RestoreJob, source: FileSource) -> Plan[RestoredRows]:
    brought = RestoredRows()
    if source.held:
        for blocks in source.blocks():
            part: RestoredRows = yield _from_pages(restore_job, source, blocks)
            brought += part
        return brought
    with scratch("restore") as directory:
        whole: RestoredRows = yield _from_file(restore_job, source, _fetched(restore_job, source, directory))
    return whole


def _fetched(restore_job: RestoreJob, source: FileSource, directory: Path) -> Path:
    file = directory / "fetched.parquet"
    row_text.fetch(restore_job.place, source.object, source.bytes, source.sha256, file)
    return file


def _from_pages(restore_job: RestoreJob, source: FileSource, blocks: tuple[int, int]) -> Operation[RestoredRows]:
    yield from store.one_at_a_time()
    asked = restore_job.asked
    brought = yield from store.restore_held(source, blocks, restore_job.held_span(source), asked.keep, asked.without)
    yield from _audit(restore_job, source, brought)
    return brought


def _from_file(restore_job: RestoreJob, source: FileSource, file: Path) -> Operation[RestoredRows]:
    yield from store.one_at_a_time()
    brought = RestoredRows()
    for piece in row_text.pieces(file, restore_job.wanted(source)):
        chosen = piece if restore_job.parent is None else (yield from _of_parents(piece, *restore_job.parent))
        if chosen.rows:
            brought += yield from store.restore_rows(
                source.batch, chosen.names, chosen.rows, restore_job.asked.keep, restore_job.asked.without
            )
    yield from _audit(restore_job, source, brought)
    return brought


def _of_parents(piece: row_text.RowBatch, kind: str, refers: str) -> Operation[row_text.RowBatch]:
    """Rows whose parent has come back: nobody sends a million others."""
    named = {key for key in piece.column(refers) if key is not None}
    here = yield from store.marked(kind, list(named))
    place = piece.names.index(refers)
    return piece.only(lambda row: row[place] in here)


def _restore_children(restore_job: RestoreJob, said: Said, outcome: RestoreResult, moved: list[datetime]) -> Plan[None]:
    kind, refers = CHILDREN[restore_job.known.kind]
    known: KindOfRows | None = yield store.kind(kind)
    if known is None:
        return
    outcome.children_kind = kind
    low = high = None
    if refers == known.key_columns[0]:
        keys = restore_job.asked.span.keys
        between: tuple[int, int] | None = yield store.marked_range(restore_job.known.kind)
        if between is None:
            return
        low, high = between if keys is None else (min(map(int, keys)), max(map(int, keys)))
        sources: list[FileSource] = yield store.sources(kind, Span(), low=low, high=high)
    else:
        # Receipts left in the moment in which their deliveries did.
        sources = yield store.sources(kind, Span(), moved=sorted(set(moved)))
    child = RestoreJob(restore_job.asked, known, restore_job.place, restore_job.actor, (restore_job.known.kind, refers))
    yield from _walk(child, sources, said, outcome)


def _audit(restore_job: RestoreJob, source: FileSource, brought: RestoredRows) -> Operation[None]:
    if not brought.restored:
        return
    span = restore_job.asked.span
    detail = {
        "batch": source.batch,
        "file": source.object or None,
        "count": brought.restored,
        "ids": None if span.keys is None else list(span.keys)[:1000],
        "from": span.from_at,
        "to": span.to_at,
        "seconds": restore_job.asked.keep,
    }
    subject = f"{brought.restored:,} {source.kind}"
    given = {name: value for name, value in detail.items() if value is not None}
    yield from audit.audit(restore_job.actor, "archive.restore", subject, given)


def _is_whole(text: str) -> bool:
    return text.isascii() and text.removeprefix("-").isdigit() and abs(int(text[:25])) < 2**63
