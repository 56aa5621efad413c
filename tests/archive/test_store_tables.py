"""Old rows of a user's table are moved, whatever its name; a table whose rows could be lost is refused."""

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from sereno.archive import store as archive
from tests.archive.archive_steps import (
    DAY,
    add_fires,
    add_tenders,
    everything,
)
from tests.archive.store_steps import AGE, MOST, NOWHERE, measure, today
from tests.facts import advance, one
from tests.jobs.job_steps import Connection, do


def move_table(connection: Connection, name: str, moment: str = "at", most: int = MOST) -> int:
    return do(connection, archive.move_table(name, moment, AGE, most))


def test_rows_of_a_users_table_are_moved_in_the_order_of_its_key(connection: Connection) -> None:
    add_tenders(connection, 20)
    before = everything(connection, NOWHERE)
    advance(connection, 60 * DAY)
    add_tenders_now = "insert into public.tenders (code, part, published_at) values ('young', 1, sereno.now())"
    connection.execute(add_tenders_now)
    assert [move_table(connection, "public.tenders", "published_at", 15) for _ in range(3)] == [15, 5, 0]
    assert one(connection, "select code from public.tenders") == "young"
    assert (everything(connection, NOWHERE) - before).total() == 1
    assert one(connection, "select key_columns from sereno.archive_batches limit 1") == ["code", "part"]


REFERRED = """
    create table public.t (id int primary key, at timestamptz);
    create table public.u (id int default 1 references public.t {});
    insert into public.t values (1, '2020-01-01');
    insert into public.u values (1)
"""
REFUSED = {
    "no key": ("create table public.t (at timestamptz)", "has no primary key"),
    "no such table": ("select 1", "there is no table"),
    "no such column": ("create table public.t (id int primary key)", "has no column at"),
    "no instant": ("create table public.t (id int primary key, at text)", "has no column at"),
    "view": ("create view public.t as select 1 as id, now() as at", "not an ordinary table"),
    "materialized view": ("create materialized view public.t as select 1 as id, now() as at", "not an ordinary table"),
    "partitioned": (
        "create table public.t (id int, at timestamptz, primary key (id, at)) partition by range (at)",
        "not an ordinary table",
    ),
    "cascade": (REFERRED.format("on delete cascade"), "would be deleted or changed"),
    "set null": (REFERRED.format("on delete set null"), "would be deleted or changed"),
    "set default": (REFERRED.format("on delete set default"), "would be deleted or changed"),
    "restricted": (REFERRED.format(""), "violates foreign key"),
}


def test_a_table_that_cannot_be_archived_is_refused_unchanged(
    connection: Connection, subtests: pytest.Subtests
) -> None:
    for case, (made, words) in REFUSED.items():
        with subtests.test(case=case), connection.transaction(force_rollback=True):
            connection.execute(made.encode())
            with pytest.raises(psycopg.Error, match=words), connection.transaction():
                move_table(connection, "public.t")
            assert one(connection, "select count(*) from sereno.archive_batches") == 0
            assert one(connection, "select count(*) from pg_tables where schemaname = 'sereno_archive'") == 0


def test_tables_of_sereno_and_of_postgresql_are_refused(connection: Connection, subtests: pytest.Subtests) -> None:
    for name in ["sereno.jobs", "sereno.logs", "sereno.archive_batches", "pg_catalog.pg_class"]:
        with subtests.test(name=name), pytest.raises(psycopg.errors.WrongObjectType):
            move_table(connection, name)


def test_a_batch_cannot_be_archived_as_a_users_table(connection: Connection) -> None:
    add_fires(connection, 3)
    do(connection, archive.move_day("fires", today(connection, "fires")))
    held = one(connection, "select held_in from sereno.archive_batches")
    with pytest.raises(psycopg.errors.WrongObjectType):
        move_table(connection, f"sereno_archive.{held}", "planned_at")


HOSTILE_NAMES = (
    "public.t; drop table public.t",
    "public.t as t where true; --",
    "(select 1)",
    'public."t',
    "a.b.c",
    "a.b.c.d",
    "",
    "public.",
    "public.t'",
    "public.%I",
    "../../etc/passwd",
    "é" * 300,
)


def test_a_hostile_name_is_only_a_name(connection: Connection, subtests: pytest.Subtests) -> None:
    connection.execute("create table public.t (id int primary key, at timestamptz)")
    for name in HOSTILE_NAMES:
        with subtests.test(name=name):
            with pytest.raises(psycopg.Error) as caught:
                move_table(connection, name)
            assert caught.value.sqlstate is not None
            with pytest.raises(psycopg.Error):
                move_table(connection, "public.t", name)
            assert one(connection, "select to_regclass('public.t') is not null")


HOSTILE = [("odd schema", 'ta"ble'), ("dots.and", "dots.too"), ("Größe", "Tür 🚪"), ("%s", "%I'; --"), ("a/..", "../b")]


@pytest.mark.slow
def test_a_table_with_an_odd_name_is_archived(connection: Connection, subtests: pytest.Subtests) -> None:
    for schema, table in HOSTILE:
        with subtests.test(schema=schema, table=table):
            quoted = Identifier(schema, table).as_string(connection)
            connection.execute(SQL("create schema {}").format(Identifier(schema)))
            columns = '("k""ey" int primary key, "Wann?" timestamptz, "archive_key" int)'
            connection.execute(f"create table {quoted} {columns}".encode())
            connection.execute(
                f"insert into {quoted} select n, '2020-01-01', n from generate_series(1, 5) as n".encode()
            )
            assert move_table(connection, quoted, "Wann?") == 5
            newest = "select id, kind from sereno.archive_batches order by id desc"
            batch, kind = connection.execute(newest).fetchall()[0]
            do(connection, archive.plan(batch, 100))
            described = do(connection, archive.describe(batch, 1))
            assert described is not None
            assert measure(connection, batch).rows == 5
            file_query = "select query, columns from sereno.file_query(%s, 1)"
            query, columns = connection.execute(file_query, [batch]).fetchall()[0]
            assert [page[1] for page in connection.execute(query.encode())] == [5]
            assert [len(connection.execute(each["by_rows"].encode()).fetchall()) for each in columns] == [5, 5, 5]
            assert described.kind == kind
            # One directory, below the others.
            folder = described.object.split("/")[0]
            assert folder not in ("", ".", "..")
            assert folder.isascii()
            assert described.object.count("/") == 4


def test_an_odd_name_matches_only_one_table(connection: Connection) -> None:
    connection.execute('create schema a; create schema "a.b"')
    for name in ('a."b.c"', '"a.b".c'):
        connection.execute(f"create table {name} (id int primary key, at date)".encode())
        connection.execute(f"insert into {name} values (1, '2020-01-01')".encode())
        assert move_table(connection, name) == 1
    assert one(connection, "select count(distinct kind) from sereno.archive_batches") == 2


def test_rows_of_tables_that_inherit_are_not_touched(connection: Connection) -> None:
    connection.execute("create table public.t (id int primary key, at timestamptz)")
    connection.execute("create table public.heir (primary key (id)) inherits (public.t)")
    connection.execute("insert into public.t values (1, '2020-01-01'), (2, '2020-01-01')")
    connection.execute("insert into public.heir values (11, now() + interval '1 year'), (12, '2020-01-01')")
    assert move_table(connection, "public.t") == 2
    assert connection.execute("select id from public.heir order by id").fetchall() == [(11,), (12,)]


def test_only_the_columns_of_the_key_are_the_key(connection: Connection) -> None:
    connection.execute("create table public.t (id int, at timestamptz, more text, primary key (id) include (more))")
    connection.execute("insert into public.t values (1, '2020-01-01', null)")
    assert move_table(connection, "public.t") == 1
    assert one(connection, "select key_columns from sereno.archive_batches") == ["id"]


def test_generated_and_dropped_columns_are_handled(connection: Connection) -> None:
    connection.execute(
        "create table public.t (id bigint generated always as identity primary key, gone int, at date, "
        "twice int generated always as (extract(year from at)::int * 2) stored)"
    )
    connection.execute("alter table public.t drop column gone")
    connection.execute("insert into public.t (at) values ('2020-01-01'), ('2020-01-02')")
    before = everything(connection, NOWHERE, ["public.t"])
    assert move_table(connection, "public.t") == 2
    assert everything(connection, NOWHERE, ["public.t"]) == before


def test_a_trigger_that_keeps_a_row_keeps_it(connection: Connection) -> None:
    connection.execute("create table public.t (id int primary key, at date)")
    connection.execute("insert into public.t select n, '2020-01-01' from generate_series(1, 5) as n")
    connection.execute(
        "create function public.keep() returns trigger language plpgsql as $$ "
        "begin if old.id = 3 then return null; end if; return old; end $$; "
        "create trigger keep before delete on public.t for each row execute function public.keep()"
    )
    assert move_table(connection, "public.t") == 4
    assert move_table(connection, "public.t") == 0
    assert one(connection, "select id from public.t") == 3
