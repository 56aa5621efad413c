"""One running call of a handler, and how to stop it from outside."""

import asyncio
import contextvars
import ctypes
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic
from typing import Any

import msgspec

from sereno.jobs.attempt import Ending
from sereno.jobs.hidden_values import HiddenValues
from sereno.jobs.job import ClaimedJob
from sereno.jobs.task import TaskDefinition
from sereno.telemetry.tracing import AttemptWatcher
from sereno.worker.context import Context
from sereno.worker.handler_threads import HandlerThreads, call_safely
from sereno.worker.steps import is_current_task


def task_starter(loop: asyncio.AbstractEventLoop) -> "Callable[..., asyncio.Task[None]]":
    """Return the function that creates tasks, as `loop.create_task` does.

    From Python 3.12 on they run at once, until they wait for the first time. Most handlers of short jobs never wait:
    then the loop has nothing to do for them.
    """
    if loop.get_task_factory() is not None:
        # The application that runs this worker in its own loop wants to create the tasks.
        return loop.create_task
    if sys.version_info >= (3, 12):
        return partial(asyncio.Task, loop=loop, eager_start=True)
    return partial(asyncio.Task, loop=loop)


class RunningCall(msgspec.Struct, eq=False):
    """One call of a handler, for one job or for a batch. `stopped`: the ending that was set from outside, if any."""

    definition: TaskDefinition
    jobs: list[ClaimedJob]
    started: float
    deadline: float | None = None
    context: Context | None = None
    task: "asyncio.Task[None] | None" = None
    # A sync handler. `thread` is None before its thread has started and after it has ended.
    is_plain: bool = False
    thread: int | None = None
    stopped: Ending = None
    has_begun: bool = False
    is_abandoned: bool = False
    # Set after a failure with encrypted arguments.
    hidden: HiddenValues | None = None
    # What makes the span of this call, and reports its failure.
    watchers: Sequence[AttemptWatcher] = ()
    _turn: Any = None

    def begin(self) -> None:
        """Start the handler's timeout."""
        self.started = monotonic()
        timeout = self.definition.timeout
        self.deadline = None if timeout is None else self.started + timeout

    @property
    def is_settled(self) -> bool:
        """Whether the handler's own transaction has settled its jobs."""
        return self.context is not None and self.context.settled

    def needs_context(self, middlewares: Sequence[Callable[[Any], Any]]) -> bool:
        return bool(self.definition.arguments.context_name or self.watchers or middlewares)

    def is_own_flow(self) -> bool:
        """Return whether the caller is the handler's own task or thread, and not one that the handler started."""
        if self.is_plain:
            return threading.get_ident() == self.thread
        # A task that starts at once is not known here before it waits for the first time.
        return self.task is None or is_current_task(self.task)

    async def in_thread(self, threads: HandlerThreads, function: Callable[..., Any], *args: Any) -> Any:
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

        started = threads.start(call)
        while True:
            try:
                return await started.result()
            except asyncio.CancelledError:
                # A timeout is raised inside the thread instead. Only a call that is abandoned or released leaves a
                # running thread behind.
                if started.is_dropped or self.is_abandoned or not isinstance(self.stopped, TimeoutError):
                    started.drop()
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
