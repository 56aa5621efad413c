"""Whatever fails, no row is lost: files that vanish or change, storages that are full, tables that are locked."""

import logging
import tempfile
from pathlib import Path

import psycopg
import pytest

from sereno import Sereno
from sereno.archive import archiver as module
from sereno.archive import store as archive
from sereno.archive.orders import OwnTable
from tests.archive.archive_steps import (
    DAY,
    SOME_FILES,
    TENDERS,
    add_jobs,
    add_logs,
    add_some,
    add_tenders,
    archiver,
    everything,
    places_of,
)
from tests.facts import advance, one


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the events that were logged as errors."""
    return [record.event for record in caplog.records if record.levelno == logging.ERROR]  # type: ignore[attr-defined]


def occupy(place: Path) -> None:
    """Put a file where the directory should be."""
    place.write_text("not a directory")


def vacate(place: Path) -> None:
    place.unlink()


@pytest.mark.slow
async def test_a_missing_or_changed_file_is_written_again(
    app: Sereno, connection: psycopg.Connection, place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    add_some(connection)
    before = everything(connection, place)
    advance(connection, 60 * DAY)
    working = archiver(app, place, TENDERS, archive_grace_days=1)
    await working.move()
    assert (await working.export()).files == SOME_FILES
    advance(connection, 2 * DAY)
    deleted, cut, longer = (
        place / one(connection, "select object from sereno.archive_files where kind = %s", kind)
        for kind in ("public.tenders", "logs", "fires")
    )
    deleted.unlink()
    cut.write_bytes(cut.read_bytes()[:-1])
    longer.write_bytes(longer.read_bytes() + b" ")
    exported = await working.export()
    assert (exported.dropped, len(exported.problems)) == (SOME_FILES - 3, 3)
    assert errors(caplog) == ["archive.unverified"] * 3
    assert places_of(connection) == {"moved": 3, "dropped": SOME_FILES - 3}
    assert one(connection, "select count(*) from sereno.archive_files where failed_at is not null") == 3
    assert everything(connection, place) == before
    assert (await working.export()).problems == []
    advance(connection, 2 * DAY)
    assert (await working.export()).dropped == 3
    assert everything(connection, place) == before


@pytest.mark.slow
async def test_a_table_changed_after_its_export_is_never_dropped(
    app: Sereno, connection: psycopg.Connection, place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    add_logs(connection, 5)
    add_jobs(connection, 1, 5)
    advance(connection, 40 * DAY)
    working = archiver(app, place, archive_grace_days=1)
    await working.move()
    await working.export()
    advance(connection, 2 * DAY)
    held = one(connection, "select held_in from sereno.archive_batches where kind = 'logs'")
    connection.execute(
        f"insert into sereno_archive.{held} (id, at, level, event, message, context) "
        "values (99, now(), 'info', 'late', 'too late', '{}')".encode()
    )
    for _ in range(2):
        caplog.clear()
        exported = await working.export()
        assert len(exported.problems) == 1
        assert errors(caplog) == ["archive.unverified"]
        assert one(connection, f"select count(*) from sereno_archive.{held}") == 6
        assert "do not hold" in one(connection, "select error from sereno.archive_batches where kind = 'logs'")
    assert places_of(connection) == {"verified": 1, "dropped": 2}
    # The same number of rows, but other rows.
    first = one(connection, f"select min(id) from sereno_archive.{held}")
    connection.execute(f"delete from sereno_archive.{held} where id = {first}".encode())
    assert len((await working.export()).problems) == 1
    assert one(connection, f"select count(*) from sereno_archive.{held}") == 5


@pytest.mark.slow
async def test_a_failing_batch_does_not_stop_the_others(
    app: Sereno, connection: psycopg.Connection, place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    add_logs(connection, 5)
    advance(connection, 40 * DAY)
    working = archiver(app, place)
    await working.move()
    # One whose table disappeared before it was planned, and others that cannot be written.
    held = one(connection, "select held_in from sereno.archive_batches")
    connection.execute(f"drop table sereno_archive.{held}".encode())
    for number in range(module.DOWN_AFTER + 1):
        add_logs(connection, 5)
        advance(connection, 40 * DAY)
        await working.move()
        held = one(connection, "select max(held_in) from sereno.archive_batches where id = %s", number + 2)
        await app.database.arun(archive.plan(number + 2, 100))
        connection.execute(f"drop table sereno_archive.{held}".encode())
    add_jobs(connection, 1, 5)
    advance(connection, 40 * DAY)
    await working.move()
    exported = await working.export()
    assert len(exported.problems) == module.DOWN_AFTER + 2
    assert set(errors(caplog)) == {"archive.failed"}
    assert exported.dropped == 2
    assert places_of(connection) == {"moved": module.DOWN_AFTER + 2, "dropped": 2}


@pytest.mark.slow
async def test_a_view_on_a_batch_keeps_only_that_batch(
    app: Sereno, connection: psycopg.Connection, place: Path
) -> None:
    add_logs(connection, 5)
    add_jobs(connection, 1, 5)
    advance(connection, 40 * DAY)
    working = archiver(app, place)
    await working.move()
    held = one(connection, "select held_in from sereno.archive_batches where kind = 'logs'")
    connection.execute(f"create view public.peek as select * from sereno_archive.{held}".encode())
    exported = await working.export()
    assert len(exported.problems) == 1
    assert "peek" in exported.problems[0] or "depend" in exported.problems[0]
    assert places_of(connection) == {"verified": 1, "dropped": 2}
    connection.execute("drop view public.peek")
    assert (await working.export()).dropped == 1
    assert one(connection, "select count(*) from sereno.archive_batches where error is not null") == 0


@pytest.mark.slow
async def test_a_table_that_is_being_read_is_dropped_later(
    app: Sereno, connection: psycopg.Connection, place: Path
) -> None:
    add_logs(connection, 5)
    advance(connection, 40 * DAY)
    working = archiver(app, place)
    await working.move()
    held = one(connection, "select held_in from sereno.archive_batches")
    with psycopg.connect(app.database.url) as reader:
        reader.execute(f"select count(*) from sereno_archive.{held}".encode())
        exported = await working.export()
        assert (exported.dropped, exported.problems) == (0, [])
    assert (await working.export()).dropped == 1


@pytest.mark.slow
async def test_a_full_storage_is_reported_and_nothing_is_dropped(
    app: Sereno, connection: psycopg.Connection, place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    add_some(connection)
    before = everything(connection, place)
    advance(connection, 60 * DAY)
    occupy(place)
    working = archiver(app, place, TENDERS)
    await working.move()
    exported = await working.export()
    assert exported.dropped == 0
    assert module.DOWN_AFTER <= len(exported.problems) < SOME_FILES
    assert set(errors(caplog)) == {"archive.failed"}
    vacate(place)
    assert everything(connection, place) == before
    again = archiver(app, place, TENDERS)
    assert (await again.export()).problems == []
    assert everything(connection, place) == before
    assert (
        one(connection, "select count(*) from sereno.archive_files where failed_at is not null or error is not null")
        == 0
    )


@pytest.mark.slow
async def test_a_new_storage_gets_the_remaining_files(app: Sereno, connection: psycopg.Connection, place: Path) -> None:
    add_some(connection)
    before = everything(connection, place)
    advance(connection, 60 * DAY)
    await archiver(app, place, TENDERS).move()
    await archiver(app, place, TENDERS, archive_grace_days=1).export()
    advance(connection, 2 * DAY)
    other = place.parent / "colder"
    elsewhere = archiver(app, other, TENDERS)
    assert (await elsewhere.export()).dropped == 0
    exported = await elsewhere.export()
    assert exported.problems == []
    assert set(places_of(connection)) == {"dropped"}
    assert everything(connection, other) == before


async def test_a_refused_table_is_reported_and_the_others_are_archived(
    app: Sereno, connection: psycopg.Connection, place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    add_tenders(connection, 5)
    advance(connection, 60 * DAY)
    hostile = [
        OwnTable("public.nothing", "at", 30.0 * DAY),
        OwnTable("public.\x00", "at", 30.0 * DAY),
        OwnTable("public.tenders; drop table public.tenders", "published_at", 30.0 * DAY),
        OwnTable("public.tenders", "published_at; drop table public.tenders", 30.0 * DAY),
    ]
    moved = await archiver(app, place, *hostile, TENDERS).move()
    assert len(moved.problems) == 4
    assert errors(caplog) == ["archive.refused"] * 4
    assert moved.rows == 5


@pytest.mark.slow
async def test_a_reader_of_the_history_does_not_delay_writers_for_long(
    app: Sereno, connection: psycopg.Connection, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 1)
    for number, ahead in enumerate(("0", "1 day", "2 days")):
        add_jobs(connection, 1 + 10 * number, 2, ahead=ahead)
    before = everything(connection, place)
    advance(connection, 40 * DAY)
    working = archiver(app, place, archive_kinds=["jobs"])
    with psycopg.connect(app.database.url) as reader:
        reader.execute("select count(*) from sereno.history")
        moved = await working.move()
        assert (moved.days, len(moved.waiting), moved.problems) == (0, 1, []), (
            "the move stops at the first locked partition"
        )
        assert everything(connection, place) == before
    assert (await working.move()).days == 3
    assert everything(connection, place) == before


@pytest.mark.slow
async def test_a_full_local_disk_is_reported(
    app: Sereno, connection: psycopg.Connection, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_logs(connection, 5)
    advance(connection, 40 * DAY)
    working = archiver(app, place)
    await working.move()
    with monkeypatch.context() as patched:
        patched.setattr(tempfile, "tempdir", str(place / "nowhere"))
        exported = await working.export()
    assert (exported.dropped, len(exported.problems)) == (0, 1)
    assert one(connection, "select error from sereno.archive_files") in exported.problems[0]
    assert (await working.export()).dropped == 1
