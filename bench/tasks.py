"""The benchmark's tasks and their arguments, which are as large as those of the other queues in `bench/peers`."""

import asyncio
import time
from dataclasses import dataclass

from bench.tally import WorkerCounter
from sereno import Sereno
from sereno.jobs.task_handle import Task

QUEUE = "default"
MONTH = "2026-11"
# With the argument names and the month about ninety bytes of JSON, like a small real job.
ACCOUNT = "account of a restaurant in the old town, no. {:08}"
# The same size, together with a time stamp.
MESSAGE = "a small message, about as long as the arguments of a real job"

# Duration of the simulated call, in seconds.
CALL = 0.01


@dataclass(frozen=True)
class Tasks:
    noop: Task[[str, str], None]
    noop_forgotten: Task[[str, str], None]
    stamped: Task[[int, str], None]
    call: Task[[int, str], None]
    answer: Task[[int], int]


def register(app: Sereno, counter: WorkerCounter | None = None) -> Tasks:
    """Register the tasks with an application. In a worker, `counter` counts their calls."""

    def count() -> None:
        if counter is not None:
            counter.count_up()

    @app.task(queue=QUEUE)
    async def noop(account: str, month: str) -> None:
        count()

    @app.task(queue=QUEUE, history=False)
    async def noop_forgotten(account: str, month: str) -> None:
        count()

    @app.task(queue=QUEUE)
    async def stamped(sent: int, message: str) -> None:
        if counter is not None:
            counter.add_sample(microseconds() - sent)
        count()

    @app.task(queue=QUEUE)
    async def call(sent: int, message: str) -> None:
        if counter is not None and sent:
            counter.add_sample(microseconds() - sent)
        count()
        await asyncio.sleep(CALL)

    @app.task(queue=QUEUE)
    async def answer(number: int) -> int:
        count()
        return number

    return Tasks(noop, noop_forgotten, stamped, call, answer)


def account(number: int) -> str:
    return ACCOUNT.format(number)


def microseconds() -> int:
    # The monotonic clock is one clock for all processes of a machine, so two readings can be subtracted.
    return time.monotonic_ns() // 1000
