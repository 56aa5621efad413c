"""Invariants of carried queues: each is violated once and reported."""

import psycopg

from sereno.carriers import store
from tests.jobs.job_steps import add, do, session, take
from tests.monitoring.verify_steps import broken_inside, undone


def test_a_job_that_is_also_in_a_message_is_reported(connection: psycopg.Connection) -> None:
    owner = session(connection)
    ids = add(connection, 2)
    take(connection, owner)
    batch, _ = do(connection, store.carry(owner, "default", ids))
    assert batch is not None
    assert broken_inside(connection) == {}
    with undone(connection):
        connection.execute(
            "insert into sereno.jobs (id, task, state, ready_seq) "
            "values (%s, 'work', 'ready', nextval('sereno.ready_seq'))",
            [ids[1]],
        )
        assert broken_inside(connection) == {"relayed_or_stored": [ids[1]]}


def test_a_message_that_misses_jobs_is_reported(connection: psycopg.Connection) -> None:
    owner = session(connection)
    ids = add(connection, 2)
    take(connection, owner)
    batch, _ = do(connection, store.carry(owner, "default", ids))
    assert batch is not None
    with undone(connection):
        connection.execute("update sereno.relay_batches set jobs = 3")
        assert broken_inside(connection) == {"relayed_whole": [batch.id]}
