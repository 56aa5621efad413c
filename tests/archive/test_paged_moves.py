"""Children of archived rows are moved in pages, each a transaction of its own; an interrupted move continues."""

from pathlib import Path

import psycopg
import pytest

from sereno import Sereno
from sereno.archive import archiver as module
from tests.archive.archive_steps import DAY, add_jobs, archiver
from tests.facts import advance, one

PAGE = 10
CHILDREN = (
    "select array_agg(held_in order by id) from sereno.archive_batches where kind = 'attempts' and dropped_at is null"
)


def sizes(connection: psycopg.Connection) -> list[int]:
    """Return the rows of each batch of attempts."""
    return [one(connection, f"select count(*) from sereno_archive.{held}") for held in one(connection, CHILDREN) or []]


@pytest.mark.slow
@pytest.mark.parametrize("state", ["succeeded", "dead"])
async def test_the_attempts_of_archived_jobs_are_moved_in_pages(
    app: Sereno, connection: psycopg.Connection, place: Path, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    """Whole partitions of successes, and dead letters by key: each job has two attempts."""
    monkeypatch.setattr(module, "MOVE_ROWS", PAGE)
    add_jobs(connection, 1, 28, state)
    advance(connection, 400 * DAY)
    working = archiver(app, place, archive_kinds=["jobs"], keep_dead_days=30)
    moved = await working.move()
    assert (moved.problems, sum(sizes(connection))) == ([], 56)
    assert max(sizes(connection)) <= PAGE
    assert one(connection, "select count(*) from sereno.attempts") == 0
    assert one(connection, "select count(*) from sereno.archive_batches where not children_moved") == 0
    exported = await working.export()
    assert (exported.problems, exported.rows) == ([], 28 + 56)


async def test_an_interrupted_move_continues_after_the_last_page(
    app: Sereno, connection: psycopg.Connection, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOVE_ROWS", PAGE)
    add_jobs(connection, 1, 20)
    advance(connection, 40 * DAY)
    connection.execute(
        "create function public.refuse() returns trigger language plpgsql as $$ begin "
        "if old.job_id > 12 then raise exception 'interrupted'; end if; return old; end $$"
    )
    connection.execute(
        "create trigger refuse before delete on sereno.attempts for each row execute function public.refuse()"
    )
    working = archiver(app, place, archive_kinds=["jobs"])
    with pytest.raises(psycopg.errors.RaiseException, match="interrupted"):
        await working.move()
    assert sizes(connection) == [10, 10], "pages before the interruption stay moved"
    assert one(connection, "select children_after from sereno.archive_batches where not children_moved") == 10
    connection.execute("drop trigger refuse on sereno.attempts")
    await working.move()
    assert sizes(connection) == [10, 10, 10, 10]
    assert one(connection, "select count(*) from sereno.attempts") == 0
