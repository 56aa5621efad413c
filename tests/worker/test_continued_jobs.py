"""A worker starts the jobs that its own settlements make ready at once, even if it is the only one."""

import asyncio

import psycopg
import pytest

from sereno import Context, Sereno
from tests.facts import auntil, one

NEVER = 3600.0
# An outcome that no table accepts.
REFUSE = """
    create function refuse() returns trigger language plpgsql as $$
    begin raise exception 'refused' using errcode = 'check_violation'; end $$;
    create trigger refuse before insert on sereno.history for each row
        when (new.state = 'succeeded' and new.task = 'refused') execute function refuse()
"""


@pytest.mark.parametrize("task", ["returns", "commits", "commits_in_thread", "refused"])
async def test_the_next_job_starts_without_a_poll(database_url: str, connection: psycopg.Connection, task: str) -> None:
    app = Sereno(database_url, poll=NEVER)
    connection.execute(REFUSE.encode())
    is_started, may_end = asyncio.Event(), asyncio.Event()

    async def run() -> None:
        is_started.set()
        await may_end.wait()

    @app.task
    async def returns() -> None:
        await run()

    @app.task
    async def refused() -> None:
        await run()

    @app.task
    async def commits(ctx: Context) -> None:
        await run()
        async with ctx.transaction():
            pass

    loop = asyncio.get_running_loop()

    @app.task
    def commits_in_thread(ctx: Context) -> None:
        asyncio.run_coroutine_threadsafe(run(), loop).result()
        with ctx.transaction():
            pass

    @app.task
    async def follows() -> None: ...

    tasks = {each.name: each for each in (returns, refused, commits, commits_in_thread)}
    async with app.working() as worker:
        first = await tasks[task].aenqueue()
        last = await follows.using(after=[first], on_dead="continue").aenqueue()
        await is_started.wait()
        # Nothing makes it claim any more: it has claimed once more, looked back, and rests until its poll.
        is_idle = "select idle from sereno.sessions where state = 'alive'"
        await auntil(lambda: bool(one(connection, is_idle)) and worker.claimer._looked_back)
        may_end.set()
        await last.aresult("20s")
    await app.aclose()
