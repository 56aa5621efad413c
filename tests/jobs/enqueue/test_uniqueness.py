"""Unique keys: one job while it is live, for a period, or forever; per task and tenant."""

import psycopg
import pytest

from sereno import Cancel, DuplicateJob, Sereno, Task
from tests.facts import advance, one
from tests.jobs.job_steps import add, decided, end, line, row, session, take, take_one

Work = Task[[int], None]


@pytest.fixture
def work(app: Sereno) -> Work:
    @app.task
    def work(number: int) -> None: ...

    return work


def count(connection: psycopg.Connection) -> int:
    return int(one(connection, "select count(*) from sereno.jobs"))


def finish(connection: psycopg.Connection) -> None:
    """Run all ready jobs."""
    owner = session(connection)
    while jobs := take(connection, owner, 100):
        end(connection, owner, jobs, decided())


def test_a_live_job_blocks_its_unique_key(work: Work, connection: psycopg.Connection) -> None:
    keyed = work.using(unique_key="k")
    first = keyed.enqueue(1)
    second = keyed.enqueue(2)
    assert (first.created, second.created, second.id) == (True, False, first.id)

    take(connection, session(connection))
    assert keyed.enqueue(3).id == first.id, "a running job is live"
    assert row(connection, first.id)["args"] == {"number": 1}


@pytest.mark.parametrize("ending", [None, Cancel("no")], ids=["succeeded", "cancelled"])
def test_a_finished_job_releases_its_key(work: Work, connection: psycopg.Connection, ending: Cancel | None) -> None:
    keyed = work.using(unique_key="k")
    first = keyed.enqueue(1)
    owner = session(connection)
    end(connection, owner, take(connection, owner), decided(ending))
    assert keyed.enqueue(2).id != first.id


def test_a_key_with_a_period_outlives_its_job(work: Work, connection: psycopg.Connection) -> None:
    keyed = work.using(unique_key="k", unique_for="1h")
    first = keyed.enqueue(1)
    finish(connection)
    advance(connection, 3000)
    assert (keyed.enqueue(2).id, count(connection)) == (first.id, 0)
    advance(connection, 700)
    later = keyed.enqueue(3)
    assert later.created
    assert later.id != first.id
    finish(connection)
    advance(connection, 3000)
    assert keyed.enqueue(4).id == later.id, "the period restarts with the new job"


def test_a_job_that_outlives_its_period_still_holds_its_key(work: Work, connection: psycopg.Connection) -> None:
    keyed = work.using(unique_key="k", unique_for="1h")
    first = keyed.enqueue(1)
    advance(connection, 7200)
    again = keyed.enqueue(2)
    assert (again.id, again.created, count(connection)) == (first.id, False, 1)


def test_a_key_held_forever_is_never_released(work: Work, connection: psycopg.Connection) -> None:
    keyed = work.using(unique_key="k", unique_for="forever")
    first = keyed.enqueue(1)
    finish(connection)
    advance(connection, 86400 * 365 * 50)
    assert (keyed.enqueue(2).id, count(connection)) == (first.id, 0)


def test_a_key_belongs_to_its_task_and_tenant(app: Sereno, work: Work, connection: psycopg.Connection) -> None:
    @app.task
    def other(number: int) -> None: ...

    made = [
        task.using(unique_key="k", unique_for=unique_for, tenant=tenant).enqueue(1)
        for unique_for in ("live", "forever")
        for task in (work, other)
        for tenant in (None, "a", "b")
    ]
    assert [job.created for job in made] == [True] * 6 + [False] * 6


def test_keep_does_not_change_the_waiting_job(work: Work, connection: psycopg.Connection) -> None:
    first = work.using(unique_key="k", delay="1h").enqueue(1)
    work.using(unique_key="k", priority=0).enqueue(2)
    found = row(connection, first.id)
    assert (found["args"], found["state"], found["priority"]) == ({"number": 1}, "scheduled", 5)


def test_replace_gives_the_waiting_job_new_arguments_and_a_new_time(work: Work, connection: psycopg.Connection) -> None:
    replacing = work.using(unique_key="k", on_conflict="replace")
    first = replacing.using(delay="1h").enqueue(1)
    second = replacing.using(priority=2).enqueue(2)
    assert (second.id, second.created) == (first.id, False)
    found = row(connection, first.id)
    assert (found["args"], found["state"], found["priority"]) == ({"number": 2}, "ready", 2)
    replacing.using(delay="1h").enqueue(3)
    found = row(connection, first.id)
    assert (found["args"], found["state"], found["ready_seq"]) == ({"number": 3}, "scheduled", None)


def test_replace_does_not_change_a_running_job(work: Work, connection: psycopg.Connection) -> None:
    replacing = work.using(unique_key="k", on_conflict="replace")
    first = replacing.enqueue(1)
    owner = session(connection)
    held = take_one(connection, owner)
    assert replacing.enqueue(2).id == first.id
    assert row(connection, first.id)["args"] == {"number": 1}
    assert end(connection, owner, [held], decided()) == {first.id}


def test_raise_names_the_job_with_the_key_and_writes_nothing(
    app: Sereno, work: Work, connection: psycopg.Connection
) -> None:
    first = work.using(unique_key="k").enqueue(1)
    raising = work.using(unique_key="k", on_conflict="raise")
    with pytest.raises(DuplicateJob, match="unique key 'k'") as refusal:
        raising.enqueue(2)
    assert refusal.value.job_id == first.id
    with pytest.raises(DuplicateJob):
        app.enqueue_many([work.job(3), work.using(unique_key="free", unique_for="forever").job(4), raising.job(5)])
    assert count(connection) == 1
    assert one(connection, "select count(*) from sereno.unique_keys") == 0


async def test_raise_writes_nothing_in_async_code(app: Sereno, work: Work, connection: psycopg.Connection) -> None:
    raising = work.using(unique_key="k", on_conflict="raise")
    with pytest.raises(DuplicateJob):
        await app.aenqueue_many([work.job(1), raising.job(2), raising.job(3)])
    assert count(connection) == 0
    assert (await raising.aenqueue(4)).created
    await app.aclose()


def test_one_call_with_the_same_key_twice_creates_one_job(app: Sereno, work: Work) -> None:
    keyed = work.using(unique_key="k")
    first, second = app.enqueue_many([keyed.job(1), keyed.job(2)])
    assert (first.created, second.created, second.id) == (True, False, first.id)


def test_an_expired_key_is_free_after_the_sweep(work: Work, connection: psycopg.Connection, database_url: str) -> None:
    keyed = work.using(unique_key="k", unique_for="1h")
    keyed.enqueue(1)
    finish(connection)
    advance(connection, 3601)
    with line(database_url) as other:
        other.execute("delete from sereno.unique_keys where until < sereno.now()")
    assert keyed.enqueue(2).created


def test_a_duplicate_in_a_long_transaction_does_not_block_the_worker(
    work: Work, connection: psycopg.Connection, database_url: str
) -> None:
    job = work.using(unique_key="k").enqueue(1)
    (plain,) = add(connection)
    owner = session(connection)
    held = take(connection, owner)
    with psycopg.connect(database_url) as callers:
        assert not work.using(callers, unique_key="k").enqueue(2).created
        connection.execute("set lock_timeout = '2s'")
        assert end(connection, owner, held, decided()) == {job.id, plain}


def test_a_waiting_job_runs_after_the_commit_of_its_duplicate(
    work: Work, connection: psycopg.Connection, database_url: str
) -> None:
    job = work.using(unique_key="k").enqueue(1)
    owner = session(connection)
    with psycopg.connect(database_url) as callers:
        assert not work.using(callers, unique_key="k").enqueue(2).created
        assert take(connection, owner) == []
        callers.commit()
        assert take_one(connection, owner).id == job.id
