"""Rows of a user's table are restored after the table has changed, or refused: nothing is truncated."""

from pathlib import Path

import psycopg
import pytest

from sereno import Sereno
from sereno.archive.orders import OwnTable
from tests.archive.archive_steps import (
    DAY,
    TENDERS,
    add_logs,
    add_tenders,
    archiver,
)
from tests.archive.restore_steps import archive, digests, restore_rows
from tests.facts import advance, one


@pytest.mark.slow
async def test_a_table_with_added_and_dropped_columns_is_restored(
    app: Sereno, connection: psycopg.Connection, place: Path
) -> None:
    add_tenders(connection, 3)
    advance(connection, 60 * DAY)
    await archive(app, place, TENDERS)
    connection.execute(
        "alter table public.tenders add column grade text not null default 'A', add column more int, "
        "drop column ratio, alter column part type bigint"
    )
    with pytest.raises(psycopg.Error, match=r"public\.tenders no longer has what the archive has: ratio"):
        restore_rows(app, place, "public.tenders")
    assert one(connection, "select count(*) from public.tenders") == 0
    assert restore_rows(app, place, "public.tenders", without=("ratio",)).rows.restored == 3
    assert connection.execute("select distinct grade, more from public.tenders").fetchall() == [("A", None)]


@pytest.mark.slow
async def test_values_that_no_longer_fit_are_refused_not_truncated(
    app: Sereno, connection: psycopg.Connection, place: Path
) -> None:
    connection.execute("create table public.t (id int primary key, at timestamptz, name varchar(20), code char(6))")
    connection.execute("insert into public.t values (1, sereno.now(), 'a long name', 'abc')")
    advance(connection, 60 * DAY)
    await archive(app, place, OwnTable("public.t", "at", 30.0 * DAY))
    connection.execute("alter table public.t alter column name type varchar(5)")
    with pytest.raises(psycopg.errors.StringDataRightTruncation):
        restore_rows(app, place, "public.t", 1)
    connection.execute("alter table public.t alter column name type text")
    restore_rows(app, place, "public.t", 1)
    assert connection.execute("select name, code from public.t").fetchall() == [("a long name", "abc   ")]


@pytest.mark.slow
async def test_generated_columns_identities_and_odd_names_are_restored(
    app: Sereno, connection: psycopg.Connection, place: Path
) -> None:
    connection.execute(
        'create schema "Odd ""one"""; '
        'create table "Odd ""one"""."My.table" ("Id" bigint generated always as identity primary key, '
        '"At ""when""" timestamptz, t int, g int, double int generated always as (t * 2) stored, "sereno_row" text)'
    )
    name = '"Odd ""one"""."My.table"'
    connection.execute(
        f'insert into {name} ("At ""when""", t, g, "sereno_row") select sereno.now(), n, n, n '
        "from generate_series(1, 3) as n".encode()
    )
    before = digests(connection, name)
    advance(connection, 60 * DAY)
    await archive(app, place, OwnTable(name, 'At "when"', 30.0 * DAY))
    assert digests(connection, name) == {name: []}
    assert restore_rows(app, place, name, 2).rows.restored == 1
    assert restore_rows(app, place, name).rows.restored == 2
    assert digests(connection, name) == before
    advance(connection, 31 * DAY)
    await archive(app, place)
    assert digests(connection, name) == {name: []}


@pytest.mark.slow
async def test_a_conflicting_row_is_refused(app: Sereno, connection: psycopg.Connection, place: Path) -> None:
    connection.execute("create table public.t (id int primary key, at timestamptz, mail text unique)")
    connection.execute("insert into public.t values (1, sereno.now(), 'a'), (2, sereno.now(), 'b')")
    advance(connection, 60 * DAY)
    await archive(app, place, OwnTable("public.t", "at", 30.0 * DAY))
    connection.execute("insert into public.t values (3, sereno.now(), 'a')")
    rows = restore_rows(app, place, "public.t").rows
    assert (rows.found, rows.restored, rows.present, rows.refused) == (2, 1, 0, 1)
    assert one(connection, "select array_agg(id order by id) from public.t") == [2, 3]
    assert one(connection, "select count(*) from sereno.restored") == 1


@pytest.mark.slow
async def test_a_referenced_row_stays_and_is_reported(app: Sereno, connection: psycopg.Connection, place: Path) -> None:
    connection.execute("create table public.t (id int primary key, at timestamptz)")
    connection.execute("insert into public.t values (1, sereno.now())")
    add_logs(connection, 1)
    advance(connection, 60 * DAY)
    table = OwnTable("public.t", "at", 30.0 * DAY)
    await archive(app, place, table)
    restore_rows(app, place, "public.t")
    restore_rows(app, place, "logs")
    connection.execute("create table public.child (id int references public.t); insert into public.child values (1)")
    advance(connection, 31 * DAY)
    moved = await archiver(app, place).move()
    assert [problem.partition(":")[0] for problem in moved.problems] == ["public.t"]
    assert one(connection, "select count(*) from sereno.logs") == 0, "the referenced row does not block the others"
    assert one(connection, "select count(*) from public.t") == 1
    assert one(connection, "select count(*) from sereno.restored") == 1
