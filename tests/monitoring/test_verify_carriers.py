"""Invariants of carried queues: each is violated once and reported."""

import psycopg
import pytest

from sereno.carriers import store
from tests.carriers.carrier_steps import row
from tests.carriers.report_steps import add_batch, report
from tests.facts import advance
from tests.jobs.job_steps import add, do, session, take
from tests.monitoring.verify_steps import broken_inside, undone

GONE = "relayed_jobs_gone"
COUNTED = "relayed_jobs_counted"
TAKEN_OVER = "relay_taken_over"


@pytest.fixture
def batch(connection: psycopg.Connection) -> int:
    """A message that a live worker is publishing, with three jobs."""
    jobs = add(connection, 3, queue="clicks")
    owner = session(connection, queues={"clicks": 10})
    take(connection, owner, queue="clicks")
    made, _ = do(connection, store.carry(owner, "clicks", jobs))
    assert made is not None
    assert broken_inside(connection) == {}
    return made.id


def test_a_relayed_job_that_is_still_stored_is_reported(connection: psycopg.Connection, batch: int) -> None:
    with undone(connection):
        connection.execute(
            "insert into sereno.jobs (id, task, queue, args, state, ready_seq) "
            "select (body::jsonb -> 3 ->> 0)::bigint, 'work', 'clicks', '{}', 'ready', 1 from sereno.relay_batches"
        )
        assert broken_inside(connection) == {GONE: [batch]}


@pytest.mark.slow
def test_a_message_with_other_jobs_than_it_counts_is_reported(
    connection: psycopg.Connection, batch: int, subtests: pytest.Subtests
) -> None:
    for change in (
        "jobs = 2",
        "body = jsonb_set(body::jsonb, '{3}', '[1, 2]')::text",
        "body = jsonb_set(body::jsonb, '{4}', '[\"a\", \"b\"]')::text",
        "body = jsonb_set(body::jsonb, '{5}', '[]')::text",
        "body = jsonb_set(body::jsonb, '{6}', '[]')::text",
        "queue = 'other'",
    ):
        with subtests.test(change=change), undone(connection):
            connection.execute(f"update sereno.relay_batches set {change}".encode())
            assert broken_inside(connection) == {COUNTED: [batch]}


def test_a_job_in_two_messages_is_reported(connection: psycopg.Connection) -> None:
    first = add_batch(connection, 11, 12)
    add_batch(connection, 12, 13)
    assert broken_inside(connection) == {"relayed_jobs_once": [first]}


@pytest.mark.slow
def test_a_message_that_no_worker_takes_over_is_reported(connection: psycopg.Connection, batch: int) -> None:
    session(connection, queues={"clicks": 10})
    connection.execute(
        "update sereno.sessions set state = 'dead', ended_at = sereno.now() "
        "where id = (select session_id from sereno.relay_batches)"
    )
    report(connection)
    # Another worker has half a minute to notice.
    assert broken_inside(connection) == {}
    advance(connection, 60)
    # While the carrier is away, messages wait.
    assert broken_inside(connection) == {}
    report(connection)
    assert broken_inside(connection) == {TAKEN_OVER: [batch]}
    with undone(connection):
        connection.execute("delete from sereno.sessions where state = 'dead'")
        assert broken_inside(connection) == {TAKEN_OVER: [batch]}
    with undone(connection):
        connection.execute("update sereno.sessions set queues = '{\"other\": 1}' where state = 'alive'")
        assert broken_inside(connection) == {}
    owner = session(connection, queues={"clicks": 10})
    assert [each.id for each in do(connection, store.take_batches(owner, ["clicks"]))] == [batch]
    assert broken_inside(connection) == {}


@pytest.mark.slow
def test_a_job_that_came_back_and_leaves_again_is_reported(connection: psycopg.Connection, batch: int) -> None:
    query = "select (body::jsonb -> 3 ->> 0)::bigint from sereno.relay_batches"
    ((job,),) = connection.execute(query).fetchall()
    for position, queue in ((7, "clicks"), (0, "clicks")):
        with undone(connection):
            if not position:
                connection.execute("delete from sereno.relay_batches")
            stored = "insert into sereno.carried_jobs select %s, %s, %s, 1, sereno.now() - interval '1 hour'"
            connection.execute(stored, [job, queue, position])
            assert broken_inside(connection) == {"carried_back_once": [job]}


def test_a_job_may_come_back_before_its_message_counts_as_published(connection: psycopg.Connection, batch: int) -> None:
    """The acknowledgement of the message was lost, and its job has failed meanwhile."""
    query = "select (body::jsonb -> 3 ->> 0)::bigint from sereno.relay_batches where id = %s"
    ((job,),) = connection.execute(query, [batch]).fetchall()
    owner = session(connection, queues={"clicks": 10})
    assert do(connection, store.store(owner, [row(job, queue="clicks")])) == {job}
    assert broken_inside(connection) == {}
