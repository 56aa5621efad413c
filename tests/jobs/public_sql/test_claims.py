"""Claims by SQL, for workers in other languages."""

from collections.abc import Callable
from datetime import timedelta
from itertools import product
from typing import Any

import psycopg
import pytest

from sereno.jobs import pauses
from sereno.jobs.limits.limit import Limit
from sereno.jobs.rows import PauseKind
from tests.facts import advance, one
from tests.jobs.job_steps import Connection, add, do, line, past, row
from tests.jobs.limits.lane_steps import Claimer, keys, put, set_limit
from tests.jobs.public_sql.sql_worker import SqlWorker


def test_a_claim_returns_the_documented_columns(connection: Connection) -> None:
    (id_,) = add(connection, args=b'{"n": 7}', tenant="r42", trace="t", priority=2)
    worker = SqlWorker(connection)
    (job,) = worker.claim()
    assert job[:10] == (id_, 1, "work", {"n": 7}, "default", "r42", 2, 0, 0, "t")
    found = row(connection, id_)
    assert (found["state"], found["session_id"], found["attempt"]) == ("running", worker.session, 1)
    assert (job.run_at, job.claimed_at, job.planned_at) == (found["run_at"], found["claimed_at"], None)


def test_jobs_are_claimed_by_priority_up_to_the_requested_number(connection: Connection) -> None:
    made = [add(connection, priority=priority)[0] for priority in (9, 5, 0, 5)]
    connection.execute("select setseed(0.5)")
    worker = SqlWorker(connection)
    assert [job.id for job in worker.claim(3)] == [made[2], made[1], made[3]]
    assert [job.id for job in worker.claim(3)] == [made[0]]
    assert worker.claim(3) == []


def test_a_claim_takes_only_tasks_and_queues_of_the_session(connection: Connection) -> None:
    add(connection, task="other")
    add(connection, queue="elsewhere")
    add(connection, delay="1h")
    (eligible,) = add(connection, queue="b")
    worker = SqlWorker(connection, queues=["a", "b", "default"])
    assert worker.claim(queues=["a"]) == []
    assert [job.id for job in worker.claim()] == [eligible]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), [("queue", "default"), ("task", "work"), ("tenant", "r42")])
@pytest.mark.parametrize("of", [None, keys(("each", "a"))], ids=["plain", "limited"])
def test_paused_jobs_are_not_claimed(
    connection: Connection, kind: PauseKind, name: str, of: dict[str, Any] | None
) -> None:
    set_limit(connection, "each", Limit(1))
    put(connection, of, tenant="r42")
    worker = SqlWorker(connection)
    do(connection, pauses.pause(kind, name, actor="me"))
    assert worker.claim() == []
    do(connection, pauses.resume(kind, name))
    assert len(worker.claim()) == 1


def test_two_sessions_never_claim_the_same_job(database_url: str) -> None:
    with line(database_url) as one_line, line(database_url) as other_line:
        add(one_line, 20)
        first, second = SqlWorker(one_line), SqlWorker(other_line)
        with one_line.transaction():
            mine = {job.id for job in first.claim(8)}
            theirs = {job.id for job in second.claim(20)}
        assert (len(mine), len(theirs), mine & theirs) == (8, 12, set())


def test_a_scheduled_job_is_claimed_when_it_is_due(connection: Connection) -> None:
    (id_,) = add(connection, delay=30)
    worker = SqlWorker(connection, lease="1 hour")
    assert worker.claim() == []
    advance(connection, 31)
    assert [job.id for job in worker.claim()] == [id_]


def test_an_expired_job_is_dead_and_not_returned(connection: Connection) -> None:
    now = one(connection, "select sereno.now()")
    late, good = add(connection, expires_at=now + timedelta(minutes=1)) + add(connection)
    worker = SqlWorker(connection, lease="1 hour")
    advance(connection, 61)
    assert [job.id for job in worker.claim()] == [good]
    found = past(connection, late)
    assert (found["state"], found["reason"]) == ("dead", "expired before it could run")


@pytest.mark.parametrize("way", ["dead", "closed", "expired", "deleted"])
def test_a_session_without_a_lease_is_refused(connection: Connection, way: str) -> None:
    add(connection)
    worker = SqlWorker(connection)
    if way in ("dead", "closed"):
        connection.execute("update sereno.sessions set state = %s, ended_at = sereno.now()", [way])
    elif way == "expired":
        connection.execute("insert into sereno.clock (ahead) values ('31 seconds')")
    else:
        connection.execute("delete from sereno.sessions")
    with pytest.raises(psycopg.Error, match="has no lease") as lost:
        worker.claim()
    assert (lost.value.sqlstate, "open a new one" in str(lost.value.diag.message_hint)) == ("SR001", True)
    assert one(connection, "select state from sereno.jobs") == "ready"


def test_an_invalid_claim_is_refused(connection: Connection, subtests: pytest.Subtests) -> None:
    table: list[tuple[Any, Any]] = [
        (None, 0),
        (None, -1),
        (None, 1001),
        (None, None),
        (["other"], 1),
        (["default", None], 1),
    ]
    add(connection)
    worker = SqlWorker(connection)
    for queues, most in table:
        refused = pytest.raises(psycopg.errors.InvalidParameterValue, match="cannot claim")
        with subtests.test(queues=queues, most=most), refused:
            worker.claim(most, queues)


def test_a_transaction_with_a_fixed_snapshot_is_refused(connection: Connection, subtests: pytest.Subtests) -> None:
    worker = SqlWorker(connection)
    actions: dict[str, Callable[[], Any]] = {
        "claim": worker.claim,
        "beat": worker.beat,
        "close": worker.close,
        "settle": worker.settle,
    }
    for level, (name, action) in product(("repeatable read", "serializable"), actions.items()):
        with subtests.test(level=level, action=name), connection.transaction():
            connection.execute(f"set transaction isolation level {level}".encode())
            with pytest.raises(psycopg.errors.InvalidTransactionState, match="workers need read committed"):
                action()


def test_a_claim_that_is_rolled_back_counts_no_attempt(connection: Connection) -> None:
    add(connection)
    worker = SqlWorker(connection)
    with connection.transaction(force_rollback=True):
        assert len(worker.claim()) == 1
    assert [job.attempt for job in worker.claim()] == [1]


def test_jobs_with_limits_and_without_are_claimed_together(connection: Connection) -> None:
    set_limit(connection, "each", Limit(2))
    limited, plain = put(connection, keys(("each", "a")), 3), add(connection, 2)
    worker = SqlWorker(connection)
    got = worker.claim()
    assert sorted(job.id for job in got) == [*limited[:2], *plain]
    assert worker.claim() == []
    worker.end([job for job in got if job.id == limited[0]])
    assert [job.id for job in worker.claim()] == limited[2:]


def test_limited_and_plain_jobs_are_both_claimed_by_single_claims(connection: Connection) -> None:
    set_limit(connection, "each", Limit(100))
    limited, plain = set(put(connection, keys(("each", "a")), 40)), set(add(connection, 40))
    worker = SqlWorker(connection)
    first = {worker.claim(1)[0].id for _ in range(40)}
    assert first & limited
    assert first & plain


def test_the_limit_of_a_queue_applies_to_all_its_jobs(connection: Connection) -> None:
    set_limit(connection, "narrow", Limit(3), queue="default")
    set_limit(connection, "each", Limit(1))
    add(connection, 5)
    put(connection, keys(("each", "a")), 5)
    worker = SqlWorker(connection)
    assert sum(len(worker.claim()) for _ in range(4)) == 3


@pytest.mark.slow
def test_a_slot_that_is_freed_by_sql_is_claimed_at_once(connection: Connection) -> None:
    """The limiter is handed over, so no worker waits until it is due."""
    set_limit(connection, "one", Limit(1))
    first, second = put(connection, keys(("one", "")), 2)
    worker, other = SqlWorker(connection), Claimer(connection)
    (job,) = worker.claim()
    assert (job.id, other.take_all()) == (first, [])
    postpone = "update sereno.limiters set check_at = sereno.now() + interval '1 hour'"
    connection.execute(postpone)
    worker.end([job])
    assert other.take_all() == [second]


@pytest.mark.slow
@pytest.mark.parametrize("way", ["closed", "unlisted", "dead"])
def test_the_slot_of_a_released_job_is_handed_over(connection: Connection, way: str) -> None:
    set_limit(connection, "one", Limit(1))
    made = put(connection, keys(("one", "")), 2)
    worker, other = SqlWorker(connection, lease="30 seconds"), SqlWorker(connection, lease="1 hour")
    assert len(worker.claim()) == 1
    assert other.claim() == []
    assert other.claim() == []
    connection.execute("update sereno.limiters set check_at = sereno.now() + interval '1 hour'")
    if way == "closed":
        worker.close()
    elif way == "unlisted":
        advance(connection, 11)
        assert worker.beat([]).alive
    else:
        connection.execute("insert into sereno.clock (ahead) values ('31 seconds')")
        assert other.beat([]).alive
    assert len(other.claim()) == 1
    assert len(made) == 2


def test_a_stalled_transaction_that_holds_a_limiter_is_ended(connection: Connection) -> None:
    """A claim in an open transaction would block all jobs under the same limiter."""
    set_limit(connection, "one", Limit(1))
    put(connection, keys(("one", "")))
    worker = SqlWorker(connection)
    with connection.transaction():
        worker.claim()
        assert one(connection, "show idle_in_transaction_session_timeout") == "10s"
    assert one(connection, "show idle_in_transaction_session_timeout") == "0"
    with connection.transaction():
        connection.execute("set local idle_in_transaction_session_timeout = '9s'")
        worker.claim()
        assert one(connection, "show idle_in_transaction_session_timeout") == "9s"
