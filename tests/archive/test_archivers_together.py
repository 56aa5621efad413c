"""The archiver beside a second archiver and maintenance, in jobs of a worker, and in another schema."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sereno import Sereno
from sereno.archive import parquet
from sereno.archive.rows import FileMeasure, PlannedFile
from sereno.database.connect import ServiceConnection
from sereno.schedules.maintenance import fires_duty
from sereno.settings import Settings
from sereno.worker.maintenance import housekeeping, retention
from tests.archive.archive_steps import (
    DAY,
    TENDERS,
    add_everything,
    add_jobs,
    add_logs,
    add_some,
    archiver,
    everything,
    places_of,
)
from tests.facts import advance, auntil, one, state, until
from tests.worker.maintenance.locked_tables import do_all

CYCLES = ("sereno.archive_export", "sereno.archive_move")


# Two archivers


@pytest.mark.slow
async def test_two_archivers_do_the_work_once(app: Sereno, connection: psycopg.Connection, place: Path) -> None:
    add_some(connection, 50)
    before = everything(connection, place)
    advance(connection, 60 * DAY)
    both = [archiver(app, place, TENDERS) for _ in range(2)]
    moved = await asyncio.gather(*(each.move() for each in both))
    assert everything(connection, place) == before
    # A partition that the other one has just moved may be reported as being read.
    assert [problem for each in moved for problem in each.problems] == []
    await both[0].move()
    exported = await asyncio.gather(*(each.export() for each in both))
    assert [problem for each in exported for problem in each.problems] == []
    assert everything(connection, place) == before
    await both[0].export()
    assert set(places_of(connection)) == {"dropped"}
    assert everything(connection, place) == before
    assert one(connection, "select count(*) from sereno.archive_files where failed_at is not null") == 0


@pytest.mark.slow
async def test_two_archivers_with_different_files_do_not_conflict(
    app: Sereno, connection: psycopg.Connection, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, number, lock = parquet.write, iter(range(1000)), threading.Lock()

    def write_another_file(planned: PlannedFile, file: Path, facts: Any) -> FileMeasure:
        """Write as another version would."""
        with lock:
            mine = str(next(number))
        return write(planned, file, facts | {"version": mine})

    monkeypatch.setattr(parquet, "write", write_another_file)
    add_some(connection, 50)
    before = everything(connection, place)
    advance(connection, 60 * DAY)
    both = [archiver(app, place, TENDERS) for _ in range(2)]
    await both[0].move()
    await asyncio.gather(*(each.export() for each in both))
    assert everything(connection, place) == before
    assert (await both[0].export()).problems == []
    assert set(places_of(connection)) == {"dropped"}
    assert everything(connection, place) == before
    files = connection.execute("select object, sha256 from sereno.archive_files").fetchall()
    assert [name for name, sha256 in files if parquet.sha256(place / name) != sha256] == []


@pytest.mark.slow
async def test_a_cancelled_archiver_loses_nothing(
    app: Sereno, connection: psycopg.Connection, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, begun, go = parquet.write, threading.Event(), threading.Event()

    def slowly(*given: Any) -> FileMeasure:
        begun.set()
        go.wait(30)
        return write(*given)

    monkeypatch.setattr(parquet, "write", slowly)
    add_some(connection)
    before = everything(connection, place)
    advance(connection, 60 * DAY)
    working = archiver(app, place, TENDERS)
    await working.move()
    export = asyncio.create_task(working.export())
    await auntil(begun.is_set)
    export.cancel()
    with pytest.raises(asyncio.CancelledError):
        await export
    assert everything(connection, place) == before
    go.set()
    assert (await working.export()).problems == []
    assert everything(connection, place) == before
    assert set(places_of(connection)) == {"dropped"}


# With maintenance


async def clean_up(app: Sereno, **settings: Any) -> None:
    """Run the hourly maintenance of workers and schedulers."""
    line = ServiceConnection(app.database.url, app.settings, "test")
    chosen: Settings = msgspec.structs.replace(app.settings, **settings)
    await do_all(line, [*housekeeping.duties(chosen), fires_duty(chosen)])
    while await retention.forget_lines(line, chosen):
        pass
    await line.close()


def left(connection: psycopg.Connection) -> dict[str, int]:
    tables = ("history_done", "history_dead", "attempts", "fires", "logs")
    return {table: one(connection, f"select count(*) from sereno.{table}") for table in tables}


@pytest.mark.slow
async def test_maintenance_leaves_archived_kinds_to_the_archiver(app: Sereno, connection: psycopg.Connection) -> None:
    add_everything(connection)
    advance(connection, 60 * DAY)
    before = left(connection)
    await clean_up(app, archive_url="disk", keep_dead_days=30)
    assert left(connection) == before
    await clean_up(app, archive_url="disk", archive_kinds=["jobs"], keep_dead_days=30)
    assert left(connection) == before | {"fires": 0, "logs": 0}
    await clean_up(app, keep_dead_days=30)
    assert left(connection) == {"history_done": 3, "history_dead": 0, "attempts": 6, "fires": 0, "logs": 0}


@pytest.mark.slow
async def test_the_archive_can_be_switched_off_and_on(app: Sereno, connection: psycopg.Connection, place: Path) -> None:
    add_logs(connection, 5)
    advance(connection, 60 * DAY)
    on = archiver(app, place)
    await on.move()
    add_logs(connection, 7)
    advance(connection, 60 * DAY)
    await clean_up(app)
    assert left(connection)["logs"] == 0, "the archive is off"
    assert one(connection, "select count(*) from sereno_archive.logs_1") == 5, "archived rows stay archived"
    assert (await on.export()).rows == 5


# As jobs


def archived(url: str, place: Path, **settings: Any) -> Sereno:
    return Sereno(url, archive_url=f"file://{place}", archive_grace_days=0, **settings)


def cycles(app: Sereno) -> dict[str, str]:
    return {row.key: row.state for row in app.schedules.list() if row.key in CYCLES}


def test_cycles_are_declared_if_there_is_an_archive(database_url: str, place: Path) -> None:
    off, on, own = Sereno(database_url), archived(database_url, place), Sereno(database_url)
    off.schedules.synchronise()
    assert cycles(off) == {}
    on.schedules.synchronise()
    assert cycles(on) == dict.fromkeys(CYCLES, "enabled")
    off.schedules.synchronise()
    assert cycles(on) == dict.fromkeys(CYCLES, "disabled")
    own.archive.table("public.tenders", time="published_at", older_than="30d")
    own.schedules.synchronise()
    assert cycles(own) == dict.fromkeys(CYCLES, "enabled")
    for app in (off, on, own):
        app.close()


@pytest.mark.slow
async def test_a_worker_runs_both_cycles(database_url: str, connection: psycopg.Connection, place: Path) -> None:
    add_some(connection)
    # Above the ids of the generated jobs.
    connection.execute("select setval(pg_get_serial_sequence('sereno.jobs', 'id'), 1000000)")
    before = everything(connection, place)
    advance(connection, 60 * DAY)
    app = archived(database_url, place, keep_dead_days=30, keep_deliveries_days=30, keep_events_days=30)
    app.archive.table("public.tenders", time="published_at", older_than="30d")

    def work() -> None:
        for name in reversed(CYCLES):
            job = one(connection, "select sereno.enqueue(%s)", name)
            until(lambda job=job: state(connection, job) == "succeeded")  # type: ignore[misc]
            results[name] = one(connection, "select result from sereno.history where id = %s", job)

    results: dict[str, dict[str, int]] = {}

    async with app.working():
        # In a thread: a query of the history waits for the move of a partition, which runs in this loop.
        await asyncio.to_thread(work)
    export, move = (results[name] for name in CYCLES)
    assert move.keys() == {"days", "rows"}
    assert export["files"] == one(connection, "select count(*) from sereno.archive_files")
    after = everything(connection, place)
    # The two jobs, and what was logged in the meantime.
    assert before - after == {}
    assert {kind for kind, _ in after - before} <= {"jobs", "logs"}
    assert set(places_of(connection)) == {"dropped"}
    await app.aclose()


@pytest.mark.slow
async def test_a_job_that_could_not_verify_fails_and_is_retried(
    database_url: str, connection: psycopg.Connection, place: Path
) -> None:
    add_logs(connection, 5)
    advance(connection, 60 * DAY)
    occupy(place)
    app = archived(database_url, place)
    await app.archive.archiver().move()
    async with app.working():
        job = one(connection, "select sereno.enqueue('sereno.archive_export')")
        await auntil(lambda: one(connection, "select count(*) from sereno.attempts where job_id = %s", job) == 1)
        assert "could not" in one(connection, "select error_message from sereno.attempts where job_id = %s", job)
        assert state(connection, job) == "scheduled"
    assert one(connection, "select count(*) from sereno_archive.logs_1") == 5
    await app.aclose()


def occupy(place: Path) -> None:
    """Put a file where the directory should be."""
    place.write_text("not a directory")


# Other schemas and databases


@pytest.mark.slow
async def test_another_schema_has_its_own_archive(
    database_url: str, connection: psycopg.Connection, place: Path
) -> None:
    elsewhere = Sereno(database_url, schema="other")
    elsewhere.migrate()
    add_logs(connection, 3)
    add_jobs(connection, 1, 4)
    for table in ("logs", "history", "attempts"):
        columns = one(
            connection,
            "select string_agg(quote_ident(attname), ', ') from pg_attribute "
            "where attrelid = %s::regclass and attnum > 0 and attidentity = '' and not attisdropped",
            f"sereno.{table}",
        )
        connection.execute(f"insert into other.{table} ({columns}) select {columns} from sereno.{table}".encode())
    connection.execute("insert into other.clock (ahead) values ('60 days')")
    working = archiver(elsewhere, place)
    moved, exported = await working.move(), await working.export()
    assert (moved.problems, exported.problems) == ([], [])
    found = connection.execute(
        "select kind from other.archive_batches where dropped_at is not null order by 1"
    ).fetchall()
    assert found == [("attempts",), ("jobs",), ("logs",)]
    assert [one(connection, f"select count(*) from {schema}.logs") for schema in ("other", "sereno")] == [0, 3]
    assert one(connection, "select count(*) from sereno.archive_batches") == 0
    for name in ("other.jobs", "other_archive.jobs_1"):
        with pytest.raises(psycopg.Error):
            connection.execute("select other.archive_table(%s, 'created_at', now(), 10)", [name])
    await elsewhere.aclose()


@pytest.mark.slow
async def test_a_password_in_the_address_is_not_in_errors(
    database_url: str, connection: psycopg.Connection, place: Path, tmp_path: Path
) -> None:
    add_logs(connection, 3)
    advance(connection, 60 * DAY)
    app = Sereno(database_url.replace("//postgres@", "//postgres:c%40nary%3A%2F%3F%23%20%C3%A4@"))
    working = archiver(app, place)
    await working.move()
    exported = await working.export()
    assert (exported.problems, exported.rows) == ([], 3)
    unreachable = "postgresql://ann:canary@127.0.0.1:1/shop"
    with pytest.raises(parquet.InvalidParquetFile) as refused:
        parquet.write(PlannedFile(unreachable, "sereno", 1, 1), tmp_path / "file", {})
    assert "canary" not in str(refused.value)
    await app.aclose()


def test_a_corrupt_file_is_reported_as_invalid(tmp_path: Path) -> None:
    """The library panics on some of them."""
    table = pa.table({"a": list(range(1000)), "b": [str(number) for number in range(1000)]})
    pq.write_table(table, tmp_path / "good")
    good, bad = (tmp_path / "good").read_bytes(), tmp_path / "bad"
    assert parquet.checksums(tmp_path / "good", ["a"])[0] == 1000
    with pytest.raises(parquet.InvalidParquetFile):
        parquet.checksums(tmp_path / "good", ["no such column"])
    for content in (b"", b"PAR1", b"PAR1PAR1", good[:-1], good[: len(good) // 2], bytes(len(good)), good[4:]):
        bad.write_bytes(content)
        with pytest.raises(parquet.InvalidParquetFile):
            parquet.checksums(bad, ["a"])
    with pytest.raises(parquet.InvalidParquetFile):
        parquet.checksums(tmp_path / "missing", ["a"])
