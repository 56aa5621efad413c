"""Queries of archived files return each row once; nothing else can be read, and nothing can be written."""

import csv
from datetime import timedelta
from pathlib import Path

import msgspec
import psycopg
import pyarrow.parquet as pq
import pytest

from sereno import Sereno
from sereno.archive.duckdb_views import QueryRows
from sereno.archive.files import export, views
from sereno.archive.orders import OwnTable
from sereno.archive.rows import TimeSpan
from sereno.archive.storage import Storage
from sereno.database.driver import drive
from sereno.errors import ArchiveUnavailable, InvalidArguments
from tests.archive.archive_steps import DAY, TENDERS, add_jobs, add_logs, add_tenders, archiver
from tests.archive.conftest import Bucket
from tests.archive.restore_steps import cold, restore_rows
from tests.facts import advance, one

ALL = TimeSpan()


async def archive(app: Sereno, place: Path, *tables: OwnTable) -> None:
    working = archiver(app, place, *tables)
    moved = await working.move()
    exported = await working.export()
    assert [*moved.problems, *exported.problems] == []


def query_rows(
    app: Sereno, place: Path | Storage, query_text: str, span: TimeSpan = ALL
) -> list[tuple[str | None, ...]]:
    where = cold(place) if isinstance(place, Path) else place
    with QueryRows(where, app.database.run(views(span))) as rows:
        return list(rows.texts(query_text)[1])


async def test_a_query_returns_the_archived_rows(app: Sereno, connection: psycopg.Connection, place: Path) -> None:
    add_jobs(connection, 1, 10)
    add_tenders(connection, 4)
    advance(connection, 60 * DAY)
    await archive(app, place, TENDERS)
    assert query_rows(app, place, "select count(*), sum(id), min(args ->> 'n') from jobs") == [("10", "55", "1")]
    types = "typeof(any_value(price)), typeof(any_value(unit))"
    found = query_rows(app, place, f"select sum(price), {types} from public.tenders;")
    assert found == [("12.00", "DECIMAL(12,2)", "UUID")]
    assert query_rows(app, place, "select count(*) from attempts join jobs on id = job_id where id = 3") == [("2",)]
    assert query_rows(app, place, "with a as (select 1 as n) select n from a -- with a comment") == [("1",)]
    assert {row[0] for row in query_rows(app, place, "show tables")} == {"attempts", "jobs"}


@pytest.mark.slow
async def test_a_row_in_two_files_is_returned_once_in_its_last_state(
    app: Sereno, connection: psycopg.Connection, place: Path
) -> None:
    add_jobs(connection, 1, 5)
    add_tenders(connection, 3)
    connection.execute(
        "insert into sereno.fires (planned_at, schedule_id, fired_at) "
        "select sereno.now() + make_interval(secs => n * 0.000001), n, sereno.now() from generate_series(1, 3) as n"
    )
    advance(connection, 60 * DAY)
    await archive(app, place, TENDERS)
    for kind in ("jobs", "public.tenders", "fires"):
        restore_rows(app, place, kind)
    connection.execute("update sereno.history set reason = 'changed' where id = 2")
    connection.execute("update public.tenders set price = 7 where part = 3")
    connection.execute("update sereno.fires set reason = 'changed' where schedule_id = 2")
    advance(connection, 31 * DAY)
    await archive(app, place, TENDERS)
    assert one(connection, "select sum(rows) from sereno.archive_files where kind = 'jobs'") == 6
    assert query_rows(app, place, "select count(*), string_agg(reason, ',') from jobs") == [("5", "changed")]
    assert query_rows(app, place, "select count(*), max(price) from public.tenders") == [("3", "7.00")]
    assert query_rows(app, place, "select count(*), string_agg(reason, ',') from fires") == [("3", "changed")]
    assert query_rows(app, place, "select count(*) from attempts") == [("10",)]


@pytest.mark.slow
async def test_a_time_span_skips_other_files(app: Sereno, connection: psycopg.Connection, place: Path) -> None:
    for _ in range(3):
        add_logs(connection, 2)
        advance(connection, 20 * DAY)
        await archive(app, place)
    first = one(connection, "select min(from_at) from sereno.archive_files")
    span = TimeSpan(from_at=first + timedelta(days=10), to_at=first + timedelta(days=30))
    (view,) = app.database.run(views(span))
    assert len(view.objects) == 1
    assert query_rows(app, place, "select count(*) from logs", span) == [("2",)]
    assert app.database.run(views(TimeSpan(to_at=first - timedelta(days=1)))) == []


HOSTILE = (
    "select * from read_csv('/etc/passwd')",
    "select * from read_text('/etc/passwd')",
    "select * from read_parquet('/tmp/*.parquet')",
    "select * from '/etc/passwd'",
    "select * from glob('/*')",
    "select * from read_csv('http://127.0.0.1:1/x.csv')",
    "select * from read_parquet('s3://bucket/x.parquet')",
    "select * from read_parquet('archived://logs/other.parquet')",
    "copy (select 1) to '{out}'",
    "copy (select 1) to '{file}' (use_tmp_file false)",
    "select 1) q; copy (select 1) to '{file}' (use_tmp_file false); select * from (select 1",
    "select 1; copy (select 1) to '{out}'",
    "attach '{out}' as other",
    "export database '{out}'",
    "install httpfs",
    "load httpfs",
    "set memory_limit = '100GB'",
    "set enable_external_access = true",
    "reset lock_configuration",
    "create table t as select 1",
    "drop view logs",
    "pragma database_list",
    "call pragma_version()",
    "select * from query('copy (select 1) to ''{out}''')",
    "select getenv('PATH')",
    "",
    "nonsense",
    "select * from nowhere",
)


@pytest.mark.slow
async def test_nothing_else_can_be_read_or_written(app: Sereno, connection: psycopg.Connection, place: Path) -> None:
    add_logs(connection, 3)
    advance(connection, 60 * DAY)
    await archive(app, place)
    file = place / one(connection, "select object from sereno.archive_files")
    content, out = file.read_bytes(), place / "out"
    with QueryRows(cold(place), app.database.run(views(ALL))) as rows:
        for words in HOSTILE:
            query_text = words.replace("{out}", str(out)).replace("{file}", str(file))
            with pytest.raises(InvalidArguments):
                list(rows.texts(query_text)[1])
            with pytest.raises(InvalidArguments):
                list(rows.lines(query_text))
        assert list(rows.texts("select count(*) from logs")[1]) == [("3",)]
    assert file.read_bytes() == content
    assert not out.exists()


@pytest.mark.slow
async def test_a_bucket_is_read_through_the_storage(
    app: Sereno, connection: psycopg.Connection, bucket: Bucket, tmp_path: Path
) -> None:
    add_jobs(connection, 1, 200)
    advance(connection, 60 * DAY)
    working = archiver(app, tmp_path, archive_url=bucket.url)
    await working.move()
    assert (await working.export()).problems == []
    assert query_rows(app, working.place, "select count(*), sum(id) from jobs") == [("200", "20100")]
    with QueryRows(working.place, app.database.run(views(ALL))) as rows:
        name = one(connection, "select object from sereno.archive_files where kind = 'jobs'")
        with pytest.raises(InvalidArguments):
            list(rows.texts(f"select * from read_csv('archived://{name}.json')")[1])
        bucket.delete(name)
        with pytest.raises(ArchiveUnavailable, match="is not in the archive"):
            list(rows.texts("select sum(hash(tags)), sum(hash(args)) from jobs")[1])


@pytest.mark.slow
async def test_a_missing_file_is_reported(app: Sereno, connection: psycopg.Connection, place: Path) -> None:
    add_logs(connection, 3)
    advance(connection, 60 * DAY)
    await archive(app, place)
    (place / one(connection, "select object from sereno.archive_files")).unlink()
    with pytest.raises(ArchiveUnavailable):
        query_rows(app, place, "select * from logs")


@pytest.mark.slow
async def test_values_without_a_json_equivalent_are_null(
    app: Sereno, connection: psycopg.Connection, place: Path
) -> None:
    add_logs(connection, 1)
    advance(connection, 60 * DAY)
    await archive(app, place)
    with QueryRows(cold(place), app.database.run(views(ALL))) as rows:
        (line,) = rows.lines("select 'nan'::double as a, '-inf'::double as b, 'NaN' as c, null as d, 'ä' as e")
    assert msgspec.json.decode(line) == {"a": None, "b": None, "c": "NaN", "d": None, "e": "ä"}


@pytest.mark.slow
async def test_a_table_with_an_odd_name_can_be_queried(
    app: Sereno, connection: psycopg.Connection, place: Path
) -> None:
    name = '"Odd.one"."My ""table"" [*]"'
    connection.execute(f'create schema "Odd.one"; create table {name} ("Id" int primary key, "At" date, n numeric)')
    connection.execute(f"insert into {name} values (1, '2020-01-01', 1.5), (2, '2020-01-02', 'NaN')".encode())
    await archive(app, place, OwnTable(name, "At", 30.0 * DAY))
    assert query_rows(app, place, f'select "Id", n from {name} order by 1') == [("1", "1.5"), ("2", "nan")]


@pytest.mark.slow
async def test_a_directory_named_like_a_glob_pattern_can_be_queried(
    app: Sereno, connection: psycopg.Connection, place: Path
) -> None:
    add_logs(connection, 3)
    advance(connection, 60 * DAY)
    odd = place.parent / "cold [ab]*"
    await archive(app, odd)
    assert query_rows(app, odd, "select count(*) from logs") == [("3",)]


@pytest.mark.slow
async def test_an_export_has_the_rows_of_its_time_span(
    app: Sereno, connection: psycopg.Connection, place: Path, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    for _ in range(2):
        add_logs(connection, 3)
        advance(connection, 20 * DAY)
        await archive(app, place)
    first = one(connection, "select min(from_at) from sereno.archive_files")
    span = TimeSpan(from_at=first, to_at=first + timedelta(days=5))
    file = place / one(connection, "select object from sereno.archive_files order by batch_id limit 1")
    content = file.read_bytes()
    for form in (".parquet", ".csv", ".jsonl"):
        with subtests.test(form=form):
            out = tmp_path / f"logs{form}"
            file.write_bytes(content)
            assert drive(export("logs", span, cold(place), out, lambda *_: None), app.database.run) == 3
            assert messages(out) == ["line 1", "line 2", "line 3"]
            assert names_in(tmp_path) == [out.name]
            file.write_bytes(content[:-4] + b"xxxx")
            out.unlink()
            with pytest.raises(ArchiveUnavailable, match="differs from the file that was verified"):
                drive(export("logs", span, cold(place), out, lambda *_: None), app.database.run)
            assert names_in(tmp_path) == []


def names_in(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]


def messages(file: Path) -> list[str]:
    if file.suffix == ".parquet":
        return [str(each) for each in pq.read_table(file)["message"].to_pylist()]
    if file.suffix == ".csv":
        with file.open() as lines:
            return [row["message"] for row in csv.DictReader(lines)]
    return [msgspec.json.decode(line)["message"] for line in file.read_text().splitlines()]
