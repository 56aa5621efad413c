"""The fence of `sereno.settle_jobs`: a session that does not hold this attempt of this job changes nothing."""

from collections.abc import Callable
from contextlib import nullcontext

import psycopg
import pytest

from sereno.worker import sessions
from tests.jobs.job_steps import Connection, add, do, session, take_one
from tests.jobs.public_sql.sql_worker import SqlWorker, outcome, snapshot

OUTCOMES = ("succeeded", "retry", "snooze", "release", "crash", "dead", "cancelled")


def dies(connection: Connection, worker: SqlWorker) -> None:
    do(connection, sessions.finish([worker.session], "dead"))


def is_rescued(connection: Connection, worker: SqlWorker) -> None:
    dies(connection, worker)
    do(connection, sessions.rescue(everywhere=True))


def is_taken_over(connection: Connection, worker: SqlWorker) -> None:
    is_rescued(connection, worker)
    assert SqlWorker(connection).claim()


def is_deleted(connection: Connection, worker: SqlWorker) -> None:
    is_rescued(connection, worker)
    connection.execute("delete from sereno.sessions where id = %s", [worker.session])


def lease_expires(connection: Connection, worker: SqlWorker) -> None:
    connection.execute("insert into sereno.clock (ahead) values ('31 seconds')")


def closes(connection: Connection, worker: SqlWorker) -> None:
    worker.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "loses",
    [dies, is_rescued, is_taken_over, is_deleted, lease_expires, closes],
    ids=lambda act: act.__name__,
)
def test_a_settlement_of_a_session_without_a_lease_changes_nothing(
    connection: Connection, subtests: pytest.Subtests, loses: Callable[[Connection, SqlWorker], None]
) -> None:
    add(connection)
    worker = SqlWorker(connection)
    (job,) = worker.claim()
    loses(connection, worker)
    before = snapshot(connection)
    for name in OUTCOMES:
        with subtests.test(name=name):
            (result,) = worker.settle(outcome(job, name, delay=1))
            assert (result.id, result.attempt, result.settled) == (job.id, 1, False)
            assert result.why == "the session has no lease"
            with pytest.raises(psycopg.Error) as refused:
                worker.settle(outcome(job, name, delay=1), strict=True)
            assert refused.value.sqlstate == "SR002"
            assert snapshot(connection) == before
    # A heartbeat in time renews an expired lease; nothing renews another one.
    assert worker.beat([job.id]).alive == (loses is lease_expires)
    if loses is not lease_expires:
        assert snapshot(connection) == before


@pytest.mark.slow
def test_a_settlement_of_an_earlier_attempt_changes_nothing(connection: Connection, subtests: pytest.Subtests) -> None:
    """Its session is alive and holds the job again, in another attempt."""
    add(connection)
    worker = SqlWorker(connection)
    (first,) = worker.claim()
    worker.end([first], "release")
    (second,) = worker.claim()
    assert (second.id, second.attempt) == (first.id, 2)
    before = snapshot(connection)
    # A release would be reported as written before: it is how the first attempt ended.
    for name in (each for each in OUTCOMES if each != "release"):
        with subtests.test(name=name):
            (result,) = worker.settle(outcome(first, name, delay=1))
            assert (result.settled, result.why) == (False, "the session does not have this attempt of it")
            assert snapshot(connection) == before
    assert worker.end([second]) == [True]


def test_an_expired_lease_that_is_renewed_in_time_stays_valid(connection: Connection) -> None:
    """The session was not declared dead, so it still holds its job."""
    add(connection)
    worker = SqlWorker(connection)
    (job,) = worker.claim()
    lease_expires(connection, worker)
    assert worker.end([job]) == [False]
    assert worker.beat([job.id]).alive
    assert worker.end([job]) == [True]


@pytest.mark.slow
@pytest.mark.parametrize("owner_kind", ["python", "another role"])
def test_no_session_settles_jobs_of_another(connection: Connection, owner_kind: str) -> None:
    add(connection)
    if owner_kind == "python":
        owner = session(connection)
        job = take_one(connection, owner)
    else:
        other = SqlWorker(connection)
        owner = other.session
        (job,) = other.claim()  # type: ignore[assignment]
        connection.execute("update sereno.sessions set opened_by = 'another_role'")
    other_session = SqlWorker(connection)
    other_session.session = owner
    before = snapshot(connection)
    for act in (
        lambda: other_session.settle({"id": job.id, "attempt": 1, "outcome": "succeeded"}),
        other_session.claim,
        other_session.beat,
        other_session.close,
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="was not opened by the role"):
            act()
    assert snapshot(connection) == before


def test_a_settlement_whose_reply_was_lost_can_be_repeated(connection: Connection) -> None:
    add(connection, 4)
    worker = SqlWorker(connection)
    first, second, third, fourth = worker.claim()
    outcomes = (outcome(first), outcome(second, "retry", delay=60), outcome(third, "dead"))
    states = [each.state for each in worker.settle(*outcomes)]
    before = snapshot(connection)
    again = worker.settle(*outcomes, strict=True)
    assert [(each.settled, each.state) for each in again] == [(True, state) for state in states]
    assert {each.why for each in again} == {"it was written before"}
    assert snapshot(connection) == before
    # An outcome that was never sent is not reported as applied, not even after the session was closed.
    worker.close()
    assert [each.settled for each in worker.settle(*outcomes)] == [True, True, True]
    assert worker.end([fourth]) == [False]


def test_a_batch_writes_held_jobs_and_reports_the_others(connection: Connection) -> None:
    add(connection, 3)
    worker = SqlWorker(connection)
    first, second, third = worker.claim()
    worker.end([second], "release")
    found = worker.settle(outcome(third), outcome(second), outcome(first), {"id": 999, "attempt": 1, "outcome": "dead"})
    assert [(each.id, each.settled) for each in found] == [
        (third.id, True),
        (second.id, False),
        (first.id, True),
        (999, False),
    ]


def test_strict_makes_effects_and_settlement_atomic(connection: Connection) -> None:
    connection.execute("create table effects (n integer)")
    add(connection, 2)
    worker = SqlWorker(connection)
    first, second = worker.claim()
    for job in (first, second):
        if job is second:
            dies(connection, worker)
        with (
            pytest.raises(psycopg.Error, match="has no lease") if job is second else nullcontext(),
            connection.transaction(),
        ):
            connection.execute("insert into effects values (%s)", [job.id])
            worker.settle(outcome(job), strict=True)
    assert [found[0] for found in connection.execute("select n from effects")] == [first.id]


def test_a_unique_key_is_free_when_its_job_was_settled_by_sql(connection: Connection) -> None:
    (first,) = add(connection, unique_key="k")
    worker = SqlWorker(connection)
    worker.end(worker.claim(), "dead")
    (second,) = add(connection, unique_key="k")
    assert second != first
