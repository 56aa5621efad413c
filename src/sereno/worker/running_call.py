"""One running call of a handler, and how to stop it from outside."""

import asyncio
import contextvars
import ctypes
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Executor
from time import monotonic
from typing import Any, NamedTuple

from sereno.jobs.attempt import Ending
from sereno.jobs.job import ClaimedJob
from sereno.jobs.task import TaskDefinition
from sereno.worker.context import Context


class RaisedError(NamedTuple):
    """What a sync handler raised, as a value: futures refuse StopIteration, and SystemExit ends the event loop."""

    error: BaseException


def call_safely(function: Callable[..., Any], *args: Any) -> Any:
    """Return the result of the function, or RaisedError with whatever it raises."""
    try:
        return function(*args)
    except BaseException as error:  # noqa: BLE001 - every way out of a handler is an outcome
        return RaisedError(error)


class RunningCall:
    """One call of a handler, for one job or for a batch. `stopped`: the ending that was set from outside, if any."""

    __slots__ = (
        "_turn",
        "context",
        "deadline",
        "definition",
        "has_begun",
        "is_abandoned",
        "is_plain",
        "jobs",
        "started",
        "stopped",
        "task",
        "thread",
    )

    def __init__(self, definition: TaskDefinition, jobs: list[ClaimedJob], now: float) -> None:
        self.definition = definition
        self.jobs = jobs
        self.begin(now)
        self.context: Context | None = None
        self.task: asyncio.Task[None] | None = None
        # A sync handler. `thread` is None before its thread has started and after it has ended.
        self.is_plain = False
        self.thread: int | None = None
        self.stopped: Ending = None
        self.has_begun = False
        self.is_abandoned = False

    def begin(self, now: float | None = None) -> None:
        """Start the handler's timeout."""
        self.started = monotonic() if now is None else now
        timeout = self.definition.timeout
        self.deadline: float | None = None if timeout is None else self.started + timeout

    @property
    def is_settled(self) -> bool:
        """Whether the handler's own transaction has settled its jobs."""
        return self.context is not None and self.context.settled

    async def in_thread(self, threads: Executor, function: Callable[..., Any], *args: Any) -> Any:
        """Run a sync handler in a thread; return its result, or RaisedError.

        A thread cannot be cancelled, so this waits for it until the call is abandoned as stuck.
        """
        inherited = contextvars.copy_context()
        self.is_plain, self._turn = True, threading.Lock()

        def call() -> Any:
            with self._turn:
                if isinstance(self.stopped, TimeoutError):
                    raise self.stopped
                self.thread = threading.get_ident()
            try:
                return inherited.run(call_safely, function, *args)
            finally:
                with self._turn:
                    self.thread = None

        future = asyncio.get_running_loop().run_in_executor(threads, call)
        while True:
            try:
                return await asyncio.shield(future)
            except asyncio.CancelledError:
                # A timeout is raised inside the thread instead. Only a call that is abandoned or released leaves a
                # running thread behind.
                if future.cancelled() or self.is_abandoned or not isinstance(self.stopped, TimeoutError):
                    raise

    def interrupt(self) -> None:
        """Raise TimeoutError in the thread at its next bytecode. A thread that has not started checks `stopped`."""
        with self._turn:
            if self.thread is not None:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.thread), ctypes.py_object(TimeoutError))

    def stack(self) -> str:
        """Return the current stack of the thread or of the coroutine."""
        if self.thread is not None:
            frame = sys._current_frames().get(self.thread)  # noqa: SLF001 - the documented way to inspect a thread
            return "".join(traceback.format_stack(frame)) if frame else ""
        frames = [] if self.task is None else self.task.get_stack()
        return "".join(line for found in frames for line in traceback.format_stack(found, limit=1))
