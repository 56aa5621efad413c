"""The tasks of `handlers` and `features`: one for each kind of handler and for each operation of the context.

They are at the top level of a module, because an isolated process imports them. The environment variable `BENCH_TALLY`
names the file with the counters; a process that runs none of these jobs needs none.
"""

import os
import threading
from pathlib import Path

from bench.tally import Tally, WorkerCounter
from bench.tasks import QUEUE, microseconds
from bench.traced import set_up
from sereno import Context, Retry, Sereno

TALLY = "BENCH_TALLY"
BATCH = 100

set_up()
# The address comes from SERENO_DATABASE_URL, or from an override before the first use.
app = Sereno()


class _ProcessCounter:
    """The counter of this process, which joins the tally at its first call. Safe in threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._joined: WorkerCounter | None = None

    def count(self, jobs: int = 1) -> None:
        with self._lock:
            self._counter().count_up(jobs)

    def add_moment(self) -> None:
        """Add the time by the monotonic clock as a sample."""
        with self._lock:
            self._counter().add_sample(microseconds())

    def _counter(self) -> WorkerCounter:
        if self._joined is None:
            self._joined = Tally(Path(os.environ[TALLY])).join()
        return self._joined


_calls = _ProcessCounter()


@app.task(queue=QUEUE)
async def plain(account: str, month: str) -> None:
    _calls.count()


@app.task(queue=QUEUE, history=False)
async def forgotten(account: str, month: str) -> None:
    _calls.count()


@app.task(queue=QUEUE)
def threaded(account: str, month: str) -> None:
    _calls.count()


@app.task(queue=QUEUE, isolate=True)
async def isolated(account: str, month: str) -> None:
    _calls.count()


@app.task(queue=QUEUE, batch=BATCH)
async def batched(accounts: list[str]) -> None:
    _calls.count(len(accounts))


@app.task(queue=QUEUE)
async def with_context(ctx: Context, account: str, month: str) -> None:
    _calls.count()


@app.task(queue=QUEUE)
async def logging(ctx: Context, account: str, month: str) -> None:
    # By default the central log stores warnings and errors.
    ctx.log.warning("the account has no turnover in this month")
    _calls.count()


@app.task(queue=QUEUE)
async def reporting(ctx: Context, account: str, month: str) -> None:
    ctx.progress(0.5, "half of the invoices")
    _calls.count()


@app.task(queue=QUEUE)
async def in_transaction(ctx: Context, account: str, month: str) -> None:
    async with ctx.transaction():
        _calls.count()


@app.task(queue=QUEUE)
async def in_steps(ctx: Context, account: str, month: str) -> None:
    await ctx.step("fetch", _fetch)
    _calls.count()


def _fetch() -> int:
    return 1


@app.task(queue=QUEUE)
async def retried(ctx: Context, account: str, month: str) -> None:
    _calls.count()
    if ctx.attempt == 1:
        raise Retry("the provider is busy", after=0)


@app.task(queue=QUEUE)
async def first(account: str) -> None:
    _calls.add_moment()
    _calls.count()
