"""One call of a handler while it runs, and what can be done to it from outside."""

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
    """What a plain function raised, as a value: futures refuse StopIteration, the event loop ends on SystemExit."""

    error: BaseException


def caught(function: Callable[..., Any], *args: Any) -> Any:
    """Return what the function returns, or Raised, whatever it raises."""
    try:
        return function(*args)
    except BaseException as error:  # noqa: BLE001 - every way out of a handler is an outcome
        return RaisedError(error)


class RunningCall:
    """One job, or the jobs of one batch. `stopped` is the ending that somebody outside has chosen for it."""

    __slots__ = (
        "_turn",
        "context",
        "deadline",
        "definition",
        "given_up",
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
        # A plain function: its thread may not have begun yet, or may just have ended.
        self.is_plain = False
        self.thread: int | None = None
        self.stopped: Ending = None
        self.given_up = False

    def begin(self, now: float | None = None) -> None:
        """The handler's time runs from here."""
        self.started = monotonic() if now is None else now
        timeout = self.definition.timeout
        self.deadline: float | None = None if timeout is None else self.started + timeout

    @property
    def is_settled(self) -> bool:
        """Whether the handler's own transaction has settled its jobs."""
        return self.context is not None and self.context.settled

    async def in_thread(self, threads: Executor, function: Callable[..., Any], *args: Any) -> Any:
        """A plain function in a thread: what it returns, or Raised.

        It cannot be cancelled, so this waits for it, until it is given up as stuck.
        """
        inherited = contextvars.copy_context()
        self.is_plain, self._turn = True, threading.Lock()

        def call() -> Any:
            with self._turn:
                if isinstance(self.stopped, TimeoutError):
                    raise self.stopped
                self.thread = threading.get_ident()
            try:
                return inherited.run(caught, function, *args)
            finally:
                with self._turn:
                    self.thread = None

        future = asyncio.get_running_loop().run_in_executor(threads, call)
        while True:
            try:
                return await asyncio.shield(future)
            except asyncio.CancelledError:
                # A timeout is raised inside the thread instead; only who gives up, or gives back, leaves it behind.
                if future.cancelled() or self.given_up or not isinstance(self.stopped, TimeoutError):
                    raise

    def interrupt(self) -> None:
        """Raise TimeoutError inside the thread, at its next step of Python. One that has not begun looks by itself."""
        with self._turn:
            if self.thread is not None:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.thread), ctypes.py_object(TimeoutError))

    def stack(self) -> str:
        """Where it is: its thread, or its coroutine."""
        if self.thread is not None:
            frame = sys._current_frames().get(self.thread)  # noqa: SLF001 - the documented way to see a thread
            return "".join(traceback.format_stack(frame)) if frame else ""
        frames = [] if self.task is None else self.task.get_stack()
        return "".join(line for found in frames for line in traceback.format_stack(found, limit=1))
