"""Rows are restored unchanged, from a file and from a table: every type, every key."""

import asyncio
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sereno import Sereno
from sereno.archive import row_text as module
from sereno.archive.orders import OwnTable
from tests.archive.archive_steps import DAY, archiver, everything, filed
from tests.archive.restore_steps import digests, restore_rows
from tests.archive.test_column_types import OLD, STRANGE, TYPES, VALUES, add_tables, examples_of_rows
from tests.facts import advance, one

ODD = "public.t"

text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20)
row = st.tuples(
    st.sampled_from(["2020-01-01", "-infinity", "0044-03-15 BC", "2100-01-01"]),
    st.one_of(st.none(), st.datetimes(), st.sampled_from(["infinity", "-infinity"])),
    st.one_of(st.none(), st.dates(), st.just("infinity")),
    st.one_of(st.none(), st.decimals(allow_nan=False, allow_infinity=False, places=3), st.just(Decimal("NaN"))),
    st.one_of(st.none(), st.floats()),
    st.one_of(st.none(), st.binary(max_size=20)),
    st.one_of(st.none(), st.lists(text, max_size=3)),
    st.one_of(st.none(), st.booleans()),
)
found_rows = st.dictionaries(st.tuples(text, st.integers(-(2**63), 2**63 - 1)), row, max_size=25)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("server_settings", [{}, STRANGE], ids=["usual", "strange"])
async def test_a_key_of_any_type_is_archived_restored_and_removed_again(
    app: Sereno, connection: psycopg.Connection, place: Path, server_url: str, server_settings: dict[str, str]
) -> None:
    """From held tables, and from files when the tables are dropped; the settings of the server change nothing."""
    tables = add_tables(connection)
    names = [table.name for table in tables]
    before, rows = digests(connection, *names), everything(connection, place, names)
    with psycopg.connect(server_url, autocommit=True) as elsewhere:
        for name, value in server_settings.items():
            elsewhere.execute(f"alter database {connection.info.dbname} set {name} = {value}".encode())
    working = archiver(app, place, *tables, archive_grace_days=7)
    assert (await working.move()).problems == []
    assert everything(connection, place, names) == rows
    exported = await working.export()
    assert (exported.problems, exported.files) == ([], len(names))
    written = connection.execute("select id, kind from sereno.archive_batches").fetchall()
    assert sum((filed(connection, place, *batch) for batch in written), Counter()) == rows
    for dropped in (0, len(names)):
        exported = await working.export()
        assert (exported.problems, exported.dropped) == ([], dropped)
        for name in names:
            restore_rows(app, place, name)
        assert digests(connection, *names) == before
        assert (await working.move()).problems == []
        assert digests(connection, *names) == before, "restore marks protect the rows"
        batches = one(connection, "select count(*) from sereno.archive_batches")
        advance(connection, 31 * DAY)
        assert (await working.move()).problems == []
        assert not any(digests(connection, *names).values())
        # A tab in a key of several columns: such a row is archived again, with no other effect.
        tabs = one(connection, "select count(*) from sereno.archived_again")
        assert tabs == 1
        assert one(connection, "select count(*) from sereno.archive_batches") == batches + 1


@pytest.mark.parametrize("grace", [0, 7], ids=["from files", "from held tables"])
async def test_a_value_of_any_type_is_restored(
    app: Sereno, connection: psycopg.Connection, place: Path, grace: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PIECE_ROWS", 2)
    monkeypatch.setattr(module, "PIECE_LETTERS", 1000)
    connection.execute(TYPES.encode())
    columns = ", ".join(f'"column {number}" {type_}' for number, type_ in enumerate(VALUES))
    connection.execute(f"create table {ODD} (id bigint primary key, at timestamptz, {columns})".encode())
    for number in range(max(map(len, VALUES.values()))):
        row = [values[min(number, len(values) - 1)] for values in VALUES.values()]
        marks = ", ".join(f"%s::{type_}" for type_ in VALUES)
        connection.execute(f"insert into {ODD} values ({number}, '2020-01-01', {marks})".encode(), row)
    before = digests(connection, ODD)
    working = archiver(app, place, OwnTable(ODD, "at", OLD), archive_grace_days=grace)
    assert (await working.move()).problems == []
    assert (await working.export()).problems == []
    restore_rows(app, place, ODD, 1)
    restore_rows(app, place, ODD)
    assert digests(connection, ODD) == before
    advance(connection, 31 * DAY)
    await working.move()
    assert digests(connection, ODD) == {ODD: []}
    assert one(connection, "select count(*) from sereno.archived_again") == 0


@examples_of_rows
def test_archive_and_restore_change_nothing(
    app: Sereno, connection: psycopg.Connection, place: Path, examples: int
) -> None:
    @settings(max_examples=examples)
    @given(found=found_rows)
    def check(found: dict[Any, tuple[Any, ...]]) -> None:
        archive_and_restore(app, connection, place, found)

    check()


def archive_and_restore(
    app: Sereno, connection: psycopg.Connection, place: Path, found: dict[Any, tuple[Any, ...]]
) -> None:
    connection.execute(
        f"drop table if exists {ODD}; "
        "truncate sereno.archive_batches, sereno.archive_files, sereno.restored, sereno.archived_again"
    )
    connection.execute(
        f"create table {ODD} (code text, number bigint, at timestamptz, instant timestamp, day date, amount numeric, "
        "ratio double precision, raw bytea, words text[], flag boolean, primary key (code, number))".encode()
    )
    with connection.cursor() as cursor:
        cursor.executemany(
            f"insert into {ODD} values ({', '.join(['%s'] * 10)})".encode(),
            [(*key, *values) for key, values in found.items()],
        )
    before = digests(connection, ODD)

    async def there() -> bool:
        working = archiver(app, place, OwnTable(ODD, "at", OLD))
        moved = await working.move()
        exported = await working.export()
        assert [*moved.problems, *exported.problems] == []
        await app.database.aclose()
        return bool(moved.rows)

    if asyncio.run(there()):
        restore_rows(app, place, ODD)
    assert digests(connection, ODD) == before
