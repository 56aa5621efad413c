"""The world of scenarios about the archive: old dead jobs, batches, files on disk, and where each row is at the end."""

import atexit
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import psycopg

from sereno.archive import archiver, parquet, restore, store
from sereno.archive.archiver import UnverifiedFile
from sereno.archive.manifest import Manifest
from sereno.archive.restore import RestoreRequest
from sereno.archive.rows import FileDescription, FileMeasure, PlannedFile, TimeSpan
from sereno.archive.storage import Storage
from sereno.database.statement import Plan
from tests.archive.archive_steps import DAY, Row, add_jobs, filed, rows_of
from tests.archive.store_steps import AGE
from tests.interleavings.program import Program, ReplyLost, Run
from tests.interleavings.scenarios.job_world import LEASE, JobWorld
from tests.jobs.job_steps import Connection, advance, do, session
from tests.shared_server import MEMORY

T = TypeVar("T")

# Attempts before the last one that each job has.
ATTEMPTS = (1, 2)
# Seconds for which restored rows stay.
KEEP = 30.0 * DAY
# Times that a restore is tried: its job is retried after a drop of the batch, and after a lost reply.
MOST_TRIES = 3


@dataclass
class ArchiveWorld(JobWorld):
    """`before`: all rows at the beginning. `url`: of the database, for the process that writes files."""

    before: Counter[Row] = field(default_factory=Counter)
    url: str = ""


ArchiveProgram: TypeAlias = Callable[[ArchiveWorld], Program]


@cache
def directory() -> Path:
    """Return a directory for files, in memory if possible, that is removed when the process ends."""
    made = Path(tempfile.mkdtemp(prefix="sereno-cold-", dir=MEMORY if MEMORY.is_dir() else None))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


@cache
def storage() -> Storage:
    return Storage(f"file://{directory()}", str(directory()))


# What is there at the beginning


def old_dead(connection: Connection, jobs: int = 2, *, attempts: bool = True) -> ArchiveWorld:
    """Return a world of dead jobs that are old enough to be archived, each with two attempts before its last one."""
    add_jobs(connection, 1, jobs, "dead")
    # A live job has no empty tag.
    connection.execute("update sereno.history set tags = array['a,b']")
    if not attempts:
        connection.execute("delete from sereno.attempts")
        connection.execute("update sereno.history set attempt = 1, failures = 0")
    before = every_row(connection)
    advance(connection, 60 * DAY)
    sessions = {name: session(connection, lease=LEASE) for name in "AB"}
    return ArchiveWorld(list(range(1, jobs + 1)), sessions, before=before, url=connection.info.dsn)


def held(connection: Connection, jobs: int = 2, *, attempts: bool = True) -> ArchiveWorld:
    """Return a world in which they were moved to batches."""
    world = old_dead(connection, jobs, attempts=attempts)
    move_rest(connection)
    return world


def planned(connection: Connection) -> ArchiveWorld:
    """Return a world of a batch of one planned file that is not written yet."""
    world = held(connection, attempts=False)
    do(connection, store.plan(1, 100))
    return world


def exported(connection: Connection, *, attempts: bool = True) -> ArchiveWorld:
    """Return a world of batches whose files are verified, and whose grace period is over."""
    world = held(connection, attempts=attempts)
    export_rest(connection, world)
    return world


# Programs


def moves(most: int) -> ArchiveProgram:
    """Return an archiver that moves old dead jobs. After a lost reply its job fails, and is retried."""

    def program(_world: ArchiveWorld) -> Program:
        for _ in range(2):
            try:
                while (yield Run(store.move_rows("dead", AGE, most))):
                    pass
            except ReplyLost:
                continue
            return

    return program


def restores(*keys: int) -> ArchiveProgram:
    """Return a worker that restores jobs with their attempts. Its job is retried, as for errors that may pass."""

    def program(world: ArchiveWorld) -> Program:
        for _ in range(MOST_TRIES):
            request = RestoreRequest("jobs", TimeSpan(keys=[str(key) for key in keys]), KEEP)
            try:
                yield from driven(restore.restore(request, storage(), lambda *_: None, actor="me"))
            except (ReplyLost, psycopg.errors.ObjectNotInPrerequisiteState):
                continue
            world.notes["restored"] = True
            return

    return program


def driven(plan: Plan[T]) -> Generator[Run, Any, T]:
    """Run the operations of a plan, each in a transaction of its own, and return its result."""
    with closing(plan):
        operation = next(plan)
        while True:
            result = yield Run(operation, atomic=True)
            try:
                operation = plan.send(result)
            except StopIteration as stop:
                found: T = stop.value
                return found


# Files


@contextmanager
def written(
    world: ArchiveWorld, batch: int, described: FileDescription, version: str
) -> Iterator[tuple[Manifest, FileMeasure]]:
    """Write the first file of a batch and put it into the storage. Archivers of two versions write different files."""
    file = directory() / f"written-{version}"
    facts = {"kind": described.kind, "batch": str(batch), "version": version}
    measured = parquet.write(PlannedFile(world.url, "sereno", batch, 1), file, facts)
    manifest = archiver._manifest(batch, 1, described, measured, file)
    storage().put(manifest.object, file)
    file.unlink()
    yield manifest, measured


def read_back(manifest: Manifest) -> None:
    """Raise UnverifiedFile if the object is not what was written."""
    if parquet.sha256(directory() / manifest.object) != manifest.sha256:
        raise UnverifiedFile(manifest.object)


# The end


def move_rest(connection: Connection) -> None:
    """Move all old rows and their children, as the next run of an archiver does."""
    while do(connection, store.move_rows("dead", AGE, 100)):
        pass
    for batch in do(connection, store.without_children()):
        is_done = False
        while not is_done:
            _, is_done = do(connection, store.move_children(batch, 100))


def export_rest(connection: Connection, world: ArchiveWorld) -> None:
    """Write and verify all files that are not verified, and settle their batches without a grace period."""
    for batch, _kind in do(connection, store.open_batches()):
        do(connection, store.plan(batch, 100))
    for batch, number in do(connection, store.open_files()):
        described = do(connection, store.describe(batch, number))
        assert described is not None
        with written(world, batch, described, "next") as (manifest, measured):
            assert do(connection, archiver._uploaded(manifest, measured))
            read_back(manifest)
            assert do(connection, store.verified(batch, number, manifest.sha256))
    for batch, _kind in do(connection, store.open_batches()):
        assert do(connection, store.settle_batch(batch, 0.0)), f"batch {batch} cannot be settled"


def drop_rest(connection: Connection) -> None:
    """Drop every batch."""
    for batch in do(connection, store.droppable()):
        assert do(connection, store.drop_batch(batch)), f"batch {batch} is not dropped"
    left = connection.execute("select id from sereno.archive_batches where dropped_at is null").fetchall()
    assert not left, f"batches {left} can never be dropped"


def every_row(connection: Connection) -> Counter[Row]:
    """Return all jobs and attempts as a multiset: in their tables, in batches, and in the files of dropped batches."""
    with connection.transaction():
        connection.execute("set local timezone = 'UTC'")
        found = rows_of(connection, "jobs", "sereno.history") + rows_of(connection, "attempts", "sereno.attempts")
        for batch, kind, name in connection.execute("select id, kind, held_in from sereno.archive_batches").fetchall():
            found += (
                filed(connection, directory(), batch, kind)
                if name is None
                else rows_of(connection, kind, f"sereno_archive.{name}")
            )
    return found


def nothing_lost_or_doubled(connection: Connection, world: ArchiveWorld) -> None:
    """Fail unless every row is in its table, in a batch or in a file of a dropped batch, exactly once."""
    after = every_row(connection)
    assert after == world.before, f"lost: {world.before - after}; too many: {after - world.before}"


def archived_jobs(connection: Connection) -> list[int]:
    """Return the ids of jobs in batches."""
    return [job for (job,) in _held_rows(connection, "jobs", "id")]


def attempts_of(connection: Connection, *, archived: bool = True) -> Counter[tuple[int, int]]:
    """Count the attempts by job and number, in their table and in batches."""
    found = Counter(connection.execute("select job_id, number from sereno.attempts").fetchall())
    if archived:
        found.update(_held_rows(connection, "attempts", "job_id, number"))
    return found


def _held_rows(connection: Connection, kind: str, columns: str) -> list[tuple[Any, ...]]:
    names = connection.execute(
        "select held_in from sereno.archive_batches where kind = %s and held_in is not null", [kind]
    ).fetchall()
    return [
        row
        for (name,) in names
        for row in connection.execute(f"select {columns} from sereno_archive.{name}".encode()).fetchall()
    ]
