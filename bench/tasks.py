"""The tasks that are run, and the arguments that they get: as large as those of the other queues in `bench/peers`."""

import asyncio
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from bench.tally import Place
from sereno import Sereno
from sereno.jobs.task_handle import Task

QUEUE = "default"
MONTH = "2026-11"
# With its name, its number and the month, about ninety bytes of JSON, as a small real job has.
ACCOUNT = "account of a restaurant in the old town, no. {:08}"
# The same, beside a time stamp.
MESSAGE = "a small message, about as long as the arguments of a real job"

# What a handler takes that calls somebody.
CALL = 0.01

Handler = Coroutine[Any, Any, None]


@dataclass(frozen=True)
class Tasks:
    noop: Task[[str, str], Handler]
    noop_forgotten: Task[[str, str], Handler]
    stamped: Task[[int, str], Handler]
    call: Task[[int, str], Handler]


def register(app: Sereno, place: Place | None = None) -> Tasks:
    """Put the tasks into an application. In a worker, `place` is where their calls are counted."""

    def seen() -> None:
        if place is not None:
            place.count_up()

    @app.task(queue=QUEUE)
    async def noop(account: str, month: str) -> None:
        seen()

    @app.task(queue=QUEUE, history=False)
    async def noop_forgotten(account: str, month: str) -> None:
        seen()

    @app.task(queue=QUEUE)
    async def stamped(sent: int, message: str) -> None:
        if place is not None:
            place.add_sample(microseconds() - sent)
        seen()

    @app.task(queue=QUEUE)
    async def call(sent: int, message: str) -> None:
        if place is not None and sent:
            place.add_sample(microseconds() - sent)
        seen()
        await asyncio.sleep(CALL)

    return Tasks(noop, noop_forgotten, stamped, call)


def account(number: int) -> str:
    return ACCOUNT.format(number)


def microseconds() -> int:
    # The monotonic clock is one clock for all processes of a machine, so two readings can be subtracted.
    return time.monotonic_ns() // 1000
