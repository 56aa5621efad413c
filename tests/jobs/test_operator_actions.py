"""Cancel, delete and requeue, also concurrently with other changes of the same jobs."""

from collections.abc import Iterator
from datetime import timedelta
from threading import Thread
from typing import Any

import pytest

from sereno import Dead, Retry
from sereno.jobs import transitions
from sereno.jobs.rows import KeyConflict
from sereno.jobs.settlement import keep_step, report_progress
from tests.facts import one, state, until
from tests.jobs.job_steps import (
    Connection,
    add,
    advance,
    decided,
    do,
    end,
    line,
    past,
    row,
    session,
    take,
    take_one,
    tries,
    waits_for_a_lock,
)


@pytest.fixture
def connection(database_url: str) -> Iterator[Connection]:
    with line(database_url) as opened:
        yield opened


def dead_letter(connection: Connection, **options: Any) -> int:
    """Create a dead letter."""
    (id_,) = add(connection, **options)
    owner = session(connection)
    end(connection, owner, [take_one(connection, owner)], decided(Dead("no")))
    return id_


def side_rows(connection: Connection) -> int:
    return int(one(connection, "select (select count(*) from sereno.steps) + (select count(*) from sereno.progress)"))


def test_a_waiting_job_is_cancelled_at_once(connection: Connection) -> None:
    (ready,) = add(connection)
    (future,) = add(connection, delay="1h", tenant="r42")
    cancelled, stopping = do(connection, transitions.cancel([ready, future, 999], "not wanted"))
    assert (sorted(cancelled), stopping) == ([ready, future], [])
    found = past(connection, future)
    assert (found["state"], found["reason"], found["tenant"]) == ("cancelled", "not wanted", "r42")
    assert found["session_id"] is None
    assert one(connection, "select count(*) from sereno.jobs") == 0


def test_a_running_job_is_asked_to_stop_and_its_worker_is_notified(connection: Connection, database_url: str) -> None:
    add(connection)
    job = take_one(connection, session(connection))
    with line(database_url) as listener:
        listener.execute('listen "sereno.cancel"')
        assert do(connection, transitions.cancel([job.id], "stop")) == ([], [job.id])
        notice = next(listener.notifies(timeout=30, stop_after=1))
    assert (notice.channel, notice.payload) == ("sereno.cancel", str(job.id))
    assert row(connection, job.id)["cancel_requested"]


def test_a_job_claimed_while_its_cancel_waits_is_asked_to_stop(connection: Connection, database_url: str) -> None:
    (id_,) = add(connection)
    owner = session(connection)
    results: list[tuple[list[int], list[int]]] = []

    def cancel() -> None:
        with line(database_url) as own:
            results.append(do(own, transitions.cancel([id_], "stop")))

    with line(database_url) as worker:
        with worker.transaction():
            take_one(worker, owner)
            thread = Thread(target=cancel)
            thread.start()
            until(lambda: waits_for_a_lock(connection))
        thread.join()
    assert results == [([], [id_])]
    assert row(connection, id_)["cancel_requested"]


def test_a_job_rescheduled_while_its_cancel_waits_is_cancelled(connection: Connection, database_url: str) -> None:
    (id_,) = add(connection)
    owner = session(connection)
    job = take_one(connection, owner)
    results: list[tuple[list[int], list[int]]] = []

    def cancel() -> None:
        with line(database_url) as own:
            results.append(do(own, transitions.cancel([id_], "stop")))

    with line(database_url) as worker:
        with worker.transaction():
            end(worker, owner, [job], decided(Retry()))
            thread = Thread(target=cancel)
            thread.start()
            until(lambda: waits_for_a_lock(connection))
        thread.join()
    assert results == [([id_], [])]
    assert (state(connection, id_), past(connection, id_)["failures"]) == ("cancelled", 1)


def test_cancel_and_delete_also_delete_steps_and_progress(connection: Connection) -> None:
    owner = session(connection)
    for action in (lambda id_: transitions.cancel([id_], "x"), lambda id_: transitions.delete([id_])):
        (id_,) = add(connection)
        job = take_one(connection, owner)
        do(connection, keep_step(owner, id_, 1, "pay", b"1"))
        do(connection, report_progress(owner, id_, 1, 0.5, None))
        end(connection, owner, [job], decided(Retry()))
        assert side_rows(connection) == 2
        do(connection, action(id_))
        assert side_rows(connection) == 0


def test_delete_removes_jobs_but_never_a_running_one(connection: Connection) -> None:
    dead = dead_letter(connection)
    (running,) = add(connection)
    owner = session(connection)
    take_one(connection, owner)
    (retried,) = add(connection)
    end(connection, owner, [take_one(connection, owner)], decided(Retry()))
    (ready,) = add(connection)
    assert sorted(do(connection, transitions.delete([dead, ready, retried, running, 999]))) == [dead, retried, ready]
    assert [state(connection, id_) for id_ in (dead, ready, retried, running)] == [None, None, None, "running"]
    assert one(connection, "select count(*) from sereno.attempts") == 0


def test_a_requeued_job_keeps_its_id_and_resets_its_failures(connection: Connection) -> None:
    (id_,) = add(connection, tenant="r42", priority=2, tags=["a"], trace="t")
    owner = session(connection, lease=1e6)
    end(connection, owner, [take_one(connection, owner)], decided(Retry("busy")))
    advance(connection, 3600)
    do(connection, transitions.promote())
    end(connection, owner, [take_one(connection, owner)], decided(Dead("no")))
    assert past(connection, id_)["failures"] == 2

    assert do(connection, transitions.requeue([id_])) == [id_]
    found = row(connection, id_)
    assert (found["state"], found["attempt"], found["failures"], found["crashes"]) == ("ready", 2, 0, 0)
    assert (found["tenant"], found["priority"], found["tags"], found["trace"]) == ("r42", 2, ["a"], "t")
    assert one(connection, "select count(*) from sereno.history") == 0
    assert tries(connection, id_) == [(1, "retry"), (2, "dead")]
    assert one(connection, "select reason from sereno.attempts where number = 2") == "no"

    job = take_one(connection, owner)
    assert (job.attempt, job.failures) == (3, 0)
    end(connection, owner, [job], decided())
    assert past(connection, id_)["attempt"] == 3
    assert tries(connection, id_) == [(1, "retry"), (2, "dead")]


@pytest.mark.parametrize("attempts", [0, 1])
def test_a_job_that_was_cancelled_while_it_waited_can_be_requeued(connection: Connection, attempts: int) -> None:
    (id_,) = add(connection)
    owner = session(connection)
    if attempts:
        end(connection, owner, [take_one(connection, owner)], decided(Retry("busy")))
    do(connection, transitions.cancel([id_], "no"))
    assert do(connection, transitions.requeue([id_])) == [id_]
    assert tries(connection, id_) == [(1, "retry")][:attempts]
    assert row(connection, id_)["attempt"] == attempts


def test_requeued_jobs_are_spaced_out(connection: Connection) -> None:
    ids = [dead_letter(connection) for _ in range(3)]
    do(connection, transitions.requeue(ids, 60))
    found = [row(connection, id_) for id_ in ids]
    assert [each["state"] for each in found] == ["ready", "scheduled", "scheduled"]
    assert [each["run_at"] - found[0]["run_at"] for each in found] == [timedelta(minutes=n) for n in range(3)]


def test_a_job_whose_key_is_taken_stays_in_history(connection: Connection) -> None:
    first = dead_letter(connection, unique_key="k")
    second = dead_letter(connection, unique_key="k")
    other = dead_letter(connection, unique_key="k", tenant="b")
    assert do(connection, transitions.requeue([first, second, other])) == [first, other], (
        "the first of them takes the key"
    )
    assert state(connection, second) == "dead"
    assert do(connection, transitions.requeue([second])) == []
    do(connection, transitions.cancel([first], "no"))
    assert do(connection, transitions.requeue([second])) == [second]


def test_a_key_taken_during_a_requeue_affects_only_that_job(connection: Connection, database_url: str) -> None:
    """The key is free when the requeue reads, and taken when it writes, by an uncommitted transaction."""
    dead = [dead_letter(connection, unique_key="k" if number == 2 else None) for number in range(5)]
    requeued: list[int] = []
    with line(database_url) as other, line(database_url) as requeuing:
        with other.transaction():
            (live,) = add(other, unique_key="k")
            thread = Thread(target=lambda: requeued.extend(do(requeuing, transitions.requeue(dead))))
            thread.start()
            until(lambda: waits_for_a_lock(connection))
        thread.join()
    assert requeued == [id_ for id_ in dead if id_ != dead[2]]
    assert [state(connection, id_) for id_ in dead] == ["ready", "ready", "dead", "ready", "ready"]
    assert do(connection, transitions.key_conflicts(dead)) == [KeyConflict(dead[2], live)]
    assert len(tries(connection, dead[0])) == 1, "its last attempt is stored"


def test_a_key_released_during_a_requeue_can_be_used(connection: Connection, database_url: str) -> None:
    dead = dead_letter(connection, unique_key="k")
    requeued: list[int] = []
    with line(database_url) as other, line(database_url) as requeuing:
        with other.transaction(force_rollback=True):
            add(other, unique_key="k")
            thread = Thread(target=lambda: requeued.extend(do(requeuing, transitions.requeue([dead]))))
            thread.start()
            until(lambda: waits_for_a_lock(connection))
        thread.join()
    assert requeued == [dead]
    assert do(connection, transitions.key_conflicts([dead])) == []


def test_only_finished_jobs_are_requeued_and_only_once(connection: Connection) -> None:
    dead = dead_letter(connection)
    (ready,) = add(connection)
    assert do(connection, transitions.requeue([ready, 999])) == []
    assert [do(connection, transitions.requeue([dead])) for _ in range(2)] == [[dead], []]


def test_requeue_and_delete_find_jobs_of_every_partition(connection: Connection) -> None:
    owner = session(connection, lease=1e9)
    ids = []
    for _ in range(3):
        (id_,) = add(connection)
        end(connection, owner, take(connection, owner), decided())
        ids.append(id_)
        advance(connection, 86400 * 6)
    assert one(connection, "select count(distinct tableoid) from sereno.history") == 3
    assert do(connection, transitions.requeue(ids[:2])) == ids[:2]
    assert do(connection, transitions.delete(ids[2:])) == ids[2:]
