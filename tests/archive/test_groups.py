"""Retention and archive of groups: forgotten with their jobs; archived jobs keep their links and results."""

from pathlib import Path

import psycopg
import pytest

from sereno import Dead, Sereno
from sereno.jobs import group_store
from sereno.jobs.attempt import SUCCEEDED
from sereno.jobs.group_store import EnqueuedGroup, NewGroup
from tests.archive.archive_steps import DAY
from tests.archive.restore_steps import archive, digests, restore_rows
from tests.facts import advance, one
from tests.jobs.job_steps import Connection, add, decided, do, end, new, session, take

LINKS = "select id, group_id, links, result from sereno.history order by id"


def ended_group(connection: Connection) -> EnqueuedGroup:
    """Create a group of two jobs and the job that follows, and run all of them."""
    with connection.transaction():
        made = do(connection, group_store.enqueue_group(NewGroup([new(), new()], new())))
    owner = session(connection)
    for _ in range(2):
        end(connection, owner, take(connection, owner), SUCCEEDED)
    return made


def groups(connection: Connection) -> list[int]:
    return [row[0] for row in connection.execute("select id from sereno.groups order by id").fetchall()]


def forget(connection: Connection, days: int = 30) -> None:
    assert not do(connection, group_store.forget_groups(days))


def test_a_group_is_forgotten_when_its_jobs_have_left_the_history(connection: Connection) -> None:
    made = ended_group(connection)
    forget(connection)
    assert groups(connection) == [made.id]
    advance(connection, 31 * DAY)
    forget(connection)
    assert groups(connection) == [made.id], "its jobs are still in the history"
    connection.execute("delete from sereno.history")
    forget(connection)
    assert groups(connection) == []
    assert one(connection, "select count(*) from sereno.group_parts") == 0


def test_a_group_with_a_live_or_dead_job_is_not_forgotten(connection: Connection) -> None:
    with connection.transaction():
        dead, live, empty = (
            do(connection, group_store.enqueue_group(NewGroup([new()] * count))) for count in (1, 1, 0)
        )
        follows = do(connection, group_store.enqueue_group(NewGroup([new()], new(delay="90d"))))
    owner = session(connection)
    end(connection, owner, take(connection, owner, 1), decided(Dead("no")))
    advance(connection, 31 * DAY)
    forget(connection)
    assert groups(connection) == [dead.id, live.id, follows.id]
    assert empty.id not in groups(connection)


@pytest.mark.slow
async def test_jobs_of_a_group_are_archived_and_restored_with_links_and_results(
    app: Sereno, connection: psycopg.Connection, place: Path
) -> None:
    ended_group(connection)
    connection.execute("update sereno.history set result = jsonb_build_object('number', id) where id = 1")
    (last,) = add(connection, after=[1], on_dead="continue")
    owner = session(connection)
    end(connection, owner, take(connection, owner), SUCCEEDED)
    before, links = digests(connection, "sereno.history"), connection.execute(LINKS).fetchall()
    assert [(row[0], row[1]) for row in links] == [(1, 1), (2, 1), (3, None), (last, None)]
    assert [row[2] for row in links[2:]] == [{"of": 1}, {"after": [1], "on_dead": "continue"}]
    advance(connection, 60 * DAY)
    await archive(app, place)
    assert connection.execute(LINKS).fetchall() == []
    outcome = restore_rows(app, place, "jobs")
    assert (outcome.rows.restored, outcome.rows.refused) == (4, 0)
    assert digests(connection, "sereno.history") == before
    assert connection.execute(LINKS).fetchall() == links
