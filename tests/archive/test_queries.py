"""Read models of the archive: locations, waiting batches and failures, read from its catalogue only."""

from datetime import timedelta
from pathlib import Path

import msgspec
import psycopg
import pytest

from sereno import Sereno
from sereno.archive import operations as archive
from sereno.archive import queries
from sereno.archive import store as moves
from sereno.archive.operations import ArchiveStatus
from sereno.errors import InvalidArguments
from tests.archive.archive_steps import DAY, TENDERS, add_jobs, add_logs, add_some, archiver
from tests.archive.restore_steps import restore_rows
from tests.facts import advance, one


def read_status(app: Sereno, place: Path) -> ArchiveStatus:
    settings = msgspec.structs.replace(app.settings, archive_url=f"file://{place}", keep_dead_days=30)
    return app.database.run(archive.status(settings))


def length_of(place: Path) -> int:
    return sum(path.stat().st_size for path in place.rglob("*.parquet"))


def test_the_status_of_an_empty_archive(app: Sereno, connection: psycopg.Connection) -> None:
    found = app.database.run(archive.status(app.settings))
    assert (found.on, found.lag, found.overdue, found.failures, found.restored.value) == (False, 0.0, 0.0, [], 0)
    assert {kind.kind for kind in found.kinds} == {"jobs", "deliveries", "events", "fires", "logs"}
    assert all(kind.found is None and not kind.on for kind in found.kinds)
    assert app.database.run(queries.batches()) == []
    assert app.database.run(archive.batch(1)) is None
    assert app.database.run(archive.whereabouts("jobs", 1)) == []


@pytest.mark.slow
async def test_the_status_follows_a_batch_from_its_move_to_its_drop(
    app: Sereno, connection: psycopg.Connection, place: Path
) -> None:
    add_some(connection)
    advance(connection, 60 * DAY)
    working = archiver(app, place, TENDERS, archive_grace_days=7)
    await working.move()
    found = read_status(app, place)
    assert found.on
    assert found.totals.waiting_batches == len(app.database.run(queries.batches(limit=1000)))
    assert found.totals.verified_files == 0
    advance(connection, 3600)
    assert read_status(app, place).lag == pytest.approx(3600, abs=60)

    await working.export()
    found = read_status(app, place)
    rows = one(connection, "select sum(rows)::bigint from sereno.archive_batches")
    assert (found.totals.waiting_batches, found.totals.waiting_rows, found.lag) == (0, 0, 0.0)
    assert (found.totals.verified_rows, found.totals.grace_rows, found.totals.dropped_rows) == (rows, rows, 0)
    assert found.totals.verified_bytes == length_of(place)
    assert found.totals.next_drop_at is not None
    assert found.totals.next_drop_at - found.at == pytest.approx(timedelta(days=7), abs=timedelta(minutes=5))
    tenders = next(kind for kind in found.kinds if kind.kind == "public.tenders")
    assert tenders.found is not None
    assert tenders.found.verified_rows == 20

    advance(connection, 8 * DAY)
    await working.export()
    found = read_status(app, place)
    assert (found.totals.grace_batches, found.totals.dropped_rows) == (0, rows)
    assert {line.state for line in app.database.run(queries.batches(limit=1000))} == {"dropped"}


@pytest.mark.slow
async def test_batches_and_their_files_are_listed_in_pages(
    app: Sereno, connection: psycopg.Connection, place: Path
) -> None:
    for _ in range(3):
        add_logs(connection, 3)
        advance(connection, 20 * DAY)
        await archiver(app, place).move()
    await archiver(app, place).export()
    every = app.database.run(queries.batches("logs"))
    assert len(every) == 3
    first = app.database.run(queries.batches("logs", limit=2))
    second = app.database.run(queries.batches("logs", before=first[-1].id, limit=2))
    assert [line.id for line in [*first, *second]] == [line.id for line in every]
    assert app.database.run(queries.batches("logs", "moved")) == []
    assert app.database.run(queries.batches("jobs")) == []
    detail = app.database.run(archive.batch(every[0].id))
    assert detail is not None
    assert (detail.batch, len(detail.files), detail.more) == (every[0], 1, False)
    assert detail.about.key_columns == ["id"]
    assert {column.name for column in detail.about.columns} >= {"id", "at", "message"}
    assert (place / detail.files[0].object).stat().st_size == detail.files[0].bytes


@pytest.mark.slow
async def test_failures_are_listed(app: Sereno, connection: psycopg.Connection, place: Path) -> None:
    add_logs(connection, 3)
    advance(connection, 60 * DAY)
    working = archiver(app, place, archive_grace_days=7)
    await working.move()
    await working.export()
    (line,) = app.database.run(queries.batches())
    app.database.run(moves.failed(line.id, 1, "it is broken"))
    found = read_status(app, place)
    assert [(file.batch, file.error, file.held) for file in found.failures] == [(line.id, "it is broken", True)]
    assert found.totals.failures == 1
    assert [each.state for each in app.database.run(queries.batches(state="failed"))] == ["failed"]
    day = found.at.date()
    (shown,) = app.database.run(archive.days(day - timedelta(days=100), day))
    assert shown.state == "failed"


@pytest.mark.slow
async def test_the_calendar_lists_the_days_of_files(app: Sereno, connection: psycopg.Connection, place: Path) -> None:
    add_logs(connection, 3)
    advance(connection, 2 * DAY)
    add_logs(connection, 2)
    began, ended = connection.execute(
        "select min(at at time zone 'UTC')::date, max(at at time zone 'UTC')::date from sereno.logs"
    ).fetchone() or (None, None)
    assert ended - began == timedelta(days=2)
    advance(connection, 60 * DAY)
    working = archiver(app, place)
    await working.move()
    await working.export()
    found = app.database.run(archive.days(began, ended))
    assert [(line.day, line.kind, line.rows, line.state) for line in found] == [
        (began, "logs", 5, "archived"),
        (began + timedelta(days=1), "logs", 0, "archived"),
        (ended, "logs", 0, "archived"),
    ], "a file is listed on each day that it covers, and counted once"
    assert app.database.run(archive.days(began + timedelta(days=1), began + timedelta(days=1), "logs")) == [found[1]]
    assert app.database.run(archive.days(began, ended, "jobs")) == []
    with pytest.raises(InvalidArguments):
        archive.days(began, began + timedelta(days=401))


@pytest.mark.slow
async def test_an_archived_job_is_located(app: Sereno, connection: psycopg.Connection, place: Path) -> None:
    add_jobs(connection, 1, 3)
    add_jobs(connection, 10, 3)
    advance(connection, 60 * DAY)
    working = archiver(app, place, archive_grace_days=7)
    await working.move()

    def places(number: int, kind: str = "jobs") -> list[tuple[str, bool, bool]]:
        found = app.database.run(archive.whereabouts(kind, number))
        return [(each.state, each.held, each.object is not None) for each in found]

    assert places(2) == [("waiting", True, False)], "the job is moved, but in no file yet"
    assert places(7) == [], "a held table is searched"
    await working.export()
    assert places(2) == [("verified", True, True)]
    assert places(7) == []
    assert places(2, "attempts") == [("verified", True, True)]
    advance(connection, 8 * DAY)
    await working.export()
    assert places(2) == [("verified", False, True)]
    assert places(7) == [("verified", False, True)], "the job may be in the file, whose ids are 1 to 12"
    assert places(13) == []
    for kind, number in (("fires", 1), ("banana", 1), ("jobs", 2**70)):
        with pytest.raises(InvalidArguments):
            archive.whereabouts(kind, number)


async def test_restored_rows_do_not_count_as_overdue(app: Sereno, connection: psycopg.Connection, place: Path) -> None:
    add_logs(connection, 3)
    advance(connection, 20 * DAY)
    late = read_status(app, place)
    assert late.overdue == pytest.approx(6 * DAY, abs=600), "14 days are retained"
    working = archiver(app, place)
    await working.move()
    await working.export()
    assert read_status(app, place).overdue == 0.0
    restore_rows(app, place, "logs")
    found = read_status(app, place)
    assert (found.overdue, found.restored.value) == (0.0, 3)
    assert [(each.kind, each.rows) for each in found.restored_kinds] == [("logs", 3)]
