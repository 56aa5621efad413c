"""Jobs that wait for others, with a real worker: chains, groups, results of predecessors, and calls."""

import asyncio
from typing import Any

import psycopg
import pytest

from sereno import Context, Dead, JobFailed, Sereno
from tests.facts import one, state, until

LONG = "60s"


def declare(app: Sereno) -> dict[str, Any]:
    @app.task
    async def number(of: int) -> int:
        if of < 0:
            raise Dead("negative")
        return of

    @app.task
    async def total(ctx: Context) -> int:
        return sum(await ctx.results())

    @app.task
    def count(ctx: Context) -> int:
        return len(ctx.read_results())

    @app.task
    async def calls(ctx: Context, of: int) -> list[int]:
        first = await ctx.call(number.job(of))
        rest = await ctx.all([number.job(first + 1), number.job(first + 2)])
        return [first, *rest, await ctx.call(number.job(first + 3))]

    @app.task
    def calls_sync(ctx: Context, of: int) -> list[int]:
        return [ctx.run_call(number.job(of)), *ctx.run_all([number.job(of + 1)])]

    @app.task
    async def recovers(ctx: Context) -> str:
        try:
            await ctx.call(number.job(-1))
        except JobFailed as error:
            return str(error)
        return "no error"

    return {task.name: task for task in (number, total, count, calls, calls_sync, recovers)}


@pytest.mark.slow
async def test_a_job_gets_the_results_of_its_predecessors(app: Sereno, connection: psycopg.Connection) -> None:
    tasks = declare(app)
    async with app.working():
        first = [await tasks["number"].aenqueue(n) for n in (1, 2)]
        assert await (await tasks["total"].using(after=first).aenqueue()).aresult(LONG) == 3
        group = app.group([tasks["number"].job(n) for n in range(10)], then=tasks["total"].job())
        made = await group.aenqueue()
        assert made.then is not None
        assert await made.then.aresult(LONG) == 45
        assert (await made.astate()).remaining == 0
        sync = app.group([tasks["number"].job(-1), tasks["number"].job(1)], tasks["count"].job(), on_dead="continue")
        last = (await sync.aenqueue()).then
        assert last is not None
        assert await last.aresult(LONG) == 2


@pytest.mark.slow
async def test_a_predecessor_without_history_keeps_its_place_among_the_results(app: Sereno) -> None:
    tasks = declare(app)

    @app.task(history=False)
    async def forgotten() -> None: ...

    @app.task
    async def places(ctx: Context) -> list[int | None]:
        return await ctx.results()

    async with app.working():
        first = [await tasks["number"].aenqueue(1), await forgotten.aenqueue(), await tasks["number"].aenqueue(3)]
        assert await (await places.using(after=first).aenqueue()).aresult(LONG) == [1, None, 3]
    await app.aclose()


async def test_a_job_calls_others_and_gets_their_results(app: Sereno, connection: psycopg.Connection) -> None:
    tasks = declare(app)
    async with app.working():
        job = await tasks["calls"].using(tenant="r42").aenqueue(7)
        assert await job.aresult(LONG) == [7, 8, 9, 10]
        assert await (await tasks["calls_sync"].aenqueue(1)).aresult(LONG) == [1, 2]
        assert "is dead: negative" in await (await tasks["recovers"].aenqueue()).aresult(LONG)
    assert one(connection, "select count(*) from sereno.history where task = 'number'") == 7
    assert one(connection, "select count(*) from sereno.history where task = 'number' and tenant = 'r42'") == 4
    assert one(connection, "select count(*) from sereno.steps") == 0
    # Each wait is a snooze, not a failure.
    assert one(connection, "select failures from sereno.history where id = %s", job.id) == 0


@pytest.mark.slow
async def test_a_job_after_a_running_one_is_continued(app: Sereno, connection: psycopg.Connection) -> None:
    begun = "select count(*) from sereno.jobs where state = 'running'"

    @app.task
    def slow() -> None:
        until(one_more)

    def one_more() -> bool:
        with psycopg.connect(app.url) as mine:
            return bool(one(mine, "select count(*) from sereno.jobs where state = 'waiting'"))

    @app.task
    async def fast() -> None: ...

    async with app.working():
        first = await slow.aenqueue()
        await asyncio.to_thread(until, lambda: one(connection, begun) == 1)
        last = await fast.using(after=[first]).aenqueue()
        await last.wait_async(LONG)
    assert [state(connection, job.id) for job in (first, last)] == ["succeeded", "succeeded"]
    assert one(connection, "select count(*) from sereno.dependencies") == 0


@pytest.mark.slow
async def test_a_dead_job_cancels_the_rest_of_its_group(app: Sereno, connection: psycopg.Connection) -> None:
    tasks = declare(app)
    jobs = [tasks["number"].job(-1), *(tasks["number"].using(delay="1h").job(n) for n in range(50))]
    async with app.working():
        made = await app.group(jobs, tasks["total"].job(), on_dead="cancel").aenqueue()
        assert made.then is not None
        assert (await made.then.wait_async(LONG)).state == "cancelled"
        await app.jobs.wait_async([line.id async for line in app.jobs.find(f"group:{made.id}")], LONG)
    counts = connection.execute("select state, count(*) from sereno.history group by 1 order by 1").fetchall()
    assert counts == [("cancelled", 51), ("dead", 1)]
