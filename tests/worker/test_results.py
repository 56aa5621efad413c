"""Results: what a task returns is stored with its history, and the handle of the job waits for it."""

import asyncio
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from sereno import (
    Cancel,
    Context,
    Dead,
    Job,
    JobCancelled,
    JobFailed,
    JobNotFound,
    ResultUnavailable,
    Retry,
    Sereno,
)
from sereno.errors import ConfigurationError
from sereno.jobs import finish_listener
from tests.facts import one, until
from tests.worker import results_app

LONG = "60s"


@dataclass
class Report:
    rows: int
    note: str | None = None


def declare(app: Sereno) -> dict[str, Any]:
    @app.task
    async def export(rows: int) -> Report | Retry:
        return Report(rows)

    @app.task
    def count(of: str) -> int:
        return len(of)

    @app.task
    async def ends(how: str) -> str:
        if how == "dead":
            raise Dead("no such account") from ValueError("r42")
        if how == "cancelled":
            raise Cancel("not wanted")
        return how

    @app.task
    async def nothing() -> None: ...

    @app.task(result=False)
    async def unkept() -> int:
        return 7

    @app.task
    async def in_transaction(ctx: Context, how: str) -> int:
        async with ctx.transaction():
            if how != "returned":
                ctx.set_result(5 if how == "set" else 6)
        return 6

    return {task.name: task for task in (export, count, ends, nothing, unkept, in_transaction)}


@pytest.mark.slow
async def test_a_result_has_its_annotated_type(app: Sereno, connection: psycopg.Connection) -> None:
    tasks = declare(app)
    async with app.working():
        jobs = [await tasks["export"].aenqueue(3), await tasks["count"].aenqueue("abc")]
        assert await jobs[0].aresult(LONG) == Report(3)
        assert await jobs[1].aresult(LONG) == 3
        found = await app.jobs.aget(jobs[0].id)
        assert await found.aresult(LONG) == Report(3)
        assert found.row.result == {"rows": 3, "note": None}
        assert await (await tasks["nothing"].aenqueue()).aresult(LONG) is None
        assert await (await tasks["unkept"].aenqueue()).aresult(LONG) is None
    assert one(connection, "select count(*) from sereno.history where result is not null") == 2


async def test_a_sync_caller_waits_too(app: Sereno, connection: psycopg.Connection) -> None:
    count = declare(app)["count"]
    async with app.working():
        job: Job[int] = await asyncio.to_thread(count.enqueue, "abcd")
        assert await asyncio.to_thread(job.result, LONG) == 4
        (ended,) = await asyncio.to_thread(app.jobs.wait, [job.id], LONG)
    assert (ended.id, ended.task, ended.state, ended.result) == (job.id, "count", "succeeded", "4")


async def test_a_dead_or_cancelled_job_raises(app: Sereno, connection: psycopg.Connection) -> None:
    ends = declare(app)["ends"]
    async with app.working():
        with pytest.raises(JobFailed, match=r"no such account; .*ValueError: r42") as failed:
            await (await ends.aenqueue("dead")).aresult(LONG)
        assert failed.value.error_message == "r42"
        with pytest.raises(JobCancelled, match="not wanted"):
            await (await ends.aenqueue("cancelled")).aresult(LONG)
        job = await ends.using(delay="1h").aenqueue("late")
        waiting = asyncio.create_task(job.aresult(LONG))
        await job.acancel(reason="too late")
        with pytest.raises(JobCancelled, match="too late"):
            await waiting


async def test_a_wait_ends_by_its_timeout_or_for_an_unknown_job(app: Sereno, connection: psycopg.Connection) -> None:
    ends = declare(app)["ends"]
    job = await ends.aenqueue("no worker")
    with pytest.raises(TimeoutError, match=f"job {job.id} has not finished within 0.05"):
        await job.wait_async(0.05)
    with pytest.raises(JobNotFound, match="4711 does not exist"):
        await app.jobs.wait_async([4711], LONG)
    await app.aclose()


@pytest.mark.slow
async def test_waits_work_without_notify(app: Sereno, connection: psycopg.Connection) -> None:
    app.override(notify=False)
    ends = declare(app)["ends"]
    async with app.working():
        assert await (await ends.aenqueue("done")).aresult(LONG) == "done"
    assert one(connection, "select count(*) from sereno.waiters") == 0


@pytest.mark.slow
async def test_all_waiters_of_a_process_share_one_connection(app: Sereno, connection: psycopg.Connection) -> None:
    ends = declare(app)["ends"]
    jobs = await app.aenqueue_many([ends.job(str(number)) for number in range(300)])
    waiting = [asyncio.create_task(job.aresult(LONG)) for job in jobs]
    announced = "select count(*) from sereno.waiters"
    connections = "select count(*) from pg_stat_activity where datname = current_database() and application_name = %s"
    await asyncio.to_thread(until, lambda: one(connection, announced) == 1)
    assert one(connection, connections, "sereno waiter") == 1
    async with app.working():
        assert await asyncio.gather(*waiting) == [str(number) for number in range(300)]
    await app.aclose()
    assert one(connection, announced) == 0


@pytest.mark.slow
async def test_a_wait_survives_a_lost_connection(app: Sereno, connection: psycopg.Connection) -> None:
    ends = declare(app)["ends"]
    job = await ends.aenqueue("done")
    waiting = asyncio.create_task(job.aresult(LONG))
    end = "select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = current_database() "
    end += "and application_name = 'sereno waiter'"
    await asyncio.to_thread(until, lambda: one(connection, end) == 1)
    async with app.working():
        assert await waiting == "done"


@pytest.mark.slow
async def test_a_result_commits_with_the_transaction_of_the_handler(
    app: Sereno, connection: psycopg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    in_transaction = declare(app)["in_transaction"]
    async with app.working():
        assert await (await in_transaction.aenqueue("set")).aresult(LONG) == 5
        both = await in_transaction.aenqueue("both")
        assert await both.aresult(LONG) == 6
        assert await (await in_transaction.aenqueue("returned")).aresult(LONG) is None
        await asyncio.to_thread(until, lambda: caplog.text.count("call ctx.set_result in the transaction") == 2)
    assert f"job {both.id} " not in caplog.text, "it returns the value that it has set"


async def test_a_result_that_cannot_be_stored_is_no_failure(app: Sereno, connection: psycopg.Connection) -> None:
    app.override(max_result_bytes=100)

    @app.task
    async def too_long() -> str:
        return "x" * 99

    @app.task
    async def not_json() -> object:
        return object()

    async with app.working():
        with pytest.raises(ResultUnavailable, match="succeeded, but its result was not stored: 101 bytes, and max_res"):
            await (await too_long.aenqueue()).aresult(LONG)
        with pytest.raises(ResultUnavailable, match="not storable as JSON"):
            await (await not_json.aenqueue()).aresult(LONG)
    assert one(connection, "select array_agg(distinct state) from sereno.history") == ["succeeded"]


def test_a_declaration_that_cannot_have_a_result_is_refused(app: Sereno) -> None:
    with pytest.raises(ConfigurationError, match="a batch task returns outcomes"):

        @app.task(name="batch", batch=10, result=True)
        async def batch(items: list[int]) -> None: ...

    with pytest.raises(ConfigurationError, match="remove history=False"):

        @app.task(name="forgotten", history=False, result=True)
        async def forgotten() -> int:
            return 1


async def test_a_result_of_another_type_is_an_error_of_the_reader(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task
    async def lies() -> int:
        return "seven"  # type: ignore[return-value]

    async with app.working():
        job = await lies.aenqueue()
        with pytest.raises(ResultUnavailable, match="not what task lies is annotated to return"):
            await job.aresult(LONG)
        assert (await finish_listener.wait_async(app.database, [job.id], LONG))[0].result == '"seven"'


@pytest.mark.slow
async def test_an_isolated_task_has_a_result(database_url: str) -> None:
    made = results_app.app
    made.override(database_url=database_url)
    async with made.working():
        assert await (await results_app.count.aenqueue("abc")).aresult(LONG) == 3
    await made.aclose()
    made.database.forget_url()
