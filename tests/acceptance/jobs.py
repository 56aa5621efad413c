"""The application that real worker processes run in these tests. Handlers write to a log of their own."""

import asyncio
import ctypes
import os
import signal
import threading
import time
from pathlib import Path

from sereno import Backoff, Context, Sereno

app = Sereno()
QUICK = Backoff(3, delays=["200ms"], jitter=0)
if "TEST_THREAD" in os.environ:
    threading.Thread(target=threading.Event().wait, daemon=True).start()


def note(*words: object) -> None:
    """Append one line in one write, so that lines of several processes do not mix."""
    line = " ".join(map(str, words)) + "\n"
    descriptor = os.open(os.environ["TEST_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.write(descriptor, line.encode())
    os.close(descriptor)


@app.task(retry=QUICK)
async def quick(ctx: Context, n: int) -> None:
    note("quick", n, ctx.attempt)


@app.task(retry=QUICK)
async def slow(ctx: Context, n: int) -> None:
    note("start", n, ctx.attempt, os.getpid())
    go = Path(os.environ["TEST_LOG"] + ".go")
    while not go.exists():  # noqa: ASYNC110, ASYNC240 - another process creates the file
        await asyncio.sleep(0.01)
    note("end", n, ctx.attempt, os.getpid())


@app.task(retry=Backoff(0))
async def child_exits(kinds: list[str], awaits: bool) -> None:
    async def exit_with(kind: str) -> None:
        raise {"exit": SystemExit, "interrupt": KeyboardInterrupt}[kind](kind)

    children = [asyncio.create_task(exit_with(kind)) for kind in kinds]
    await asyncio.wait(children)
    if awaits:
        await children[0]


@app.task(retry=QUICK, timeout="1s")
async def blocks_the_loop(ctx: Context) -> None:
    note("blocking", ctx.attempt, os.getpid())
    if ctx.attempt == 1:
        time.sleep(600)  # noqa: ASYNC251 - the fault under test


@app.task(retry=QUICK, timeout="1s")
async def holds_the_interpreter(ctx: Context) -> None:
    note("holding", ctx.attempt, os.getpid())
    if ctx.attempt == 1:
        # PyDLL keeps the interpreter lock during the call.
        ctypes.PyDLL(None).sleep(600)


@app.task(timeout="500ms", retry=QUICK)
def ignores_its_deadline(ctx: Context) -> None:
    note("thread", ctx.attempt, os.getpid())
    while ctx.attempt == 1:
        try:
            time.sleep(0.01)
        except TimeoutError:
            note("ignored")


@app.task(retry=QUICK)
async def ignores_cancel(ctx: Context) -> None:
    note("stubborn", ctx.attempt)
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            note("cancelled")


@app.task(retry=Backoff(5, delays=["200ms"], jitter=0))
async def poison(ctx: Context) -> None:
    note("poison", ctx.attempt, os.getpid())
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(retry=QUICK, queue="work")
async def counted(ctx: Context, n: int) -> None:
    """The effect is in the transaction that settles the job, so it happens exactly once."""
    async with ctx.transaction() as connection:
        await connection.execute("insert into effects (n) values (%s)", [n])


@app.task(batch=10, retry=QUICK)
async def poison_in_a_batch(items: list[int]) -> None:
    note("batch", len(items), os.getpid())
    if 13 in items:
        os.kill(os.getpid(), signal.SIGKILL)


@app.task(timeout="500ms", retry=QUICK)
async def swallows_its_timeout(ctx: Context) -> None:
    note("swallowing", ctx.attempt)
    while ctx.attempt == 1:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            note("swallowed")
