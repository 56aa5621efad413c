"""A file holds the same values as its rows: every type, every key, dates outside any calendar."""

import asyncio
import math
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sereno import Sereno
from sereno.archive import archiver as module
from sereno.archive.orders import OwnTable
from tests.archive.archive_steps import DAY, archiver, everything, filed
from tests.facts import advance, one

OLD = 30.0 * DAY
# Each in an order that differs from the order of its texts, where possible.
KEYS = {
    "smallint": "9, 10, -1",
    "integer": "9, 10, -1",
    "bigint": "9, 10, 9223372036854775807, -9223372036854775808",
    "text": "'b', 'B', 'ä', '', ' a', E'a\\tb', E'a\\nb', '🚪', 'a'",
    "varchar(5)": "'b', 'B', 'ä'",
    "char(5)": "'b', 'B  ', 'ä'",
    "numeric": "9, 10, 1.50, 1e20, 'NaN'",
    "uuid": "'00000000-0000-0000-0000-00000000000a', 'ffffffff-ffff-ffff-ffff-ffffffffffff'",
    "boolean": "true, false",
    "bytea": "'\\x00', '\\xff00', ''",
    "real": "0.1, 9, 10, 'Infinity', '-0'",
    "double precision": "0.1, 9, 10, 1e300, 'NaN'",
    "date": "'2024-02-29', '0044-03-15 BC', '20000-01-01'",
    "timestamp": "'2024-02-29 12:00:00.000001', '1969-12-31 23:59:59'",
    "timestamptz": "'2024-02-29 12:00:00.000001+02', 'infinity', '-infinity', '0044-03-15 BC', '294276-01-01'",
    "time": "'09:00', '10:00:00.5'",
    "interval": "'1 day', '9 hours', '1 mon 2 days'",
    "inet": "'10.0.0.1', '9.0.0.0/8'",
    "mood": "'happy', 'sad'",
    "even": "10, 8",
    "int[]": "'{9}', '{10}'",
    "daterange": "'[2024-01-01,2024-02-01)', 'empty'",
    "jsonb": "'{\"a\": 9}', '10', 'null'",
    "pair": "'(9,a)', '(10,\"b c\")'",
}
TYPES = """
    create type public.mood as enum ('sad', 'happy');
    create domain public.even as int check (value % 2 = 0);
    create type public.pair as (n int, t text)
"""


def add_tables(connection: psycopg.Connection) -> list[OwnTable]:
    """Add a table for each type of key."""
    connection.execute(TYPES.encode())
    tables = []
    for number, (type_, values) in enumerate(KEYS.items()):
        name = f"public.t{number}"
        connection.execute(
            f'create table {name} ("Key" {type_}, part int default 1, at date, primary key ("Key", part))'.encode()
        )
        for value in values.split(", "):
            connection.execute(f"insert into {name} (\"Key\", at) values ({value}, '2020-01-01')".encode())
        tables.append(OwnTable(name, "at", OLD))
    return tables


STRANGE = {
    "datestyle": "'ISO, DMY'",
    "timezone": "'Asia/Kathmandu'",
    "intervalstyle": "'iso_8601'",
    "bytea_output": "'escape'",
    "extra_float_digits": "0",
    "statement_timeout": "'1s'",
}


VALUES = {
    "timestamptz": ["2024-02-29 12:00:00.000001+02", "infinity", "-infinity", "0044-03-15 00:00:00+00 BC", None],
    "timestamp": ["2024-02-29 12:00:00.123", "infinity", "294276-12-31 23:59:59", None],
    "date": ["2024-02-29", "infinity", "5874897-12-31", None],
    "numeric": ["NaN", "1.50", "1e100", "-0.000000000000000000001", None],
    "numeric(6, 2)": ["1.5", None],
    "real": ["0.1", "NaN", "Infinity", "-0", None],
    "double precision": ["0.1", "NaN", "-Infinity", "1e300", None],
    "text": ["", "ä\u0001\u2028🚪", "a\tb\nc", "NULL", "\\N", None],
    "char(4)": ["a", "", None],
    "varchar": ["x" * 100_000, None],
    "bytea": ["\\x", "\\x00ff", None],
    "boolean": ["true", "false", None],
    "smallint": ["-32768", "32767", None],
    "bigint": ["-9223372036854775808", None],
    "jsonb": ['{"a": [1.50, null, "ä"]}', "null", None],
    "json": ['{"b":1,  "a":1, "b":2}', None],
    "text[]": ['{a,"b,c",NULL,""}', "{}", None],
    "int[]": ["{{1,2},{3,4}}", "[5:6]={1,2}", None],
    "timestamptz[]": ['{"2024-01-01 00:00:00+00",infinity}', None],
    "interval": ["1 year 2 mons 3 days 04:05:06.7", "-1 day", None],
    "tstzrange": ['["2024-01-01 00:00:00+00",infinity)', "empty", None],
    "uuid": ["00000000-0000-0000-0000-00000000000a", None],
    "inet": ["::1/64", None],
    "bit varying": ["0101", None],
    "money": ["1.50", None],
    "tsvector": ["'a':1 'b'", None],
    "mood": ["happy", None],
    "even": ["2", None],
    "pair": ['(1,"a ""b""")', None],
    "name": ["postgres", None],
    '"char"': ["x", None],
    "time with time zone": ["12:00:00+02", None],
    "point": ["(1,2)", None],
    "jsonpath": ['$."a"', None],
}  # fmt: skip


async def test_a_value_may_be_of_any_type(
    app: Sereno, connection: psycopg.Connection, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FILE_ROWS", 3)
    connection.execute(TYPES.encode())
    columns = ", ".join(f'"{number}. {type_.strip(chr(34))}" {type_}' for number, type_ in enumerate(VALUES))
    connection.execute(f"create table public.t (id bigint primary key, at timestamptz, {columns})".encode())
    for number in range(max(map(len, VALUES.values()))):
        row = [values[min(number, len(values) - 1)] for values in VALUES.values()]
        marks = ", ".join(f"%s::{type_}" for type_ in VALUES)
        connection.execute(f"insert into public.t values ({number}, '2020-01-01', {marks})".encode(), row)
    before = everything(connection, place, ["public.t"])
    working = archiver(app, place, OwnTable("public.t", "at", OLD))
    assert (await working.move()).problems == []
    assert (await working.export()).problems == []
    assert everything(connection, place, ["public.t"]) == before
    for name in [row[0] for row in connection.execute("select object from sereno.archive_files")]:
        found = duckdb.execute("select count(*) from read_parquet(?)", [str(place / name)]).fetchone()
        assert found == (pq.read_metadata(place / name).num_rows,)


@pytest.mark.slow
async def test_types_with_a_parquet_equivalent_keep_their_type(
    app: Sereno, connection: psycopg.Connection, place: Path
) -> None:
    connection.execute(
        "create table public.t (id bigint primary key, at timestamptz, a timestamp, b date, c real, "
        "d double precision, e boolean, f bytea, g smallint, h integer, i text, forever timestamptz)"
    )
    connection.execute(
        "insert into public.t "
        "values (1, '2020-01-01', '2020-01-01', '2020-01-01', 1, 1, true, 'x', 1, 1, 'x', 'infinity')"
    )
    working = archiver(app, place, OwnTable("public.t", "at", OLD))
    await working.move()
    await working.export()
    schema = pq.read_schema(place / one(connection, "select object from sereno.archive_files"))
    assert {field.name: field.type for field in schema} == {
        "id": pa.int64(), "at": pa.timestamp("us", "UTC"), "a": pa.timestamp("us"), "b": pa.date32(), "c": pa.float32(),
        "d": pa.float64(), "e": pa.bool_(), "f": pa.binary(), "g": pa.int16(), "h": pa.int32(), "i": pa.string(),
        # Parquet has no equivalent of this instant.
        "forever": pa.string(),
    }  # fmt: skip
    assert one(connection, "select as_texts from sereno.archive_batches") == ["forever"]


@pytest.mark.slow
async def test_the_time_of_a_row_may_be_outside_the_calendar(
    app: Sereno, connection: psycopg.Connection, place: Path
) -> None:
    connection.execute(
        "create table public.t (id int primary key, at timestamptz); "
        "create table public.u (id int primary key, at date)"
    )
    connection.execute("insert into public.t values (1, '-infinity')")
    connection.execute("insert into public.u values (1, '-infinity'), (2, '4713-01-01 BC'), (3, '2020-01-01')")
    before = everything(connection, place, ["public.t", "public.u"])
    working = archiver(app, place, OwnTable("public.t", "at", OLD), OwnTable("public.u", "at", OLD))
    assert (await working.move()).rows == 4
    exported = await working.export()
    assert (exported.problems, exported.dropped) == ([], 2)
    assert everything(connection, place, ["public.t", "public.u"]) == before
    low = datetime(1, 1, 2, tzinfo=UTC)
    found = connection.execute("select kind, from_at, to_at from sereno.archive_files order by kind").fetchall()
    assert found == [("public.t", low, low), ("public.u", low, datetime(2020, 1, 1, tzinfo=UTC))]


YOUNG = "2100-01-01"
text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20)
instant = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC))  # noqa: DTZ001 - st adds it
row = st.tuples(
    st.sampled_from(["2020-01-01", "-infinity", YOUNG]),
    st.one_of(st.none(), instant, st.sampled_from(["infinity", "-infinity"])),
    st.one_of(st.none(), st.dates(), st.just("infinity")),
    st.one_of(st.none(), st.decimals(allow_nan=False, allow_infinity=False, places=3), st.just(Decimal("NaN"))),
    st.one_of(st.none(), st.floats()),
    st.one_of(st.none(), st.binary(max_size=20)),
    st.one_of(st.none(), st.lists(text, max_size=3)),
    st.one_of(st.none(), st.booleans()),
    st.one_of(st.none(), text.map(lambda found: found * 200)),
)
rows = st.dictionaries(st.tuples(text, st.integers(-(2**63), 2**63 - 1)), row, max_size=25)


examples_of_rows = pytest.mark.parametrize(
    "examples",
    [
        pytest.param(8, marks=pytest.mark.slow),
        pytest.param(500, marks=[pytest.mark.storm, pytest.mark.timeout(3600)]),
    ],
)


@examples_of_rows
def test_rows_are_the_same_multiset_at_every_step(
    app: Sereno, connection: psycopg.Connection, place: Path, examples: int
) -> None:
    @settings(max_examples=examples)
    @given(found=rows, file_rows=st.integers(1, 30), move_rows=st.integers(1, 30))
    def check(found: dict[Any, Any], file_rows: int, move_rows: int) -> None:
        follow(app, connection, place, found, file_rows, move_rows)

    check()


def follow(
    app: Sereno,
    connection: psycopg.Connection,
    place: Path,
    found: dict[Any, Any],
    file_rows: int,
    move_rows: int,
) -> None:
    """Archive these rows, and compare them with the originals after every step."""
    connection.execute("drop table if exists public.t; truncate sereno.archive_batches, sereno.archive_files")
    connection.execute(
        "create table public.t (code text, number bigint, at timestamptz, instant timestamptz, day date, "
        "amount numeric, ratio double precision, raw bytea, words text[], flag boolean, filler text, "
        "primary key (code, number))"
    )
    with connection.cursor() as cursor:
        cursor.executemany(
            f"insert into public.t values ({', '.join(['%s'] * 11)})".encode(),
            [(*key, *values) for key, values in found.items()],
        )
    before = everything(connection, place, ["public.t"])
    assert before.total() == len(found)
    old = sum(values[0] != YOUNG for values in found.values())
    asyncio.run(steps(app, connection, place, before, old, file_rows, move_rows))


async def steps(
    app: Sereno, connection: psycopg.Connection, place: Path, before: Any, old: int, file_rows: int, move_rows: int
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "FILE_ROWS", file_rows)
        patched.setattr(module, "MOVE_ROWS", move_rows)
        working = archiver(app, place, OwnTable("public.t", "at", OLD), archive_grace_days=1, archive_kinds=["logs"])
        assert (await working.move()).rows == old
        assert everything(connection, place, ["public.t"]) == before
        assert one(connection, "select count(*) from sereno.archive_batches") == math.ceil(old / move_rows)
        assert (await working.export()).problems == []
        assert everything(connection, place, ["public.t"]) == before
        # Held rows and written rows are equal before anything is dropped.
        for batch, rows_held in connection.execute("select id, rows from sereno.archive_batches").fetchall():
            assert filed(connection, place, batch, "public.t").total() == rows_held
        advance(connection, 2 * DAY)
        assert (await working.export()).problems == []
        assert everything(connection, place, ["public.t"]) == before
        assert one(connection, "select count(*) from public.t") == len(list(before.elements())) - old
        assert one(connection, "select count(*) from sereno.archive_batches where dropped_at is null") == 0
    await app.aclose()
