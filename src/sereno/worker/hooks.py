"""`@app.on("job.dead")`: functions of the application that are called after an attempt's settlement is committed.

They never delay or fail a settlement: events wait in a bounded queue, and one loop calls the functions, one after
another. They are called at most once: a process that is killed calls none for what it has settled.
"""

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from sereno.error_text import storable
from sereno.errors import ConfigurationError
from sereno.jobs.job import ClaimedJob
from sereno.jobs.settlement import SettleResult
from sereno.jobs.task import OWN_TASKS
from sereno.telemetry.log_events import emit
from sereno.telemetry.service import Service
from sereno.telemetry.tracing import trace_id
from sereno.worker.handler_threads import RaisedError, call_safely

EventName = Literal["job.succeeded", "job.failed", "job.dead", "job.cancelled"]
EVENT_NAMES: tuple[str, ...] = get_args(EventName)
# Outcomes of attempts that are events. Released and snoozed attempts are none: nothing has failed or ended.
_NAMES: Mapping[str, EventName] = {
    "succeeded": "job.succeeded",
    "retry": "job.failed",
    "crash": "job.failed",
    "dead": "job.dead",
    "cancelled": "job.cancelled",
}
# Events that wait at most; more are dropped.
MOST_WAITING = 1000
# Seconds that one call may take, and seconds that the calls that wait may take when the worker stops.
CALL_TIMEOUT = 10.0
DRAIN_TIMEOUT = 5.0


@dataclass(frozen=True, slots=True)
class JobEvent:
    """What a hook gets: one attempt whose outcome is stored. `reason` and the error are None if there are none.

    `schedule_id`: of the schedule that created the job, if one did.
    """

    name: EventName
    job_id: int
    task: str
    queue: str
    tenant: str | None
    attempt: int
    trace: str | None = None
    reason: str | None = None
    error_type: str | None = None
    error_message: str | None = None
    schedule_id: int | None = None


Hook: TypeAlias = Callable[[JobEvent], Any]
# Hooks by the name of their event, in the order of their declaration.
Hooks: TypeAlias = Mapping[str, Sequence[Hook]]


def check_hook(function: Hook, names: Collection[str]) -> None:
    """Raise ConfigurationError unless all events exist and the function takes one argument."""
    unknown = sorted(set(names) - set(EVENT_NAMES))
    if unknown or not names:
        raise ConfigurationError(
            f"@app.on: {f'there is no event {unknown[0]}' if unknown else 'name an event'}; "
            f"known are: {', '.join(EVENT_NAMES)}"
        )
    try:
        inspect.signature(function).bind(object())
    except TypeError:
        name = getattr(function, "__name__", repr(function))
        raise ConfigurationError(f"@app.on: {name} must take one argument, the JobEvent") from None


class HookCaller(Service):
    """Calls the hooks of one worker. Attempts end, are settled, and then their events are added."""

    def __init__(self, hooks: Hooks) -> None:
        super().__init__("hooks")
        self._hooks = hooks
        # Attempts that have ended and whose settlement is not confirmed yet.
        self._ended: dict[tuple[int, int], ClaimedJob] = {}
        self._waiting: deque[JobEvent] = deque()
        self._dropped = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sereno hooks")

    @property
    def wants_successes(self) -> bool:
        return "job.succeeded" in self._hooks

    def ended(self, job: ClaimedJob) -> None:
        """Remember an attempt until it is settled. sereno's internal tasks have no hooks."""
        if not job.task.startswith(OWN_TASKS):
            self._ended[job.id, job.attempt] = job

    def hand_over(self, job_id: int, attempt: int, other: "HookCaller | None") -> None:
        """Let the hooks of the session that settles an attempt remember it; None if its outcome is dropped."""
        job = self._ended.pop((job_id, attempt), None)
        if job is not None and other is not None:
            other.ended(job)

    def settled(self, items: Sequence[SettleResult], fenced: Collection[int]) -> None:
        """Add the events of settlements that are committed; those of `fenced` jobs were refused."""
        for item in items:
            job = self._ended.pop((item.id, item.attempt), None)
            name = "job.cancelled" if item.was_cancelled else _NAMES.get(item.settlement.outcome)
            if job is None or name is None or item.id in fenced or name not in self._hooks:
                continue
            error = item.settlement.error
            self._add(
                job,
                name,
                reason=item.settlement.reason,
                error_type=None if error is None else error.kind,
                error_message=None if error is None else error.message,
            )

    def succeeded(self, job: ClaimedJob) -> None:
        """Add the event of a job that its handler's own transaction has settled."""
        if self._ended.pop((job.id, job.attempt), None) is not None and self.wants_successes:
            self._add(job, "job.succeeded")

    def _add(self, job: ClaimedJob, name: EventName, **details: str | None) -> None:
        if len(self._waiting) >= MOST_WAITING:
            self._dropped += 1
            return
        trace, schedule = trace_id(job.trace), None if job.fire is None else job.fire.schedule_id
        self._waiting.append(
            JobEvent(name, job.id, job.task, job.queue, job.tenant, job.attempt, trace, schedule_id=schedule, **details)
        )
        self._idle.clear()
        self.wake()

    async def run_once(self) -> float:
        self._report_dropped("hooks are slower than jobs end")
        while self._waiting:
            event = self._waiting.popleft()
            for function in self._hooks[event.name]:
                await self._call(function, event)
        self._idle.set()
        return 60.0

    async def stop(self) -> None:
        """Call the hooks of all events that wait, for a few seconds at most."""
        if self._loop_task is None:
            return
        try:
            async with asyncio.timeout(DRAIN_TIMEOUT):
                await self._idle.wait()
        except TimeoutError:
            self._dropped += len(self._waiting)
            self._waiting.clear()
        await super().stop()
        self._report_dropped("the worker stopped before they were called")
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _call(self, function: Hook, event: JobEvent) -> None:
        task = asyncio.current_task()
        try:
            async with asyncio.timeout(CALL_TIMEOUT):
                if inspect.iscoroutinefunction(function):
                    await function(event)
                    return
                loop = asyncio.get_running_loop()
                result = await loop.run_in_executor(self._threads, call_safely, function, event)
                if inspect.isawaitable(result):
                    # An object with an async `__call__`, or a partial of an async function.
                    await result
            if type(result) is RaisedError:
                _report(function, event, result.error)
        except BaseException as error:
            # A hook may raise CancelledError itself; then this task was not cancelled.
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise
            _report(function, event, error)

    def _report_dropped(self, why: str) -> None:
        if self._dropped:
            emit(logging.WARNING, "hook.dropped", f"hooks of {self._dropped} events are not called: {why}")
            self._dropped = 0


def _report(function: Hook, event: JobEvent, error: BaseException) -> None:
    name = getattr(function, "__name__", repr(function))
    emit(
        logging.ERROR,
        "hook.failed",
        f"hook {name} failed for {event.name} of job {event.job_id}: {type(error).__name__}: {storable(error)}",
        error=error,
        job_id=event.job_id,
        task=event.task,
        attempt=event.attempt,
    )
