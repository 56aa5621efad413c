"""Moves old history into batches and exports them to files. An interrupted run continues from what the tables say.

    move     old rows leave the hot tables in batches: whole daily partitions if there are any, otherwise rows by key
    export   a batch is written to files; each is read back and verified; after its grace period the batch is dropped

Two archivers may run at once: the name of a file includes its checksum, so that none overwrites another's file, and a
batch is dropped only when its files hold the same rows as the table.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import psycopg
from psycopg.conninfo import make_conninfo

from sereno.archive import file_process, parquet
from sereno.archive import store as archive
from sereno.archive.manifest import Manifest, encode
from sereno.archive.orders import OwnTable
from sereno.archive.parquet import InvalidParquetFile
from sereno.archive.restore_expiry import remove_expired
from sereno.archive.rows import FileDescription, FileMeasure, Part, PlannedFile, StoredFile
from sereno.archive.scratch import scratch
from sereno.archive.storage import Storage
from sereno.database import partitions
from sereno.database.connect import CONNECT_PARAMETERS
from sereno.database.database import Database
from sereno.database.servers import servers_of
from sereno.database.statement import Operation
from sereno.errors import ArchiveUnavailable, first_line
from sereno.jobs import attempt_partitions
from sereno.settings import A_DAY, DISK, Settings
from sereno.telemetry.archive_stats import COUNTED, Outcome
from sereno.telemetry.log_events import emit

# Rows of a file, and rows that are moved in one transaction.
FILE_ROWS = 4_000_000
MOVE_ROWS = 100_000
# Files written in parallel: one waits for PostgreSQL while the other compresses.
TOGETHER = 2
# Consecutive failures after which the storage counts as down; the remaining files wait for the next run.
DOWN_AFTER = 3
# Locked daily partitions after which the others are left for another run: each lock attempt delays writers.
MOST_WAITING = 3

# End of a file's name: as planned, or as written before.
_NAME = re.compile(r"-[0-9]+(-[0-9a-f]{8})?\.parquet$")

ReportProgress = Callable[[float, str], None]


@dataclass(frozen=True, slots=True)
class SerenoTable:
    """A table of sereno: rows older than `age` seconds are archived; with `by_days`, whole daily partitions first."""

    name: Part
    age: float
    by_days: Literal["jobs", "fires"] | None = None


@dataclass(slots=True)
class MoveResult:
    """What left the hot tables. `waiting`: daily partitions that are being read; they leave in another run."""

    days: int = 0
    rows: int = 0
    waiting: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


@dataclass(slots=True)
class ExportResult:
    """What an export did: files, rows and bytes verified, batches dropped, problems."""

    files: int = 0
    rows: int = 0
    bytes: int = 0
    dropped: int = 0
    problems: list[str] = field(default_factory=list)


class UnverifiedFile(ArchiveUnavailable):
    """The file that was read back differs from what was written."""


def _silent(_fraction: float, _text: str) -> None:
    pass


class Archiver:
    """Moves and exports old rows of one application."""

    def __init__(self, database: Database, settings: Settings, tables: Sequence[OwnTable] = ()) -> None:
        self._database = database
        self._settings = settings
        self._tables = tables
        self.place = Storage(settings.archive_url or DISK, settings.directory)
        self._failures = 0

    # Cycle 1

    async def move(self, progress: ReportProgress = _silent) -> MoveResult:
        """Move old rows out of the hot tables."""
        moved = MoveResult()
        await remove_expired(self._database, moved.problems)
        steps: list[SerenoTable | OwnTable] = [*_steps(self._settings), *self._tables]
        for number, step in enumerate(steps):
            progress(number / len(steps), f"{step.name}: {moved.rows:,} rows and {moved.days:,} days so far")
            if isinstance(step, OwnTable):
                await self._move_table(step, moved)
            else:
                if step.by_days:
                    await self._move_days(step.by_days, step.age, moved)
                await self._move_rows(step.name, step.age, moved)
        for batch in await self._database.arun(archive.without_children()):
            await self._move_children(batch, moved)
        if self._settings.archives("jobs"):
            await self._move_attempt_days(moved)
        return moved

    async def _move_attempt_days(self, moved: MoveResult) -> None:
        """Empty the expired partitions of attempts. Rows that remain have no job: they become a batch."""
        retention = self._settings.keep_history_days
        for name in await self._database.arun(partitions.old_partitions("attempts", retention)):
            while await self._database.arun(attempt_partitions.carry_attempts(name)):
                pass
            try:
                batch = await self._database.arun(archive.move_day("attempts", name))
            except psycopg.errors.LockNotAvailable:
                moved.waiting.append(name)
                return
            moved.days += batch is not None
        while await self._database.arun(attempt_partitions.carry_strays(retention, archived=True)):
            pass

    async def _move_days(self, kind: Literal["jobs", "fires"], age: float, moved: MoveResult) -> None:
        table: partitions.PartitionedTable = "history" if kind == "jobs" else "fires"
        waited = len(moved.waiting)
        for name in await self._database.arun(partitions.old_partitions(table, round(age / A_DAY))):
            if len(moved.waiting) - waited >= MOST_WAITING:
                return
            try:
                batch = await self._database.arun(archive.move_day(kind, name))
            except psycopg.errors.LockNotAvailable:
                # It is being read: waiting for its lock would make others queue behind it.
                moved.waiting.append(name)
                continue
            if batch is not None:
                moved.days += 1
                await self._move_children(batch, moved)

    async def _move_children(self, batch: int, moved: MoveResult) -> None:
        is_done = False
        while not is_done:
            rows, is_done = await self._database.arun(archive.move_children(batch, MOVE_ROWS))
            moved.rows += rows

    async def _move_rows(self, part: Part, age: float, moved: MoveResult) -> None:
        while left := await self._database.arun(archive.move_rows(part, age, MOVE_ROWS)):
            moved.rows += left

    async def _move_table(self, table: OwnTable, moved: MoveResult) -> None:
        try:
            while left := await self._database.arun(archive.move_table(table.name, table.moment, table.age, MOVE_ROWS)):
                moved.rows += left
        except psycopg.Error as error:
            hint = f" {error.diag.message_hint}" if error.diag.message_hint else ""
            self._report(moved.problems, "archive.refused", f"{table.name} is not archived: {first_line(error)}.{hint}")

    # Cycle 2

    async def export(self, progress: ReportProgress = _silent) -> ExportResult:
        """Write every batch to files and drop those whose grace period is over. A failure does not stop the others."""
        done = ExportResult()
        self._failures = 0
        for batch, _kind in await self._database.arun(archive.open_batches()):
            await self._plan(batch, done)
        await self._files(await self._database.arun(archive.open_files()), done, progress)
        for batch, _kind in await self._database.arun(archive.open_batches()):
            await self._database.arun(archive.settle_batch(batch, self._settings.archive_grace_days * A_DAY))
        for batch in await self._database.arun(archive.droppable()):
            await self._drop(batch, done)
        return done

    async def _plan(self, batch: int, done: ExportResult) -> None:
        try:
            await self._database.arun(archive.plan(batch, FILE_ROWS))
        except psycopg.Error as error:
            await self._batch_failed(batch, "archive.failed", error, done)

    async def _files(self, files: Sequence[tuple[int, int]], done: ExportResult, progress: ReportProgress) -> None:
        slots = asyncio.Semaphore(TOGETHER)
        finished = 0

        async def one(batch: int, number: int) -> None:
            nonlocal finished
            async with slots:
                await self._try_file(batch, number, done)
            finished += 1
            progress(0.95 * finished / len(files), f"{finished:,} of {len(files):,} files, {done.rows:,} rows")

        try:
            async with asyncio.TaskGroup() as group:
                for batch, number in files:
                    group.create_task(one(batch, number))
        except ExceptionGroup as errors:
            # The first error cancelled the others and is the cause.
            raise errors.exceptions[0] from None

    async def _try_file(self, batch: int, number: int, done: ExportResult) -> None:
        if self._failures >= DOWN_AFTER:
            return
        try:
            await self._file(batch, number, done)
        except (ArchiveUnavailable, psycopg.Error, OSError) as error:
            text = first_line(error)
            self._failures += isinstance(error, ArchiveUnavailable) and not isinstance(
                error, UnverifiedFile | InvalidParquetFile
            )
            if await self._database.arun(archive.not_written(batch, number, text)):
                outcome: Outcome = "unverified" if isinstance(error, UnverifiedFile) else "failed"
                COUNTED.file(outcome)
                self._report(done.problems, f"archive.{outcome}", f"file {number} of batch {batch}: {text}")
        else:
            self._failures = 0

    async def _file(self, batch: int, number: int, done: ExportResult) -> None:
        described = await self._database.arun(archive.describe(batch, number))
        if described is None:
            return
        with scratch("archive") as directory:
            file = directory / "written"
            facts = {"kind": described.kind, "batch": str(batch)}
            planned = PlannedFile(self._url, self._settings.schema, batch, number)
            measured = await asyncio.to_thread(file_process.write, described.batch_rows, planned, file, facts)
            manifest = await asyncio.to_thread(_manifest, batch, number, described, measured, file)
            await asyncio.to_thread(self.place.put, manifest.object, file)
            if not await self._database.arun(_uploaded(manifest, measured)):
                # Another archiver has verified its file already.
                return
            file.unlink()
            await asyncio.to_thread(self.read_back, manifest, directory / "read")
            await asyncio.to_thread(self._describe, manifest)
        if not await self._database.arun(archive.verified(batch, number, manifest.sha256)):
            raise UnverifiedFile(f"{manifest.object}: another archiver recorded it with a different checksum")
        COUNTED.file("verified", manifest.rows, manifest.bytes)
        done.files += 1
        done.rows += manifest.rows
        done.bytes += manifest.bytes

    @property
    def _url(self) -> str:
        """Return the address for a connection with the same timeouts as the others."""
        known = {name: value for name, value in CONNECT_PARAMETERS.items() if name != "autocommit"}
        given = servers_of(self._database.url).conninfo(**known)
        return make_conninfo(given, application_name="sereno archive", client_encoding="UTF8")

    def read_back(self, manifest: Manifest, file: Path) -> None:
        """Copy an object to a file and verify its contents. Raises UnverifiedFile. Blocks."""
        sha256, length = self.place.get(manifest.object, file)
        if length != manifest.bytes:
            raise UnverifiedFile(f"{manifest.object}: {length:,} bytes were read back, {manifest.bytes:,} were written")
        if sha256 != manifest.sha256:
            raise UnverifiedFile(f"{manifest.object}: its checksum is {sha256[:12]}…, expected {manifest.sha256[:12]}…")
        rows, keys_hash, content_hash = file_process.checksums(manifest.rows, file, manifest.key_columns)
        if rows != manifest.rows:
            raise UnverifiedFile(f"{manifest.object}: it has {rows:,} rows, the table has {manifest.rows:,}")
        if keys_hash != manifest.keys_hash:
            raise UnverifiedFile(f"{manifest.object}: its keys differ from those of the table")
        if content_hash != manifest.content_hash:
            raise UnverifiedFile(f"{manifest.object}: its values differ from those of the table")

    def _describe(self, manifest: Manifest) -> None:
        content = encode(manifest)
        self.place.put_bytes(manifest.name, content)
        if self.place.get_bytes(manifest.name) != content:
            raise UnverifiedFile(f"{manifest.name}: the manifest that was read back differs from what was written")

    async def _drop(self, batch: int, done: ExportResult) -> None:
        """Check the storage and the table once more, then drop the batch; a difference keeps the rows."""
        try:
            for file in await self._database.arun(archive.files_of(batch)):
                await self._check_object(batch, file)
            is_dropped = await self._database.arun(archive.drop_batch(batch))
            done.dropped += is_dropped
            COUNTED.dropped += is_dropped
        except ArchiveUnavailable as error:
            event = "archive.unverified" if isinstance(error, UnverifiedFile) else "archive.failed"
            self._report(done.problems, event, f"batch {batch} is not dropped: {error}")
        except psycopg.errors.LockNotAvailable:
            # The table is being read; the next run drops it.
            return
        except psycopg.Error as error:
            await self._batch_failed(batch, "archive.unverified", error, done)

    async def _check_object(self, batch: int, file: StoredFile) -> None:
        length = await asyncio.to_thread(self.place.length, file.object)
        if length == file.bytes:
            return
        text = "is missing" if length is None else f"has {length:,} bytes instead of {file.bytes:,}"
        if await self._database.arun(archive.reopen(batch, file.number)):
            await self._database.arun(archive.failed(batch, file.number, f"{file.object} {text}"))
            raise UnverifiedFile(f"{file.object} {text}: the next export writes it again")

    async def _batch_failed(self, batch: int, event: str, error: psycopg.Error, done: ExportResult) -> None:
        await self._database.arun(archive.batch_failed(batch, first_line(error)))
        self._report(done.problems, event, f"batch {batch}: {first_line(error)}")

    def _report(self, problems: list[str], event: str, text: str) -> None:
        problems.append(text)
        emit(logging.ERROR, event, text)


def _steps(settings: Settings) -> list[SerenoTable]:
    """Return which tables are archived, and when. Deliveries come before their events; None means never."""
    deliveries, events, dead = settings.keep_deliveries_days, settings.keep_events_days, settings.keep_dead_days
    found = []
    if settings.archives("jobs"):
        found.append(SerenoTable("jobs", settings.keep_history_days * A_DAY, "jobs"))
        found += [SerenoTable("dead", dead * A_DAY)] if dead is not None else []
    if settings.archives("fires"):
        found.append(SerenoTable("fires", settings.keep_fires_days * A_DAY, "fires"))
    if settings.archives("deliveries") and deliveries is not None:
        found.append(SerenoTable("deliveries", deliveries * A_DAY))
    if settings.archives("events") and events is not None:
        found.append(SerenoTable("events", events * A_DAY))
    if settings.archives("logs"):
        found.append(SerenoTable("logs", settings.log_retention))
    return found


def _uploaded(manifest: Manifest, measured: FileMeasure) -> Operation[bool]:
    return archive.uploaded(manifest.batch, manifest.number, measured, manifest.object, manifest.sha256, manifest.bytes)


def _manifest(batch: int, number: int, described: FileDescription, measured: FileMeasure, file: Path) -> Manifest:
    """Return the manifest. The object's name includes its checksum, so that another content does not overwrite it."""
    sha256 = parquet.sha256(file)
    return Manifest(
        object=_NAME.sub(f"-{number}-{sha256[:8]}.parquet", described.object),
        kind=described.kind,
        source=described.source,
        batch=batch,
        number=number,
        schema_version=described.schema_version,
        key_columns=described.key_columns,
        time_column=described.time_column,
        columns=described.columns,
        rows=measured.rows,
        keys_hash=measured.keys_hash,
        content_hash=measured.content_hash,
        from_at=measured.from_at,
        to_at=measured.to_at,
        first_id=measured.first_id,
        last_id=measured.last_id,
        bytes=file.stat().st_size,
        sha256=sha256,
    )
