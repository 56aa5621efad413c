"""Tasks that another process can import."""

import asyncio
import os
import signal
import time
from pathlib import Path

from sereno import Backoff, Context, Sereno

app = Sereno("postgresql://unused")


@app.task(isolate=True)
async def in_own_process(ctx: Context, where: str) -> None:
    print("a handler may print", where)  # noqa: T201 - that is the point
    async with ctx.transaction() as connection:
        await connection.execute("insert into seen values (%s, %s)", [os.getpid(), ctx.attempt])


# An application that finds its database by its environment, as most do.
shop = Sereno()


@shop.task
async def follow(parent: int) -> None: ...


@app.task(isolate=True)
async def makes_another(ctx: Context) -> None:
    await follow.aenqueue(ctx.job_id)


@app.task(isolate=True, timeout="500ms", retry=Backoff(0))
def never_ends() -> None:
    while True:
        time.sleep(1)


@app.task(isolate=True, retry=Backoff(0, first="1m"))
def kills_its_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Panic(BaseException):
    """Like pyo3_runtime.PanicException, which a panic in a Rust extension raises."""


WAYS_OUT: dict[str, type[BaseException]] = {
    "panic": Panic,
    "exit": SystemExit,
    "interrupt": KeyboardInterrupt,
    "generator": GeneratorExit,
    "stop": StopIteration,
    "async stop": StopAsyncIteration,
    "cancelled": asyncio.CancelledError,
}


@app.task(isolate=True, retry=Backoff(0), timeout=None)
async def leaves_alone(way: str) -> None:
    raise WAYS_OUT[way](way)


@app.task(isolate=True, retry=Backoff(0), timeout=None)
def leaves_plainly_alone(way: str) -> None:
    raise WAYS_OUT[way](way)


@app.task(isolate=True, retry=Backoff(0), timeout=None)
async def child_leaves(way: str) -> None:
    async def leave() -> None:
        raise WAYS_OUT[way](way)

    await asyncio.create_task(leave())


@app.task(isolate=True)
def leaves_its_number(where: str) -> None:
    Path(where).write_text(str(os.getpid()))


@app.task(isolate=True)
def speaks(ctx: Context, where: str | None = None) -> None:
    """Log a line, and write the pid to a file if one is given."""
    if where is not None:
        Path(where).write_text(str(os.getpid()))
    ctx.log.warning("last words")


@app.task
async def innocent(n: int) -> None: ...


@app.task
async def waits_for_a_file(path: str) -> None:
    while not Path(path).exists():  # noqa: ASYNC110, ASYNC240 - another process makes it
        await asyncio.sleep(0.05)


@app.task(isolate=True)
async def waits_alone(path: str) -> None:
    await waits_for_a_file(path)


@app.task(isolate=True, queue="apart")
async def waits_apart(path: str) -> None:
    await waits_for_a_file(path)


@app.task
async def ordinary(ctx: Context) -> None:
    async with ctx.transaction() as connection:
        await connection.execute("insert into seen values (%s, %s)", [os.getpid(), ctx.attempt])


@app.task
async def remembers(ctx: Context) -> None:
    await ctx.step("second", dict)
    ctx.progress(0.5, "half")


@app.task(isolate=True)
async def remembers_and_commits(ctx: Context) -> None:
    await ctx.step("first", dict)
    async with ctx.transaction() as connection:
        await connection.execute("select 1")


def adopt(other: Sereno) -> None:
    """Register these tasks in the application of a test."""
    for definition in app.registry:
        other.registry.add(definition)
