"""A file is verified by all that it holds: one value that differs from the table, and nothing is dropped."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sereno import Sereno
from sereno.archive import writer
from tests.archive.acts import DAY, TENDERS, add_tenders, archivist, cold_place
from tests.facts import advance, one

HELD = "select held_in from sereno.archive_batches where dropped_at is null"


@pytest.fixture
def place() -> Iterator[Path]:
    with cold_place() as path:
        yield path


def change_one_value(file: Path, name: str) -> None:
    """Of one row, and the file stays what it was otherwise: its keys, its columns and their types."""
    table = pq.read_table(file)
    column = table.column(name)
    values = column.to_pylist()
    place = next(number for number, value in enumerate(values) if value != values[0])
    values[0] = values[place]
    changed = table.set_column(table.column_names.index(name), name, pa.array(values, type=column.type))
    pq.write_table(changed.replace_schema_metadata(table.schema.metadata), file)


async def test_a_file_with_one_other_value_is_refused_and_nothing_is_dropped(
    app: Sereno, connection: psycopg.Connection, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever went wrong between the table and the file, in each column in turn."""
    add_tenders(connection, 20)
    connection.execute(
        "update public.tenders set published_at = published_at - part * interval '1 microsecond', "
        "tags = case when part > 9 then array['NULL', null] else array[null, ''] end, raw = set_byte(raw, 0, part), "
        "span = part * interval '1 hour'"
    )
    advance(connection, 40 * DAY)
    working = archivist(app, place, TENDERS)
    await working.move()

    write_well = writer.write

    def faulty(name: str) -> Callable[..., None]:
        def write(
            rows: int, url: str, select: str, file: Path, rising: Sequence[str], facts: Mapping[str, str]
        ) -> None:
            write_well(rows, url, select, file, rising, facts)
            change_one_value(file, name)

        return write

    for name in ("published_at", "price", "data", "tags", "unit", "span", "open", "raw", "ratio"):
        with monkeypatch.context() as patch:
            patch.setattr(writer, "write", faulty(name))
            done = await working.export()
        assert [problem for problem in done.problems if "its values are not those of the table" in problem] != [], name
        assert done.dropped == 0
        assert one(connection, f"select count(*) from sereno_archive.{one(connection, HELD)}") == 20
    done = await working.export()
    assert (done.problems, done.files, done.dropped) == ([], 1, 1)


async def test_a_table_that_was_changed_after_its_files_is_not_dropped(
    app: Sereno, connection: psycopg.Connection, place: Path
) -> None:
    add_tenders(connection, 20)
    advance(connection, 40 * DAY)
    working = archivist(app, place, TENDERS, archive_grace_days=1)
    await working.move()
    assert (await working.export()).files == 1
    held = one(connection, HELD)
    connection.execute(f"update sereno_archive.{held} set price = price + 0.01 where part = 7")
    advance(connection, 2 * DAY)
    done = await working.export()
    assert done.dropped == 0
    assert "do not hold the rows" in done.problems[0]
    assert one(connection, f"select count(*) from sereno_archive.{held}") == 20
