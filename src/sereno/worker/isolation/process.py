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
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec

from sereno.database.database import Database
from sereno.errors import DatabaseUnavailable
from sereno.jobs.attempt import Ending, settlement
from sereno.jobs.retry import Backoff
from sereno.jobs.task import TaskDefinition
from sereno.jobs.task_handle import Task
from sereno.settings import Settings
from sereno.telemetry import tracing
from sereno.telemetry.log_events import configure
from sereno.worker.context import Context
from sereno.worker.event_loop import run_loop
from sereno.worker.handler_threads import RaisedError, call_safely
from sereno.worker.isolation.pool import LINE_LIMIT, CallReply, JobRequest, ProcessSettings, environment
from sereno.worker.isolation.preload import import_and_serve, import_task_module
from sereno.worker.log_writer import LogWriter
from sereno.worker.middleware import around, with_span
from sereno.worker.resources import ISOLATED_CLOSE_TIMEOUT, OpenResources
from sereno.worker.steps import is_current_task

PROGRESS_EVERY, CHUNKS_EVERY = 1.0, 0.25
_PR_SET_PDEATHSIG = 1


def main(descriptor: int, parent: int, *, is_server: bool = False) -> None:
    # The worker decides when this process ends; Ctrl-C in a terminal reaches the whole process group.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if sys.platform == "linux":
        # Without the worker, the outcome cannot be settled: die with the worker, even if the handler blocks the loop.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # The worker may have died before prctl; a job that it has already sent must not run then.
    if os.getppid() != parent:
        os._exit(0)
    if is_server:
        forked = import_and_serve(socket.socket(fileno=descriptor))
        if forked is not None:
            main(forked.descriptors[0], forked.server)
    else:
        run_loop(_serve(socket.socket(fileno=descriptor)))


async def _serve(connection: socket.socket) -> None:
    reader, writer = await asyncio.open_connection(sock=connection, limit=LINE_LIMIT)
    first = await reader.readline()
    if not first:
        # The worker closed the connection without sending a job.
        return
    process_settings = msgspec.json.decode(first, type=ProcessSettings)
    sys.path[:] = process_settings.path
    settings = msgspec.convert(process_settings.settings, Settings)
    os.environ |= environment(process_settings.url, settings)
    database = Database(settings, lambda: process_settings.url)
    resources = OpenResources({})

    def begin() -> None:
        # After the import of the application, whose own handlers stay.
        if process_settings.writes_lines:
            configure(settings.log_level, settings.log_format)
        writer.write(b"ready\n")

    async with LogWriter(process_settings.url, settings):
        # A worker that ended before it had read the reply resets the connection. Errors of handlers are outcomes.
        with suppress(ConnectionError):
            while line := await reader.readline():
                request = msgspec.json.decode(line, type=JobRequest)
                response = await _attempt(request, database, resources, begin)
                writer.write(msgspec.json.encode(response) + b"\n")
                await writer.drain()
        await resources.close(ISOLATED_CLOSE_TIMEOUT)
    tracing.flush()
    os._exit(0)


async def _attempt(
    request: JobRequest, database: Database, resources: OpenResources, send_ready: Callable[[], None]
) -> CallReply:
    job = request.job
    definition: TaskDefinition | None = None
    context = Context(job, request.session, database)
    ending: Ending = None
    try:
        task = _find(request)
        definition = task.definition
        # The handler's timeout starts here.
        send_ready()
        context = Context(
            job, request.session, database, keep_history=definition.history, result_type=definition.result
        )
        ending = await _with_middlewares(task, context, request, resources)
        if ending is None:
            ending = context.success
    except BaseException as error:  # noqa: BLE001 - every way out of a handler is an outcome
        if definition is None:
            send_ready()
        ending = error
    decision = settlement(
        ending,
        failures=job.failures,
        crashes=job.crashes,
        policy=context.retry or (definition.retry if definition else Backoff()),
        chance=random.Random(),  # noqa: S311 - jitter, not secrets
    )
    return CallReply(
        outcome=decision.outcome,
        delay=decision.delay,
        until=decision.until,
        reason=decision.reason,
        error=decision.error,
        failed=decision.failed,
        throttle=decision.throttle,
        signal=decision.signal,
        settled=context.settled,
        result=None if decision.result is None else decision.result.decode(),
        wait_for=decision.wait_for,
        chunks=[] if context.settled else list(context.unstored_chunks()),
    )


async def _with_middlewares(
    task: Task[..., Any], context: Context, request: JobRequest, resources: OpenResources
) -> Ending:
    """Call the handler, inside of the middlewares if there are some: they see what it raises."""
    jobs = [request.job]
    middlewares = with_span(tracing.of_attempt(jobs), jobs, task.definition, task.middlewares)
    if not middlewares:
        result = await _call(task.definition, context, request, resources)
        # Not isinstance, here and below: it reads `__class__` of the value, which may raise.
        return result.error if type(result) is RaisedError else result
    async with around(middlewares, context):
        result = await _call(task.definition, context, request, resources)
        if type(result) is RaisedError:
            raise result.error
        return result
    # A middleware has suppressed the error.
    return None


async def _call(
    definition: TaskDefinition, context: Context, request: JobRequest, resources: OpenResources
) -> Ending | RaisedError:
    values = definition.arguments.decode(request.job.args)
    injected = await resources.values(definition.resources)
    if definition.batch:
        values = ([values[0]],)
    own_task, own_threads = asyncio.current_task(), set[int]()

    def call_in_thread() -> Any:
        own_threads.add(threading.get_ident())
        return call_safely(definition.arguments.call_with, definition.function, values, context, injected)

    def is_own_flow() -> bool:
        if not definition.is_async:
            return threading.get_ident() in own_threads
        return is_current_task(own_task)

    context.is_own_flow = is_own_flow
    watch = asyncio.ensure_future(_report_progress(context))
    try:
        if definition.is_async:
            result = await definition.arguments.call_with(definition.function, values, context, injected)
        else:
            result = await asyncio.to_thread(call_in_thread)
    finally:
        watch.cancel()
    if type(result) is RaisedError:
        return result
    if definition.batch and result is not None:
        (result,) = result
    if result is None or issubclass(type(result), BaseException):
        return result  # type: ignore[no-any-return]  # None, or an exception
    return None if definition.result is None else definition.result.settlement(result, context.max_result_bytes)


async def _report_progress(context: Context) -> None:
    while True:
        await asyncio.sleep(PROGRESS_EVERY if context.emitted is None else CHUNKS_EVERY)
        # What cannot be written during an outage is written afterwards.
        with suppress(DatabaseUnavailable):
            await context.flush_progress()
            await context.flush_chunks()


def _find(request: JobRequest) -> Task[..., Any]:
    found: Any = import_task_module(request.module, request.main_file)
    for part in request.qualname.split("."):
        found = getattr(found, part)
    task: Task[..., Any] = found
    return task


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), is_server="server" in sys.argv[3:])
