"""`app.jobs` and `app.queues`: what callers read and change, sync and async, also in a transaction of their own."""

import psycopg
import pytest

from sereno import Dead, Sereno
from sereno.errors import ConfigurationError, InvalidArguments, JobNotFound, Refused
from sereno.jobs.client import PAGE
from tests.facts import one, state
from tests.jobs.job_steps import Connection, add, decided, end, session, take


def dead_letters(connection: Connection, count: int, **options: str) -> list[int]:
    made = add(connection, count, **options)
    owner = session(connection)
    end(connection, owner, take(connection, owner, count), decided(Dead("no")))
    return made


def actors(connection: Connection) -> list[tuple[str, str]]:
    return connection.execute("select actor, action from sereno.audit order by id").fetchall()


# One job


def test_a_job_is_looked_up_cancelled_and_refreshed(app: Sereno, connection: Connection) -> None:
    (job_id,) = add(connection, tenant="r42")
    job = app.jobs.get(job_id)
    assert (job.id, job.task, job.state, job.row.tenant) == (job_id, "work", "ready", "r42")
    assert job.cancel(reason="not wanted", actor="ann").done == [job_id]
    assert job.state == "ready"
    assert (job.refresh().state, job.row.reason) == ("cancelled", "not wanted")
    assert repr(job) == f"<job {job_id} work cancelled>"
    assert actors(connection) == [("ann", "job.cancel")]


async def test_a_job_is_looked_up_retried_and_deleted_by_async_code(app: Sereno, connection: Connection) -> None:
    (job_id,) = dead_letters(connection, 1)
    job = await app.jobs.aget(job_id)
    assert (job.state, job.detail.attempts[0].outcome) == ("dead", "dead")
    assert (await job.aretry()).done == [job_id]
    assert (await job.arefresh()).state == "ready"
    assert (await job.acancel()).done == [job_id]
    assert (await job.adelete()).done == [job_id]
    with pytest.raises(JobNotFound, match=str(job_id)):
        await job.arefresh()
    await app.aclose()


def test_an_unknown_job_is_an_error(app: Sereno, connection: Connection) -> None:
    with pytest.raises(JobNotFound, match="4711"):
        app.jobs.get(4711)


# Many jobs


def test_jobs_are_found_counted_and_retried(app: Sereno, connection: Connection) -> None:
    dead = dead_letters(connection, 3, tenant="r42")
    add(connection, 2, tenant="r7")
    found = app.jobs.find("state:dead tenant:r42")
    assert [line.id for line in found] == sorted(dead, reverse=True)
    assert (found.count().total.value, found.count().by_tenant) == (3, {"r42": 3})
    assert found.retry(rate="2/s").done == dead
    run_at = [
        row[0] for row in connection.execute("select run_at from sereno.jobs where id = any(%s) order by id", [dead])
    ]
    assert [round((after - run_at[0]).total_seconds(), 1) for after in run_at] == [0.0, 0.5, 1.0]
    assert list(found) == []
    assert len(list(app.jobs.find())) == 5


def test_jobs_are_changed_by_handle_and_id(app: Sereno, connection: Connection, database_url: str) -> None:
    first, second, third = add(connection, 3)
    assert app.jobs.count("task:work state:ready").total.value == app.jobs.count().total.value == 3
    assert app.jobs.cancel(first, app.jobs.get(second), 4711, reason="no", actor="ann").done == [first, second]
    assert app.jobs.retry(second).done == [second]
    with psycopg.connect(database_url) as own:
        assert app.jobs.using(own).delete(first, third).done == [first, third]
        own.rollback()
    assert app.jobs.delete(first).done == [first]
    assert [line.id for line in app.jobs.find()] == [third, second]
    assert [change().done for change in (app.jobs.cancel, app.jobs.retry, app.jobs.delete)] == [[], [], []]
    assert len(list(app.jobs.find())) == 2
    assert actors(connection)[0] == ("ann", "job.cancel")


async def test_jobs_are_changed_by_handle_and_id_in_async_code(app: Sereno, connection: Connection) -> None:
    @app.task
    def work() -> None: ...

    job = await work.aenqueue()
    assert (await app.jobs.acancel(job)).done == [job.id]
    assert (await app.jobs.aretry(job.id)).done == [job.id]
    assert (await app.jobs.acount("state:ready")).total.value == 1
    assert (await app.jobs.adelete(job)).done == [job.id]
    await app.aclose()


def test_a_selection_is_read_page_by_page(app: Sereno, connection: Connection) -> None:
    made = add(connection, PAGE + 1)
    assert [line.id for line in app.jobs.find("state:ready")] == made[::-1]


async def test_async_code_finds_cancels_and_deletes(app: Sereno, connection: Connection) -> None:
    made = add(connection, 3)
    found = app.jobs.find(f"id:{made[0]},{made[2]}")
    assert [line.id async for line in found] == [made[2], made[0]]
    assert (await found.acount()).total.value == 2
    assert (await found.acancel(reason="no")).done == [made[0], made[2]]
    assert (await app.jobs.find("state:cancelled").adelete()).done == [made[0], made[2]]
    assert one(connection, "select array_agg(id) from sereno.jobs") == [made[1]]
    await app.aclose()


def test_running_jobs_stop_and_are_not_deleted(app: Sereno, connection: Connection) -> None:
    (job_id,) = add(connection)
    take(connection, session(connection), 1)
    with pytest.raises(Refused, match="running"):
        app.jobs.get(job_id).delete()
    assert app.jobs.find("task:work").delete().done == []
    assert app.jobs.get(job_id).cancel().stopping == [job_id]


@pytest.mark.parametrize("verb", ["cancel", "retry", "delete"])
def test_a_change_of_every_job_is_refused(app: Sereno, connection: Connection, verb: str) -> None:
    add(connection)
    with pytest.raises(Refused, match=f"would {verb} every job"):
        getattr(app.jobs.find(), verb)()
    assert one(connection, "select state from sereno.jobs") == "ready"


def test_invalid_searches_and_rates_are_errors(app: Sereno) -> None:
    with pytest.raises(InvalidArguments, match="stat"):
        app.jobs.find("stat:dead")
    for rate in ("fast", "5/x", 0, -1, "inf/s"):
        with pytest.raises(ConfigurationError, match="is not a rate"):
            app.jobs.find("state:dead").retry(rate=rate)


# The caller's transaction


def test_changes_commit_with_the_callers_transaction(app: Sereno, connection: Connection, database_url: str) -> None:
    made = add(connection, 2)
    with psycopg.connect(database_url) as own:
        jobs = app.jobs.using(own)
        jobs.find("state:ready").cancel()
        assert (jobs.get(made[0]).state, app.jobs.get(made[0]).state) == ("cancelled", "ready")
        own.rollback()
        assert app.jobs.get(made[0]).state == "ready"
        jobs.get(made[0]).cancel()
    assert (state(connection, made[0]), state(connection, made[1])) == ("cancelled", "ready")


async def test_changes_commit_with_the_callers_async_transaction(
    app: Sereno, connection: Connection, database_url: str
) -> None:
    (job_id,) = add(connection)
    async with await psycopg.AsyncConnection.connect(database_url) as own:
        await (await app.jobs.using(own).aget(job_id)).acancel()
        assert state(connection, job_id) == "ready"
    assert state(connection, job_id) == "cancelled"


# Queues


def test_a_queue_is_read_paused_and_resumed(app: Sereno, connection: Connection, database_url: str) -> None:
    add(connection, 2)
    found = app.queues.get("default")
    assert found is not None
    assert (found.ready.value, found.is_paused, found.oldest_seconds is not None) == (2, False, True)
    assert app.queues.pause("default", note="deploy", actor="ann")
    assert not app.queues.pause("default")
    assert [(line.queue, line.note) for line in app.queues.list()] == [("default", "deploy")]
    with psycopg.connect(database_url) as own:
        assert app.queues.resume("default", connection=own)
        own.rollback()
    assert app.queues.resume("default")
    assert not app.queues.resume("default")
    assert app.queues.get("unknown") is None


async def test_async_code_pauses_and_resumes_a_queue(app: Sereno, connection: Connection) -> None:
    add(connection)
    assert await app.queues.apause("default")
    assert [line.is_paused for line in await app.queues.alist()] == [True]
    assert await app.queues.aresume("default")
    found = await app.queues.aget("default")
    assert found is not None
    assert not found.is_paused
    await app.aclose()


async def test_async_code_migrates(app: Sereno) -> None:
    assert await app.amigrate() == []
