"""Read operations of the archive: status, batches, days, and where a row may be."""

from dataclasses import dataclass
from datetime import date, datetime, timedelta

from sereno.archive import queries
from sereno.archive.health import oldest_rows
from sereno.archive.queries import (
    ArchivedLocation,
    BatchInfo,
    BatchLine,
    DayLine,
    FailedFile,
    FileLine,
    KindLine,
    RestoredSpan,
)
from sereno.bounded_count import BOUND, BoundedCount
from sereno.database.clock import clock
from sereno.database.statement import Operation
from sereno.errors import InvalidArguments
from sereno.settings import A_DAY, ARCHIVE_KINDS, Settings
from sereno.zones import moment

# Longest range of the calendar.
MOST_DAYS = 400
# Kinds whose rows are found by a number.
NUMBERED = ("jobs", "attempts", "deliveries", "receipts", "events", "logs")
LARGEST = 2**63 - 1
# Why nothing is archived, and what turns the archive on.
OFF = (
    "the archive is off: set SERENO_ARCHIVE_URL=disk (or file:///…, s3://bucket/folder, gs://…, az://…), "
    "or name a table of your own with app.archive.table(…)"
)


@dataclass(frozen=True, slots=True)
class KindStatus:
    """A kind: `on` if its old rows are archived. `found` is None before its first batch.

    `keep`: seconds after which rows leave, None if they never do (or if the application decides, for its own table).
    `oldest_at`: the oldest row in the hot tables, where that is cheap to find; `overdue`: seconds by which that is
    late, 0 if it is not.
    """

    kind: str
    on: bool
    keep: float | None
    oldest_at: datetime | None
    overdue: float
    found: KindLine | None


@dataclass(frozen=True, slots=True)
class ArchiveTotals:
    """The sums over all kinds."""

    waiting_batches: int
    waiting_rows: int
    verified_rows: int
    verified_bytes: int
    verified_files: int
    grace_batches: int
    grace_rows: int
    next_drop_at: datetime | None
    dropped_batches: int
    dropped_rows: int
    failures: int


@dataclass(frozen=True, slots=True)
class ArchiveStatus:
    """The status of the archive. `lag`: seconds since the oldest unverified batch was moved.

    `failures`: at most fifty files; `totals` has their number. `restored`: rows that were restored.
    """

    at: datetime
    on: bool
    url: str | None
    grace_days: int
    kinds: list[KindStatus]
    totals: ArchiveTotals
    lag: float
    overdue: float
    failures: list[FailedFile]
    restored: BoundedCount
    restored_kinds: list[RestoredSpan]


@dataclass(frozen=True, slots=True)
class BatchDetail:
    """A batch with its files; `more`: there are more files."""

    batch: BatchLine
    about: BatchInfo
    files: list[FileLine]
    more: bool


def status(settings: Settings) -> Operation[ArchiveStatus]:
    """Return the status from the catalogue of the archive; reads no archived rows."""
    now = moment((yield from clock()))
    lines = {line.kind: line for line in (yield from queries.kinds())}
    oldest = yield from oldest_rows()
    restored = yield from queries.restored(BOUND + 1)
    names = [*ARCHIVE_KINDS, *(kind for kind in lines if kind not in ARCHIVE_KINDS)]
    kinds = [_kind(name, settings, lines.get(name), oldest, now) for name in names]
    waiting = [line.waiting_since for line in lines.values() if line.waiting_since is not None]
    return ArchiveStatus(
        at=now,
        on=settings.archive_url is not None or any("." in kind for kind in lines),
        url=settings.archive_url,
        grace_days=settings.archive_grace_days,
        kinds=kinds,
        totals=_totals(list(lines.values())),
        lag=max(0.0, (now - min(waiting)).total_seconds()) if waiting else 0.0,
        overdue=max(each.overdue for each in kinds),
        failures=(yield from queries.failures()),
        restored=BoundedCount.bounded(sum(each.rows for each in restored)),
        restored_kinds=restored,
    )


def batch(number: int) -> Operation[BatchDetail | None]:
    """Return a batch with its first thousand files; None if there is none."""
    found = yield from queries.batch(number)
    if found is None:
        return None
    line, about = found
    files = yield from queries.files(number, limit=queries.MOST_FILES + 1)
    return BatchDetail(line, about, files[: queries.MOST_FILES], len(files) > queries.MOST_FILES)


def days(first: date, last: date, kind: str | None = None) -> Operation[list[DayLine]]:
    """Return the days in UTC that files cover, from `first` to `last` inclusive."""
    if last - first > timedelta(days=MOST_DAYS):
        raise InvalidArguments(f"a calendar has at most {MOST_DAYS} days: choose a shorter range")
    return queries.days(kind, first, last)


def whereabouts(kind: str, number: int) -> Operation[list[ArchivedLocation]]:
    """Return where the job, delivery, event or log line of this number is or may be; attempts by their job's number."""
    if "." not in kind and kind not in NUMBERED:
        raise InvalidArguments(f"{kind!r:.80} has no numbers: use one of {', '.join(NUMBERED)}")
    if not -LARGEST <= number <= LARGEST:
        raise InvalidArguments(f"{number} is out of range for an id")
    return queries.whereabouts(kind, number)


def keep_seconds(kind: str, settings: Settings) -> float | None:
    """Return the retention of a kind in seconds; None: for ever, or as the application decides."""
    in_days = {
        "jobs": settings.keep_history_days,
        "fires": settings.keep_fires_days,
        "deliveries": settings.keep_deliveries_days,
        "events": settings.keep_events_days,
        "dead": settings.keep_dead_days,
    }
    if kind == "logs":
        return settings.log_retention
    retention = in_days.get(kind)
    return None if retention is None else float(retention * A_DAY)


def _kind(
    name: str, settings: Settings, line: KindLine | None, oldest: dict[str, datetime | None], now: datetime
) -> KindStatus:
    ours = name in ARCHIVE_KINDS
    on = settings.archives(name) if ours else line is not None  # type: ignore[arg-type]  # `ours`: one of the names
    late = 0.0
    if on:
        # The oldest delivery or event may be one that has to stay.
        late = max([0.0, *(_late(each, settings, oldest, now) for each in _DATED.get(name, ()))])
    return KindStatus(name, on, keep_seconds(name, settings), oldest.get(name), late, line)


# Tables whose oldest row tells whether the archive is late.
_DATED = {"jobs": ("jobs", "dead"), "fires": ("fires",), "logs": ("logs",)}


def _late(name: str, settings: Settings, oldest: dict[str, datetime | None], now: datetime) -> float:
    since, keep = oldest.get(name), keep_seconds(name, settings)
    if since is None or keep is None:
        return 0.0
    # A daily partition leaves when all of it is old.
    whole_day = A_DAY if name in ("jobs", "fires") else 0
    return (now - since).total_seconds() - keep - whole_day


def _totals(lines: list[KindLine]) -> ArchiveTotals:
    drops = [line.next_drop_at for line in lines if line.next_drop_at is not None]
    return ArchiveTotals(
        waiting_batches=sum(line.waiting_batches for line in lines),
        waiting_rows=sum(line.waiting_rows for line in lines),
        verified_rows=sum(line.verified_rows for line in lines),
        verified_bytes=sum(line.verified_bytes for line in lines),
        verified_files=sum(line.verified_files for line in lines),
        grace_batches=sum(line.grace_batches for line in lines),
        grace_rows=sum(line.grace_rows for line in lines),
        next_drop_at=min(drops, default=None),
        dropped_batches=sum(line.dropped_batches for line in lines),
        dropped_rows=sum(line.dropped_rows for line in lines),
        failures=sum(line.failures for line in lines),
    )
