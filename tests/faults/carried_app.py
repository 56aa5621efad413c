"""The application of the fault tests of carried queues. Handlers append what they did to a file: the journal of a test.

The queue is carried by the setting `carriers`. A line has the number of the job, its id, its attempt and the process.
"""

import asyncio
import os
import time
from functools import cache
from types import SimpleNamespace

from sereno import Backoff, Context, Sereno


@cache
def _journal(process: int) -> int:
    """Return the open journal of this process; each process appends whole lines."""
    del process
    return os.open(os.environ["TEST_LOG"], os.O_APPEND | os.O_CREAT | os.O_WRONLY)


def note(word: str, n: int, job_id: int = 0, attempt: int = 0) -> None:
    """Append a line to the journal."""
    os.write(_journal(os.getpid()), f"{word} {n} {job_id} {attempt} {os.getpid()}\n".encode())


def declare(app: Sereno) -> SimpleNamespace:
    """Declare the tasks; workers and producers have applications of their own."""

    @app.task(queue="clicks", history=False)
    async def click(n: int, pause: float = 0.0) -> None:
        """Succeed."""
        if pause:
            await asyncio.sleep(pause)
        note("done", n)

    @app.task(queue="clicks", retry=Backoff(3, delays=["100ms"], jitter=0))
    async def fail_once(ctx: Context, n: int) -> None:
        """Fail at the first attempt."""
        if ctx.attempt == 1:
            note("failed", n, ctx.job_id, ctx.attempt)
            raise ValueError("the first attempt")
        note("done", n, ctx.job_id, ctx.attempt)

    @app.task(queue="clicks", retry=Backoff(0))
    async def fail(ctx: Context, n: int) -> None:
        """Fail for good."""
        note("failed", n, ctx.job_id, ctx.attempt)
        raise ValueError("always")

    @app.task(queue="clicks", history=False, retry=Backoff(20, delays=["200ms"], jitter=0))
    async def write(ctx: Context, n: int, pause: float = 0.0) -> None:
        """Write a row in the transaction that settles the job."""
        note("began", n, ctx.job_id, ctx.attempt)
        async with ctx.transaction() as connection:
            await connection.execute("insert into effects (job_id, n) values (%s, %s)", [ctx.job_id, n])
            if pause:
                await asyncio.sleep(pause)
        note("done", n, ctx.job_id, ctx.attempt)

    @app.task(queue="clicks", history=False)
    def block(n: int, seconds: float) -> None:
        """Run in a thread for a while."""
        note("began", n)
        time.sleep(seconds)
        note("done", n)

    return SimpleNamespace(app=app, click=click, fail_once=fail_once, fail=fail, write=write, block=block)


app = declare(Sereno()).app
