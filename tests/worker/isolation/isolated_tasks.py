"""Tasks that another process can import."""

import asyncio
import os
import signal
import time
from pathlib import Path

from sereno import Backoff, Context, Sereno

app = Sereno("postgresql://unused")


@app.task(isolate=True)
async def in_own_process(ctx: Context, text: str) -> None:
    print("a handler may print", text)  # noqa: T201 - that is the point
    async with ctx.transaction() as connection:
        await connection.execute("insert into seen values (%s, %s)", [os.getpid(), ctx.attempt])


# An application that reads its database URL from the environment, as most do.
shop = Sereno()


@shop.task
async def follow(parent: int) -> None: ...


@app.task(isolate=True)
async def enqueues_another(ctx: Context) -> None:
    await follow.aenqueue(ctx.job_id)


@app.task(isolate=True)
def gives_up(ctx: Context) -> None:
    ctx.retry = Backoff(0)
    raise ValueError("no luck")


@app.task(isolate=True, timeout="500ms", retry=Backoff(0))
def never_ends() -> None:
    while True:
        time.sleep(1)


@app.task(isolate=True, retry=Backoff(0, first="1m"))
def kills_its_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Panic(BaseException):
    """Like pyo3_runtime.PanicException, which a panic in a Rust extension raises."""


EXITS: dict[str, type[BaseException]] = {
    "panic": Panic,
    "exit": SystemExit,
    "interrupt": KeyboardInterrupt,
    "generator": GeneratorExit,
    "stop": StopIteration,
    "async stop": StopAsyncIteration,
    "cancelled": asyncio.CancelledError,
}


@app.task(isolate=True, retry=Backoff(0), timeout=None)
async def raises_in_a_coroutine(name: str) -> None:
    raise EXITS[name](name)


@app.task(isolate=True, retry=Backoff(0), timeout=None)
def raises_in_a_thread(name: str) -> None:
    raise EXITS[name](name)


@app.task(isolate=True, retry=Backoff(0), timeout=None)
async def child_exits(name: str) -> None:
    async def fail() -> None:
        raise EXITS[name](name)

    await asyncio.create_task(fail())


@app.task(isolate=True)
def writes_its_pid(path: str) -> None:
    Path(path).write_text(str(os.getpid()))


@app.task(isolate=True)
def logs_a_line(ctx: Context, path: str | None = None) -> None:
    """Log a line, and write the pid to a file if one is given."""
    if path is not None:
        Path(path).write_text(str(os.getpid()))
    ctx.log.warning("last line")


@app.task
async def innocent(n: int) -> None: ...


@app.task
async def waits_for_a_file(path: str) -> None:
    while not Path(path).exists():  # noqa: ASYNC110, ASYNC240 - another process creates it
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
async def writes_a_step(ctx: Context) -> None:
    await ctx.step("second", dict)
    ctx.progress(0.5, "half")


@app.task(isolate=True)
def emits(ctx: Context) -> None:
    for number in range(3):
        ctx.emit(number)


@app.task(isolate=True)
async def writes_a_step_and_commits(ctx: Context) -> None:
    await ctx.step("first", dict)
    async with ctx.transaction() as connection:
        await connection.execute("select 1")


def adopt(other: Sereno) -> None:
    """Register these tasks in the application of a test."""
    for definition in app.registry:
        other.registry.add(definition)
