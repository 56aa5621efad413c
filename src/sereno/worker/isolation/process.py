"""The process of isolated tasks: `python -m sereno.worker.isolation.process FD PARENT` runs jobs one by one.

With the extra argument `server` it runs no jobs, but forks processes that do.
"""

import asyncio
import ctypes
import os
import random
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any

import msgspec

from sereno.database.database import Database
from sereno.jobs.attempt import Ending, settlement
from sereno.jobs.retry import Backoff
from sereno.jobs.task import TaskDefinition
from sereno.settings import Settings
from sereno.worker.context import Context
from sereno.worker.event_loop import run_loop
from sereno.worker.isolation.fork_server import import_task_module, serve_forks
from sereno.worker.isolation.pool import LINE_LIMIT, Answer, Introduction, Order, environment
from sereno.worker.log_writer import LogWriter
from sereno.worker.running_call import RaisedError, caught

PROGRESS_EVERY = 1.0
_PR_SET_PDEATHSIG = 1


def main(descriptor: int, parent: int, *, is_server: bool = False) -> None:
    # The worker decides when this process ends; Ctrl-C in a terminal reaches the whole process group.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if sys.platform == "linux":
        # Without the worker, the outcome cannot be settled: die with it, even if the handler blocks our loop.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # The worker may have died before prctl; a job that it has already sent must not run then.
    if os.getppid() != parent:
        os._exit(0)
    if is_server:
        serve_forks(socket.socket(fileno=descriptor), main)
    else:
        run_loop(_serve(socket.socket(fileno=descriptor)))


async def _serve(connection: socket.socket) -> None:
    reader, writer = await asyncio.open_connection(sock=connection, limit=LINE_LIMIT)
    first = await reader.readline()
    if not first:
        # The worker closed the connection without sending a job.
        return
    introduction = msgspec.json.decode(first, type=Introduction)
    sys.path[:] = introduction.path
    settings = msgspec.convert(introduction.settings, Settings)
    os.environ |= environment(introduction.url, settings)
    database = Database(settings, lambda: introduction.url)
    async with LogWriter(introduction.url, settings):
        while line := await reader.readline():
            order = msgspec.json.decode(line, type=Order)
            response = await _attempt(order, database, lambda: writer.write(b"ready\n"))
            writer.write(msgspec.json.encode(response) + b"\n")
            await writer.drain()
    os._exit(0)


async def _attempt(order: Order, database: Database, send_ready: Callable[[], None]) -> Answer:
    job = order.job
    definition: TaskDefinition | None = None
    context = Context(job, order.session, database)
    ending: Ending
    try:
        definition = _find(order)
        # The handler's timeout starts here.
        send_ready()
        context = Context(job, order.session, database, keep_history=definition.history)
        ending = await _call(definition, context, order)
    except BaseException as error:  # noqa: BLE001 - every way out of a handler is an outcome
        if definition is None:
            send_ready()
        ending = error
    decision = settlement(
        ending,
        failures=job.failures,
        crashes=job.crashes,
        policy=definition.retry if definition else Backoff(),
        chance=random.Random(),  # noqa: S311 - jitter, not secrets
    )
    return Answer(
        outcome=decision.outcome,
        delay=decision.delay,
        until=decision.until,
        reason=decision.reason,
        error=decision.error,
        failed=decision.failed,
        throttle=decision.throttle,
        settled=context.settled,
    )


async def _call(definition: TaskDefinition, context: Context, order: Order) -> Ending:
    values = definition.arguments.decode(order.job.args)
    if definition.batch:
        values = ([values[0]],)
    watch = asyncio.ensure_future(_report_progress(context))
    try:
        if definition.is_async:
            result = await definition.arguments.call(definition.function, values, context)
        else:
            result = await asyncio.to_thread(caught, definition.arguments.call, definition.function, values, context)
    finally:
        watch.cancel()
    if type(result) is RaisedError:
        return result.error
    if definition.batch and result is not None:
        (result,) = result
    # Not isinstance: it reads `__class__` of the value, which may raise.
    return result if issubclass(type(result), BaseException) else None


async def _report_progress(context: Context) -> None:
    while True:
        await asyncio.sleep(PROGRESS_EVERY)
        await context.flush_progress()


def _find(order: Order) -> TaskDefinition:
    found: Any = import_task_module(order.module, order.main_file)
    for part in order.qualname.split("."):
        found = getattr(found, part)
    definition: TaskDefinition = found.definition
    return definition


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), is_server="server" in sys.argv[3:])
