"""A claim takes ready jobs in order, at most the requested number, and only eligible ones."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier

import pytest

from sereno.jobs import transitions
from sereno.worker import sessions
from tests.facts import one
from tests.jobs.job_steps import Connection, add, advance, do, line, row, session, take, take_one, wanted


@pytest.fixture
def connection(database_url: str) -> Iterator[Connection]:
    with line(database_url) as opened:
        yield opened


def test_a_claimed_job_has_all_fields_a_worker_needs(connection: Connection) -> None:
    (id_,) = add(connection, tenant="r42", trace="t", priority=3)
    owner = session(connection)
    job = take_one(connection, owner)
    found = row(connection, id_)
    assert (found["state"], found["session_id"], found["attempt"]) == ("running", owner, 1)
    assert (job.id, job.attempt, job.task, job.queue, job.priority) == (id_, 1, "work", "default", 3)
    assert (job.tenant, job.trace, job.failures, job.crashes, job.expired) == ("r42", "t", 0, 0, False)
    assert job.ready_seq == found["ready_seq"]
    assert bytes(job.args) == b"{}"
    assert job.claimed_at == pytest.approx(found["claimed_at"].timestamp(), abs=1e-5)
    assert job.waited >= 0


def test_jobs_are_claimed_by_priority_and_then_as_they_became_ready(connection: Connection) -> None:
    late, first, urgent = (add(connection, 2, priority=priority) for priority in (9, 5, 0))
    owner = session(connection)
    assert [job.id for job in take(connection, owner, 3)] == [*urgent, first[0]]
    assert [job.id for job in take(connection, owner, 3)] == [first[1], *late]


def test_priorities_are_claimed_in_the_requested_order(connection: Connection) -> None:
    (late,) = add(connection, priority=9)
    add(connection, priority=0)
    reversed_order = wanted(1) | {"floors": wanted(1)["floors"][::-1]}
    (job,) = do(connection, transitions.claim(session(connection), ["work"], [reversed_order])).jobs
    assert job.id == late


def test_jobs_below_the_floor_are_not_claimed(connection: Connection) -> None:
    add(connection, 5)
    owner = session(connection)
    seen = [job.ready_seq for job in take(connection, owner, 2)]
    assert [job.ready_seq for job in take(connection, owner, 1, floor=seen[-1] + 2)] == [seen[-1] + 2]
    assert [job.ready_seq for job in take(connection, owner, 9)] == [seen[-1] + 1, seen[-1] + 3]


def test_each_queue_gets_as_many_jobs_as_it_has_free_slots(connection: Connection) -> None:
    for queue in ("a", "b", "c"):
        add(connection, 5, queue=queue)
    got = do(connection, transitions.claim(session(connection), ["work"], [wanted(2, "a"), wanted(3, "b")]))
    assert sorted(job.queue for job in got.jobs) == ["a", "a", "b", "b", "b"]


def test_jobs_of_an_unknown_task_are_not_claimed(connection: Connection) -> None:
    add(connection, task="unknown")
    (id_,) = add(connection)
    owner = session(connection)
    assert [job.id for job in take(connection, owner)] == [id_]
    assert take(connection, owner) == []


@pytest.mark.parametrize(
    ("kind", "name"), [("queue", "default"), ("task", "work"), ("tenant", "a")], ids=["queue", "task", "tenant"]
)
def test_paused_jobs_are_not_claimed_until_resumed(connection: Connection, kind: str, name: str) -> None:
    add(connection, tenant="a")
    (other,) = add(connection, queue="other", task="other", tenant="b")
    (without_tenant,) = add(connection, queue="other", task="other")
    owner = session(connection)
    connection.execute("insert into sereno.pauses (kind, name, paused_by) values (%s, %s, 'me')", [kind, name])

    both = [wanted(10, "default"), wanted(10, "other")]
    assert {job.id for job in do(connection, transitions.claim(owner, ["work", "other"], both)).jobs} == {
        other,
        without_tenant,
    }
    connection.execute("delete from sereno.pauses")
    assert len(do(connection, transitions.claim(owner, ["work", "other"], both)).jobs) == 1


def test_a_session_without_a_lease_claims_nothing(connection: Connection) -> None:
    add(connection)
    dead, closed, expired, alive = (session(connection) for _ in range(4))
    do(connection, sessions.finish([dead], "dead"))
    do(connection, sessions.finish([closed], "closed"))
    assert take(connection, dead) == take(connection, closed) == take(connection, 10_000) == []
    advance(connection, 31)
    do(connection, sessions.keep([alive], 30))
    assert take(connection, expired) == []
    assert len(take(connection, alive)) == 1


def test_an_expired_job_is_marked_expired(connection: Connection) -> None:
    now = one(connection, "select sereno.now()")
    add(connection, expires_at=now + timedelta(days=365))
    add(connection, expires_at=now - timedelta(days=365))
    assert [job.expired for job in take(connection, session(connection))] == [False, True]


def test_scheduled_jobs_are_claimed_only_after_promotion(connection: Connection) -> None:
    soon, late = add(connection, delay="1m"), add(connection, delay="2m")
    owner = session(connection, lease=3600)
    assert do(connection, transitions.promote()) == 0
    advance(connection, 60)
    assert take(connection, owner) == []
    assert do(connection, transitions.promote()) == 1
    assert [job.id for job in take(connection, owner)] == soon
    advance(connection, 60)
    assert do(connection, transitions.promote()) == 1
    assert [job.id for job in take(connection, owner)] == late


def test_a_promotion_is_bounded_in_number_and_look_back(connection: Connection) -> None:
    add(connection, 1001, delay="1m")
    advance(connection, 3600)
    assert do(connection, transitions.promote(look_back=60)) == 0
    assert [do(connection, transitions.promote()) for _ in range(3)] == [1000, 1, 0]


@pytest.mark.slow
def test_concurrent_claims_never_share_a_job_and_never_exceed_the_limit(
    connection: Connection, database_url: str
) -> None:
    workers, total, free_slots = 8, 4000, 37
    add(connection, total)
    barrier = Barrier(workers)

    def work(_: int) -> list[tuple[int, int]]:
        got: list[tuple[int, int]] = []
        with line(database_url) as own:
            owner = session(own)
            barrier.wait()
            while batch := take(own, owner, free_slots):
                assert len(batch) <= free_slots
                got += [(job.id, job.attempt) for job in batch]
        return got

    with ThreadPoolExecutor(workers) as threads:
        claimed = [pair for batch in threads.map(work, range(workers)) for pair in batch]
    # A claimer that found all rows locked by others stopped early; the rest is not claimed yet.
    left = one(connection, "select count(*) from sereno.jobs where state = 'ready'")
    assert len(claimed) == len({id_ for id_, _ in claimed}) == total - left
    assert {attempt for _, attempt in claimed} == {1}
