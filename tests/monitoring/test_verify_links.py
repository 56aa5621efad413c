"""Each invariant of waiting jobs and groups is violated once and reported."""

import psycopg
import pytest

from sereno import Dead
from sereno.jobs import group_store
from sereno.jobs.attempt import SUCCEEDED
from sereno.jobs.group_store import NewGroup
from tests.jobs.job_steps import add, decided, do, end, new, session, take
from tests.monitoring.verify_steps import broken_inside, undone


@pytest.fixture
def waiting(connection: psycopg.Connection) -> tuple[int, int, int, int]:
    """Return a predecessor, the job that waits for it, a group with a dead job, and the job after the group."""
    owner = session(connection)
    with connection.transaction():
        made = do(connection, group_store.enqueue_group(NewGroup([new(), new(), new()], new())))
    first, second = take(connection, owner, 2)
    end(connection, owner, [first], SUCCEEDED)
    end(connection, owner, [second], decided(Dead("no")))
    (before,) = add(connection)
    (after,) = add(connection, after=[before])
    assert made.then is not None
    return before, after, made.id, made.then.id


def test_waiting_jobs_violate_nothing(connection: psycopg.Connection, waiting: tuple[int, int, int, int]) -> None:
    with undone(connection):
        assert broken_inside(connection) == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "name", "which"),
    [
        ("update sereno.jobs set pending = 2 where id = {1}", "predecessors_counted", 1),
        ("update sereno.jobs set pending = pending + 1 where id = {3}", "predecessors_counted", 3),
        ("delete from sereno.jobs where id = {0}", "predecessors_exist", 1),
        ("delete from sereno.jobs where group_id = {2}", "groups_counted", 2),
        ("update sereno.group_parts set remaining = remaining + 1 where group_id = {2}", "groups_counted", 2),
    ],
)
def test_an_inconsistent_count_is_reported(
    connection: psycopg.Connection, waiting: tuple[int, int, int, int], change: str, name: str, which: int
) -> None:
    with undone(connection):
        connection.execute(change.format(*waiting))
        assert broken_inside(connection) == {name: [waiting[which]]}
