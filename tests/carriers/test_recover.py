"""Giving up a carrier: jobs on their way to it return, and a copy of such a job changes nothing."""

import psycopg

from sereno.carriers import store
from sereno.carriers.message import decode, stored_row
from sereno.carriers.operations import set_share
from tests.carriers.report_steps import add_batch, report
from tests.facts import advance, one
from tests.jobs.job_steps import add, do, session, take


def test_the_copy_of_a_recovered_job_is_refused(connection: psycopg.Connection) -> None:
    """A worker has published the message, and its acknowledgement was lost: then an operator gives up the carrier."""
    jobs = add(connection, 3, queue="clicks")
    owner = session(connection, queues={"clicks": 10})
    assert len(take(connection, owner, queue="clicks")) == 3
    batch, kept = do(connection, store.carry(owner, "clicks", jobs))
    assert batch is not None
    assert kept == set()
    assert do(connection, store.unpublished(owner, [batch.id])) == {batch.id}
    assert do(connection, store.return_batches("clicks")) == 3
    assert do(connection, store.unpublished(owner, [batch.id])) == set()

    # The carrier delivers the copy: a failure, or a transaction, of it has no effect.
    rows = [
        stored_row(body, index, None) | {"held_for": 0.0, "position": 7}
        for body in [decode(batch.body)]
        for index in range(3)
    ]
    assert do(connection, store.store(owner, rows)) == set()
    assert do(connection, store.stored(jobs)) == set(jobs)
    advance(connection, 2 * store.KEEP_STORED)
    do(connection, store.forget_stored("clicks", 1_000_000))
    assert do(connection, store.stored(jobs)) == set(jobs)

    # The jobs run from PostgreSQL, and are not given to the carrier again.
    claimed = take(connection, owner, queue="clicks")
    assert sorted(job.id for job in claimed) == jobs
    assert do(connection, store.carry(owner, "clicks", jobs)) == (None, set(jobs))


def test_a_job_whose_copy_has_run_is_not_recovered(connection: psycopg.Connection) -> None:
    jobs = add(connection, 3, queue="clicks")
    owner = session(connection, queues={"clicks": 10})
    take(connection, owner, queue="clicks")
    batch, _ = do(connection, store.carry(owner, "clicks", jobs))
    assert batch is not None
    copy = stored_row(decode(batch.body), 0, None) | {"held_for": 0.0, "position": 7}
    assert do(connection, store.store(owner, [copy])) == {jobs[0]}
    assert do(connection, store.return_batches("clicks")) == 2
    assert one(connection, "select count(*) from sereno.jobs where state = 'ready'") == 2


def test_the_fence_of_a_recovered_job_is_forgotten_when_no_copy_can_exist(connection: psycopg.Connection) -> None:
    report(connection)
    add_batch(connection, 11, 12)
    do(connection, set_share("clicks", 0, recover=True))
    fences = "select count(*) from sereno.carried_jobs"
    for seconds, messages, left in ((60, 0, 2), (3600, 1, 2), (5, 0, 0)):
        advance(connection, seconds)
        report(connection, pending_messages=messages)
        assert one(connection, fences) == left


def test_a_worker_that_does_not_know_yet_moves_no_job_to_a_carrier_that_was_given_up(
    connection: psycopg.Connection,
) -> None:
    report(connection)
    jobs = add(connection, 2, queue="clicks")
    owner = session(connection, queues={"clicks": 10})
    take(connection, owner, queue="clicks")
    do(connection, set_share("clicks", 0, recover=True))
    assert do(connection, store.carry(owner, "clicks", jobs)) == (None, set(jobs))
    do(connection, set_share("clicks", 1))
    batch, kept = do(connection, store.carry(owner, "clicks", jobs))
    assert batch is not None
    assert kept == set()
