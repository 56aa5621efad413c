"""A file is verified by its whole contents: if one value differs from the table, nothing is dropped."""

from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sereno import Sereno
from sereno.archive import file_process, parquet
from sereno.archive.checksum import LONG, PAGE_ROWS
from sereno.archive.rows import FileMeasure, PlannedFile
from tests.archive.archive_steps import DAY, TENDERS, add_tenders, archiver
from tests.facts import advance, one

HELD = "select held_in from sereno.archive_batches where dropped_at is null"


def change_value(file: Path, name: str, *, swap: bool = False) -> None:
    """Change one value, or swap two; the file keeps its keys, its columns and their types."""
    table = pq.read_table(file)
    column = table.column(name)
    values = column.to_pylist()
    place = next(number for number, value in enumerate(values) if value != values[0])
    values[0], values[place] = values[place], values[0] if swap else values[place]
    changed = table.set_column(table.column_names.index(name), name, pa.array(values, type=column.type))
    pq.write_table(changed.replace_schema_metadata(table.schema.metadata), file)


@pytest.mark.slow
async def test_a_file_with_one_different_value_is_refused(
    app: Sereno, connection: psycopg.Connection, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For an error between the table and the file, in each column in turn."""
    add_tenders(connection, 20)
    connection.execute(
        "update public.tenders set published_at = published_at - part * interval '1 microsecond', "
        "tags = case when part > 9 then array['NULL', null] else array[null, ''] end, raw = set_byte(raw, 0, part), "
        "span = part * interval '1 hour'"
    )
    advance(connection, 40 * DAY)
    working = archiver(app, place, TENDERS)
    await working.move()

    write_correctly = file_process.write

    def faulty(name: str, swap: bool) -> Callable[..., FileMeasure]:
        def write(rows: int, planned: PlannedFile, file: Path, facts: Mapping[str, str]) -> FileMeasure:
            measured = write_correctly(rows, planned, file, facts)
            change_value(file, name, swap=swap)
            return measured

        return write

    names = ("published_at", "price", "data", "tags", "unit", "span", "open", "raw", "ratio")
    for name, swap in product(names, (False, True)):
        with monkeypatch.context() as patch:
            patch.setattr(file_process, "write", faulty(name, swap))
            done = await working.export()
        assert [problem for problem in done.problems if "its values differ from those of the table" in problem] != [], (
            name
        )
        assert done.dropped == 0
        assert one(connection, f"select count(*) from sereno_archive.{one(connection, HELD)}") == 20
    done = await working.export()
    assert (done.problems, done.files, done.dropped) == ([], 1, 1)


async def test_a_table_changed_after_its_export_is_not_dropped(
    app: Sereno, connection: psycopg.Connection, place: Path
) -> None:
    add_tenders(connection, 20)
    advance(connection, 40 * DAY)
    working = archiver(app, place, TENDERS, archive_grace_days=1)
    await working.move()
    assert (await working.export()).files == 1
    held = one(connection, HELD)
    connection.execute(f"update sereno_archive.{held} set price = price + 0.01 where part = 7")
    advance(connection, 2 * DAY)
    done = await working.export()
    assert done.dropped == 0
    assert "do not hold the rows" in done.problems[0]
    assert one(connection, f"select count(*) from sereno_archive.{held}") == 20


@pytest.mark.slow
async def test_every_type_has_the_same_checksum_in_the_table_and_in_the_file(
    app: Sereno, connection: psycopg.Connection, place: Path
) -> None:
    """Over more than a page of rows: with nulls, long and non-ASCII values, and instants before any epoch."""
    connection.execute(
        "create table public.tenders (code text primary key, published_at timestamptz not null, small smallint, "
        "whole integer, large bigint, single real, double double precision, flag boolean, day date, "
        "local timestamp, padded char(5), words text, raw bytea, nothing integer, no_words text, no_day date)"
    )
    connection.execute(
        "insert into public.tenders select 'ä' || n, sereno.now() + n * interval '1 us', nullif(n %% 7, 0) - 3, -n, "
        "nullif(n %% 5, 0) * 9e17, n / 3.0, "
        "case n %% 4 when 0 then 'NaN' when 1 then '-0' when 2 then null else 1e300 / n end, "
        "nullif(n %% 3, 0) = 1, date '1900-01-01' + 10 * nullif(n %% 9, 0), "
        "timestamp '1900-01-01' + n * interval '1 week', left('ö' || n, 5), "
        "case n %% 6 when 0 then repeat('é', n %% 2 * %(long)s + 10) when 1 then '' when 2 then null "
        "else 'word ' || n end, "
        "case n %% 5 when 0 then decode(repeat('1e1f', %(long)s * (n %% 2)), 'hex') when 1 then null "
        "else int4send(n) end "
        "from generate_series(1, %(rows)s) as n",
        {"rows": PAGE_ROWS + 10, "long": LONG},
    )
    advance(connection, 40 * DAY)
    working = archiver(app, place, TENDERS, archive_grace_days=1)
    await working.move()
    done = await working.export()
    assert (done.problems, done.files, done.rows) == ([], 1, PAGE_ROWS + 10)
    name = one(connection, "select object from sereno.archive_files")
    expected = connection.execute("select rows, keys_hash, content_hash from sereno.archive_files").fetchone()
    assert parquet.checksums(place / name, ["code"]) == expected


@pytest.mark.slow
async def test_values_like_separators_and_nulls_are_written_as_they_are(
    app: Sereno, connection: psycopg.Connection, place: Path
) -> None:
    """Such a column is read by rows; each in other pages than the next, and some pages of it as usual."""
    connection.execute(
        "create table public.tenders (code integer primary key, published_at timestamptz not null, "
        "separated text not null, like_null text, long text, shown text, starts_like_null integer)"
    )
    connection.execute(
        "insert into public.tenders select n, sereno.now(), "
        "case when n > %(page)s then E'a\\x1fb' || n else 'a' || n end, "
        "case when n %% 3 = 0 then null when n %% 2 = 0 and n > 2 * %(page)s then E'\\x1e' else 'x' end, "
        "case when n in (5, 3 * %(page)s) then repeat('ä', %(long)s) when n %% 2 = 0 then repeat('f', 64) end, "
        "case when n %% 2 = 0 then E'\\x1d\t\n' end, case when n %% 2 = 0 then 503316480 + n end "
        "from generate_series(1, 3 * %(page)s + 1) as n",
        {"page": PAGE_ROWS, "long": LONG},
    )
    before = connection.execute("select * from public.tenders order by code").fetchall()
    advance(connection, 40 * DAY)
    working = archiver(app, place, TENDERS)
    await working.move()
    done = await working.export()
    assert (done.problems, done.files, done.rows, done.dropped) == ([], 1, 3 * PAGE_ROWS + 1, 1)
    table = pq.read_table(place / one(connection, "select object from sereno.archive_files"))
    assert list(zip(*(column.to_pylist() for column in table.columns), strict=True)) == before


@pytest.mark.slow
async def test_keys_of_a_users_own_types_are_compared_in_the_order_of_their_index(
    app: Sereno, connection: psycopg.Connection, place: Path
) -> None:
    """Even if a user has defined an operator of the same name: here one that finds nothing equal or greater."""
    connection.execute("create type public.size as enum ('small', 'medium', 'large')")
    connection.execute(
        "create function public.never(public.size, public.size) returns boolean language sql as 'select false'"
    )
    connection.execute(
        "create operator public.>= (leftarg = public.size, rightarg = public.size, function = public.never)"
    )
    connection.execute(
        "create table public.tenders (size public.size, code varchar(20), published_at timestamptz not null, "
        "primary key (size, code))"
    )
    connection.execute(
        "insert into public.tenders "
        "select (array['large', 'small', 'medium'])[1 + n %% 3]::public.size, n, sereno.now() "
        "from generate_series(1, %s) as n",
        [2 * PAGE_ROWS],
    )
    advance(connection, 40 * DAY)
    working = archiver(app, place, TENDERS)
    await working.move()
    done = await working.export()
    assert (done.problems, done.rows, done.dropped) == ([], 2 * PAGE_ROWS, 1)
