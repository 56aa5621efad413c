"""Old rows are moved to files that are read back before rows are dropped; no row is lost or duplicated."""

import uuid
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pyarrow.parquet as pq
import pytest

from sereno import Sereno
from sereno.archive import archiver as module
from sereno.archive import manifest, parquet
from sereno.archive.orders import OwnTable
from tests.archive.archive_steps import (
    DAY,
    TENDERS,
    add_event,
    add_everything,
    add_jobs,
    add_tenders,
    archiver,
    everything,
    filed,
    places_of,
    rows_of,
)
from tests.facts import advance, one


def objects(place: Path) -> list[str]:
    return sorted(str(path.relative_to(place)) for path in place.rglob("*.parquet"))


def mode(place: Path) -> int:
    return place.stat().st_mode


async def test_old_rows_are_written_to_verified_files_and_dropped(
    app: Sereno, connection: psycopg.Connection, place: Path
) -> None:
    add_everything(connection)
    before = everything(connection, place)
    advance(connection, 60 * DAY)
    working = archiver(app, place, TENDERS)
    fractions: list[float] = []
    moved = await working.move(lambda fraction, _words: fractions.append(fraction))
    assert (moved.waiting, moved.problems) == ([], [])
    assert everything(connection, place) == before
    assert one(connection, "select count(*) from sereno.message_ids") == 0
    hot = Counter(kind for kind, _ in everything(connection, place) - _held(connection))
    assert hot == {}, "all rows were old enough"
    moves = len(fractions)
    exported = await working.export(lambda fraction, _words: fractions.append(fraction))
    assert 0 < moves < len(fractions)
    assert all(0 <= fraction < 1 for fraction in fractions)
    assert exported.problems == []
    assert (exported.rows, exported.dropped) == (before.total(), exported.files)
    assert everything(connection, place) == before
    assert places_of(connection) == {"dropped": exported.dropped}
    assert one(connection, "select count(*) from pg_tables where schemaname = 'sereno_archive'") == 0
    kinds = {row[0] for row in connection.execute("select kind from sereno.archive_batches")}
    assert kinds == {"jobs", "attempts", "deliveries", "receipts", "events", "fires", "logs", "public.tenders"}
    assert mode(place) & 0o077 == 0, "only the owner can read the files"
    again, exported = await working.move(), await working.export()
    assert (again.days, again.rows, exported.files, exported.dropped) == (0, 0, 0, 0)
    assert everything(connection, place) == before


def _held(connection: psycopg.Connection) -> Counter[Any]:
    held = connection.execute("select kind, held_in from sereno.archive_batches where held_in is not null").fetchall()
    with connection.transaction():
        connection.execute("set local timezone = 'UTC'")
        return sum((rows_of(connection, kind, f"sereno_archive.{name}") for kind, name in held), Counter())


@pytest.mark.slow
async def test_a_batch_is_held_for_its_grace_period(app: Sereno, connection: psycopg.Connection, place: Path) -> None:
    add_jobs(connection, 1, 10)
    advance(connection, 40 * DAY)
    working = archiver(app, place, archive_grace_days=7)
    await working.move()
    assert (await working.export()).dropped == 0
    assert places_of(connection) == {"verified": 2}
    advance(connection, 7 * DAY - 60)
    assert (await working.export()).dropped == 0
    advance(connection, 120)
    assert (await working.export()).dropped == 2


async def test_only_the_configured_kinds_are_archived(app: Sereno, connection: psycopg.Connection, place: Path) -> None:
    add_everything(connection)
    advance(connection, 60 * DAY)
    await archiver(app, place, archive_kinds=["logs", "fires"]).move()
    assert {row[0] for row in connection.execute("select kind from sereno.archive_batches")} == {"logs", "fires"}


async def test_rows_without_a_retention_stay(app: Sereno, connection: psycopg.Connection, place: Path) -> None:
    add_everything(connection)
    advance(connection, 60 * DAY)
    await archiver(
        app, place, keep_dead_days=None, keep_deliveries_days=None, keep_events_days=None, keep_history_days=90
    ).move()
    kinds = {row[0] for row in connection.execute("select kind from sereno.archive_batches")}
    assert kinds == {"fires", "logs"}
    assert one(connection, "select count(*) from sereno.history") == 31


@pytest.mark.slow
async def test_a_batch_is_split_into_files_without_loss(
    app: Sereno, connection: psycopg.Connection, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FILE_ROWS", 100)
    add_jobs(connection, 1, 500)
    before = everything(connection, place)
    advance(connection, 40 * DAY)
    working = archiver(app, place)
    await working.move()
    # Pages without rows become a file without rows.
    held = one(connection, "select held_in from sereno.archive_batches where kind = 'jobs'")
    gone = connection.execute(
        f"delete from sereno_archive.{held} where ctid < '(6,0)' returning id".encode()
    ).fetchall()
    assert gone
    exported = await working.export()
    assert exported.problems == []
    assert exported.dropped == 2
    files = connection.execute(
        "select rows, first_block, last_block from sereno.archive_files order by batch_id, number"
    )
    counts = [row[0] for row in files.fetchall()]
    assert len(counts) > 10
    assert 0 in counts
    assert sum(counts) == 1500 - len(gone)
    after = everything(connection, place)
    assert {kind for kind, _ in (before - after)} == {"jobs"}
    assert (before - after).total() == len(gone)
    assert after - before == Counter()


@pytest.mark.slow
async def test_a_file_is_readable_by_other_libraries(app: Sereno, connection: psycopg.Connection, place: Path) -> None:
    add_tenders(connection, 3000)
    (expected,) = [connection.execute("select array_agg(code order by code, part) from public.tenders").fetchone()]
    advance(connection, 40 * DAY)
    working = archiver(app, place, TENDERS)
    await working.move()
    await working.export()
    file = place / one(connection, "select object from sereno.archive_files")
    assert expected is not None
    assert pq.read_table(file).column("code").to_pylist() == expected[0], "sorted by its key"
    group = pq.ParquetFile(file).metadata.row_group(0)
    columns = {group.column(number).path_in_schema: group.column(number) for number in range(group.num_columns)}
    assert {column.compression for column in columns.values()} == {"ZSTD"}
    assert columns["published_at"].statistics.has_min_max
    assert columns["code"].statistics.has_min_max
    found = duckdb.execute(
        "select count(*), sum(price::decimal(12, 2)), min(open), max(ratio), min(raw), count(distinct unit::uuid) "
        "from read_parquet(?)",
        [str(file)],
    ).fetchone()
    assert found is not None
    assert (found[0], str(found[1]), found[2], found[4], found[5]) == (3000, "4503000.00", False, b"\x00\xff", 3000)
    assert found[3] == pytest.approx(1000)


@pytest.mark.slow
async def test_a_manifest_is_enough_to_verify_its_file(
    app: Sereno, connection: psycopg.Connection, place: Path
) -> None:
    add_tenders(connection, 20)
    advance(connection, 40 * DAY)
    working = archiver(app, place, TENDERS)
    await working.move()
    await working.export()
    name = one(connection, "select object from sereno.archive_files")
    stored = manifest.decode((place / manifest.name_of(name)).read_bytes())
    assert (stored.object, stored.kind, stored.source) == (name, "public.tenders", "public.tenders")
    assert (stored.rows, stored.bytes) == (20, (place / name).stat().st_size)
    assert stored.sha256 == parquet.sha256(place / name)
    assert parquet.checksums(place / name, stored.key_columns) == (20, stored.keys_hash, stored.content_hash)
    assert (stored.key_columns, stored.time_column) == (["code", "part"], "published_at")
    assert {column.name: column.type for column in stored.columns}["price"] == "numeric(12,2)"
    assert stored.from_at is not None
    assert abs(stored.from_at - one(connection, "select sereno.now()")) < timedelta(days=41)


@pytest.mark.slow
async def test_the_same_rows_make_the_same_file(app: Sereno, connection: psycopg.Connection, place: Path) -> None:
    add_tenders(connection, 500)
    advance(connection, 40 * DAY)
    working = archiver(app, place, TENDERS, archive_grace_days=7)
    await working.move()
    await working.export()
    object_, sha256 = connection.execute("select object, sha256 from sereno.archive_files").fetchall()[0]
    (place / object_).unlink()
    connection.execute("update sereno.archive_files set verified_at = null")
    connection.execute("update sereno.archive_batches set verified_at = null, drop_eligible_at = null")
    await working.export()
    assert connection.execute("select object, sha256 from sereno.archive_files").fetchall() == [(object_, sha256)]
    assert objects(place) == [object_]


@pytest.mark.slow
async def test_the_counts_of_files_equal_their_rows(app: Sereno, connection: psycopg.Connection, place: Path) -> None:
    add_jobs(connection, 101, 50)
    advance(connection, 40 * DAY)
    working = archiver(app, place)
    await working.move()
    await working.export()
    row = connection.execute(
        "select rows, first_id, last_id, from_at = to_at from sereno.archive_files where kind = 'jobs'"
    ).fetchone()
    assert row == (50, 101, 150, True)
    batch = one(connection, "select id from sereno.archive_batches where kind = 'jobs'")
    assert filed(connection, place, batch, "jobs").total() == 50


@pytest.mark.slow
async def test_an_event_is_archived_after_its_deliveries(
    app: Sereno, connection: psycopg.Connection, place: Path
) -> None:
    event = add_event(connection)
    connection.execute(
        "insert into sereno.deliveries (event_id, recipient_id, channel, state, due_at) "
        "values (%s, 1, 'email', 'pending', sereno.now())",
        [event],
    )
    advance(connection, 60 * DAY)
    working = archiver(app, place)
    await working.move()
    assert one(connection, "select count(*) from sereno.archive_batches") == 0
    connection.execute("update sereno.deliveries set state = 'sent', changed_at = sereno.now()")
    await working.move()
    assert one(connection, "select count(*) from sereno.archive_batches") == 0, "the event has just changed"
    advance(connection, 31 * DAY)
    await working.move()
    assert {row[0] for row in connection.execute("select kind from sereno.archive_batches")} == {"deliveries", "events"}


@pytest.mark.slow
async def test_a_database_in_another_encoding_is_archived(server_url: str, place: Path) -> None:
    name = f"test_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(server_url, autocommit=True) as elsewhere:
        elsewhere.execute(f"create database {name} template template0 encoding 'LATIN1' locale 'C'".encode())
        app = Sereno(server_url.replace("/postgres?", f"/{name}?", 1))
        app.migrate()
        with psycopg.connect(app.database.url, autocommit=True) as connection:
            connection.execute("create table public.t (id text primary key, at date)")
            connection.execute("insert into public.t values ('Größe', '2020-01-01')")
            before = everything(connection, place, ["public.t"])
            working = archiver(app, place, OwnTable("public.t", "at", 30.0 * DAY))
            await working.move()
            assert (await working.export()).problems == []
            assert everything(connection, place, ["public.t"]) == before
        await app.aclose()
        elsewhere.execute(f"drop database {name} with (force)".encode())
