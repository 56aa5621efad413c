"""Runs attempts, from claimed to settled.

    decode the arguments ▶ call the function ▶ get its ending ▶ decide the settlement ▶ pass it to the settler

Async handlers run in the event loop, sync handlers in threads, isolated ones (and suspects: jobs whose process died
while they ran) in a separate process. The worker checks all deadlines with one timer, so a deadline costs nothing per
job.
"""

import asyncio
import contextvars
import logging
from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic
from typing import Any

from sereno.database.database import Database
from sereno.error_text import storable
from sereno.jobs.attempt import (
    CRASH_LIMIT,
    Cancel,
    CrashedAttempt,
    Ending,
    Outcome,
    ReleasedAttempt,
    Settlement,
)
from sereno.jobs.job import ClaimedJob
from sereno.jobs.task import Registry, TaskDefinition
from sereno.telemetry import tracing
from sereno.telemetry.log_events import emit
from sereno.telemetry.metrics import MetricTally
from sereno.worker.attempt_log import logs_successes
from sereno.worker.context import Context
from sereno.worker.emitted_chunks import EmittedChunks, store_emitted
from sereno.worker.endings import as_ending, endings_of, unfit
from sereno.worker.handler_threads import HandlerThreads, RaisedError
from sereno.worker.isolation.pool import IsolationPool, runs_alone
from sereno.worker.iteration import without_charge
from sereno.worker.middleware import around, with_span
from sereno.worker.outcomes import Outcomes, OutcomeWriter
from sereno.worker.release_wait import undecodable
from sereno.worker.resources import OpenResources
from sereno.worker.running_call import RunningCall, task_starter

# Seconds past its deadline after which a handler is abandoned, and the process is replaced.
STUCK_AFTER = 5.0
# Seconds that an isolated process may take to start and to import the task; then the task's own timeout begins.
ISOLATION_START = 60.0


class Executor:
    """Runs claimed jobs; `on_end` is called with the jobs of each call that has ended."""

    def __init__(
        self,
        database: Database,
        session: int,
        settler: OutcomeWriter,
        tally: MetricTally,
        on_end: Callable[[Sequence[ClaimedJob]], None],
        isolation: IsolationPool,
        threads: int,
        registry: Registry,
        resources: OpenResources | None = None,
    ) -> None:
        """`resources`: those of another executor, which closes them."""
        self._database = database
        self._registry = registry
        self._session = session
        self._settler = settler
        self._outcomes = Outcomes(session, settler, tally)
        self._add_success = self._outcomes.success_adder
        self._on_end = on_end
        self._isolation = isolation
        self._threads = HandlerThreads(threads)
        self.resources = resources or OpenResources(registry.resources.overrides)
        self._has_own_resources = resources is None
        # A job is often started by the end of another one, whose context variables it must not see.
        self._context_variables = contextvars.copy_context()
        self._create_task = task_starter(asyncio.get_running_loop())
        self.running: dict[int, RunningCall] = {}
        self.stuck = False
        self.ended_jobs = 0

    def start(self, definition: TaskDefinition, jobs: list[ClaimedJob]) -> None:
        """Start one call of a handler: one job, or the jobs of a batch."""
        now, timeout = monotonic(), definition.timeout
        running = RunningCall(definition, jobs, now, None if timeout is None else now + timeout)
        for job in jobs:
            self.running[job.id] = running
        running.tracing = tracing.of_attempt(jobs)
        is_usual = definition.is_usual and not (jobs[0].crashes or self._registry.middlewares or running.tracing)
        attempt = self._attempt_usual(running, jobs[0]) if is_usual else self._attempt(running)
        running.task = self._create_task(attempt, name=definition.name, context=self._context_variables.copy())

    async def _attempt_usual(self, running: RunningCall, job: ClaimedJob) -> None:
        """Do what `_attempt` does for one job of an async task, with fewer steps: most jobs are like that."""
        running.has_begun = True
        definition = running.definition
        ending = running.stopped
        if ending is not None or job.expired or job.unreadable is not None:
            self._end_usual(running, job, ending or unfit(job))
            return
        arguments = definition.arguments
        try:
            values = arguments.decode(job.args)
        except BaseException as error:  # noqa: BLE001 - a model's own validator may raise anything
            self._end_usual(running, job, await self._undecodable(job, error))
            return
        try:
            if arguments.context_name is not None:
                running.context = self._context(running, job)
            result = await arguments.call(definition.function, values, running.context)
        except asyncio.CancelledError as error:
            ending = running.stopped or error
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises is data for the policy
            ending = self._raised(running, error)
        else:
            stopped = running.stopped is not None and not running.is_settled
            ending = running.stopped if stopped else self._returned(definition, result)
        if not running.is_abandoned:
            self._end_usual(running, job, ending)

    def _end_usual(self, running: RunningCall, job: ClaimedJob, ending: Ending) -> None:
        """Do what `_end` does for one job, with fewer steps if it succeeded at its first attempt."""
        if ending is not None or running.context is not None or job.attempt > 1 or logs_successes():
            self._end(running, (ending,))
            return
        del self.running[job.id]
        self._add_success(running, job, monotonic())
        self.ended_jobs += 1
        self._on_end(running.jobs)

    async def _attempt(self, running: RunningCall) -> None:
        running.has_begun = True
        if running.stopped is not None:
            self._end(running, (running.stopped,) * len(running.jobs))
            return
        definition = running.definition
        try:
            if definition.batch and not runs_alone(definition, running.jobs[0]):
                endings = await self._batch(running)
            else:
                endings = (await self._single(running),)
        except BaseException as error:
            if _is_discarded(running, error):
                raise
            endings = (running.stopped or error,) * len(running.jobs)
        if not running.is_abandoned:
            self._end(running, endings)

    def _end(self, running: RunningCall, endings: Sequence[Ending]) -> None:
        ended = monotonic()
        for job, ending in zip(running.jobs, endings, strict=True):
            del self.running[job.id]
            self._outcomes.add(running, job, ending, ended)
        self.ended_jobs += len(running.jobs)
        self._on_end(running.jobs)

    async def _single(self, running: RunningCall) -> Ending:
        definition, job = running.definition, running.jobs[0]
        if job.expired or job.unreadable is not None:
            return unfit(job)
        if job.crashes >= CRASH_LIMIT:
            return Settlement("dead", reason=f"crash loop: its worker died while it ran alone, {job.crashes} times")
        try:
            values = definition.arguments.decode(job.args)
        except BaseException as error:  # noqa: BLE001 - a model's own validator may raise anything
            return await self._undecodable(job, error)
        try:
            if runs_alone(definition, job):
                return await self._run_alone(running, job)
            result = await self._call(running, values, job)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises is data for the policy
            return self._raised(running, error)
        if type(result) is RaisedError:
            return self._raised(running, result.error)
        if running.stopped is not None and not running.is_settled:
            return running.stopped
        return self._returned(definition, result)

    def _returned(self, definition: TaskDefinition, result: Any) -> Ending:
        """Return the ending of a call that returned: an outcome, or a success with its result if the task keeps it."""
        if result is None or definition.result is None or issubclass(type(result), BaseException):
            return as_ending(result)
        return definition.result.settlement(result, self._database.settings.max_result_bytes)

    async def _run_alone(self, running: RunningCall, job: ClaimedJob) -> Ending:
        """Run a job in a process of its own. If that is killed, only the database knows whether it had advanced."""
        running.deadline = running.started + ISOLATION_START
        try:
            ending = await self._isolation.run(running.definition, job, self._session, running.begin)
        except asyncio.CancelledError:
            if running.is_abandoned or not isinstance(running.stopped, TimeoutError):
                raise
            ending = running.stopped
        if isinstance(ending, CrashedAttempt | TimeoutError):
            return await without_charge(self._database, job, ending)
        return ending

    async def _undecodable(self, job: ClaimedJob, error: BaseException) -> Ending:
        return await undecodable(self._database, job, f"undecodable arguments: {storable(error)}")

    def _raised(self, running: RunningCall, error: BaseException) -> Ending:
        """Return the raised error as the ending, unless the call was stopped from outside."""
        if _is_discarded(running, error):
            raise error
        return error if issubclass(type(error), Outcome) else running.stopped or error

    async def _call(self, running: RunningCall, values: tuple[Any, ...], job: ClaimedJob) -> Any:
        if running.needs_context(self._registry.middlewares):
            running.context = self._context(running, job)
        return await self._with_middlewares(running, values)

    async def _with_middlewares(self, running: RunningCall, values: tuple[Any, ...]) -> Any:
        """Call the handler, inside of the middlewares if there are some."""
        definition = running.definition
        own = self._registry.middlewares_of(definition)
        middlewares = with_span(running.tracing, running.jobs, definition, own)
        if not middlewares or running.context is None:
            return await self._call_handler(running, values)
        async with around(middlewares, running.context):
            result = await self._call_handler(running, values)
            if type(result) is RaisedError:
                raise result.error
            return result

    async def _call_handler(self, running: RunningCall, values: tuple[Any, ...]) -> Any:
        definition = running.definition
        call = definition.arguments.call
        if definition.resources:
            call = partial(definition.arguments.call_with, resources=await self.resources.values(definition.resources))
        if definition.is_async:
            return await call(definition.function, values, running.context)
        return await running.in_thread(self._threads, call, definition.function, values, running.context)

    def _context(self, running: RunningCall, job: ClaimedJob, batch: Sequence[ClaimedJob] = ()) -> Context:
        return Context(
            job,
            self._session,
            self._database,
            keep_history=running.definition.history,
            result_type=running.definition.result,
            began=lambda: running.started - job.seen,
            throttler=self._settler.throttle,
            batch=batch,
            is_own_flow=running.is_own_flow,
        )

    async def _batch(self, running: RunningCall) -> Sequence[Ending]:
        """Run a batch. Jobs with undecodable arguments end as dead; the others are one call with one outcome each."""
        definition = running.definition
        endings: dict[int, Ending] = {}
        values: dict[int, Any] = {}
        for job in running.jobs:
            try:
                values[job.id] = definition.arguments.decode(job.args)[0]
            except BaseException as error:  # noqa: BLE001 - a model's own validator may raise anything
                endings[job.id] = await self._undecodable(job, error)
            if job.expired or job.unreadable is not None:
                endings[job.id] = unfit(job)
                values.pop(job.id, None)
        if values:
            endings.update(await self._batch_call(running, values))
        return [endings[job.id] for job in running.jobs]

    async def _batch_call(self, running: RunningCall, values: dict[int, Any]) -> dict[int, Ending]:
        definition = running.definition
        called = list(values)
        if running.needs_context(self._registry.middlewares):
            jobs = [job for job in running.jobs if job.id in values]
            context = running.context = self._context(running, jobs[0], jobs)
            if len({job.tenant for job in jobs}) > 1:
                # Log lines of a batch with several tenants must not be attributed to one of them.
                context.tenant = None
        try:
            result = await self._with_middlewares(running, (list(values.values()),))
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises is data for the policy
            return dict.fromkeys(called, self._raised(running, error))
        if type(result) is RaisedError:
            return dict.fromkeys(called, self._raised(running, result.error))
        if running.stopped is not None and not running.is_settled:
            return dict.fromkeys(called, running.stopped)
        return endings_of(definition, called, result)

    def earliest_deadline(self) -> float | None:
        """Return the seconds until the first deadline of a running job; None if no running job has a deadline."""
        deadlines = [running.deadline for running in list(self.running.values()) if running.deadline is not None]
        return min(deadlines) - monotonic() if deadlines else None

    def watch(self) -> None:
        """Stop calls that are past their deadline. The worker calls this a few times a second."""
        now = monotonic()
        for running in {id(r): r for r in self.running.values()}.values():
            if running.deadline is None or now < running.deadline:
                continue
            if running.stopped is None:
                self._stop(running, TimeoutError(f"ran longer than {running.definition.timeout:g} s"))
            elif not running.is_abandoned and now > running.deadline + STUCK_AFTER:
                self._abandon(running)

    def _stop(self, running: RunningCall, ending: Ending) -> None:
        """Stop a call from outside: a coroutine is cancelled; in a thread, TimeoutError is raised."""
        running.stopped = ending
        if not running.has_begun:
            # A task that is cancelled before its first step runs none of its code: its job would never end.
            return
        if not running.is_plain or isinstance(ending, ReleasedAttempt):
            assert running.task is not None
            running.task.cancel()
        elif isinstance(ending, TimeoutError):
            running.interrupt()

    def _abandon(self, running: RunningCall) -> None:
        emit(
            logging.ERROR,
            "job.stuck",
            f"job {running.jobs[0].id} ignores its deadline; this process will be replaced\n{running.stack()}",
            job_id=running.jobs[0].id,
            task=running.definition.name,
        )
        running.is_abandoned = True
        self.stuck = True
        self._end(running, [running.stopped] * len(running.jobs))
        assert running.task is not None
        running.task.cancel()

    def cancel(self, job_id: int) -> None:
        """Cancel a running job. A sync handler is not interrupted; it can check `ctx.cancel_requested`."""
        running = self.running.get(job_id)
        if running is None or running.stopped is not None:
            return
        if running.context is not None:
            running.context.cancel_requested = True
        if not running.is_plain:
            self._stop(running, Cancel("cancelled while running"))

    def link(self, job_id: int) -> bool:
        """Note that another job waits for a running one, so that its settlement continues it; False if it has ended."""
        running = self.running.get(job_id)
        for job in running.jobs if running is not None else ():
            if job.id == job_id and job.link is None:
                job.link = 0
        return running is not None

    def request_stop(self) -> None:
        """Let iterations end at their next commit: another worker continues them."""
        for running in self.running.values():
            if running.context is not None:
                running.context.stop_requested = True

    def release_all(self, reason: str) -> None:
        """Stop every handler and release every job; the attempt does not count as a failure."""
        for running in {id(r): r for r in self.running.values()}.values():
            if running.stopped is None:
                self._stop(running, ReleasedAttempt(reason))

    async def ended(self, timeout: float) -> None:
        """Wait until every call has ended, at most `timeout` seconds."""
        if calls := {running.task for running in self.running.values() if running.task is not None}:
            await asyncio.wait(calls, timeout=timeout)

    async def flush_progress(self) -> bool:
        """Write the newest progress and the chunks of running jobs; return whether there were chunks."""
        emitted: list[EmittedChunks] = []
        for running in list(self.running.values()):
            if running.context is not None:
                await running.context.flush_progress()
                if running.context.emitted is not None:
                    emitted.append(running.context.emitted)
        return bool(emitted) and await store_emitted(self._database, self._session, emitted)

    def count_ended(self) -> None:
        """Count the attempts that have ended in the tally."""
        self._outcomes.count()

    async def close(self) -> None:
        self._threads.close()
        if self._has_own_resources:
            await self.resources.close()


def _is_discarded(running: RunningCall, error: BaseException) -> bool:
    """Return whether Python discards our coroutine together with its event loop, so that nothing can be settled.

    A handler may also raise GeneratorExit itself; then our task is the current one.
    """
    if type(error) is not GeneratorExit or running.task is None:
        return False
    try:
        return asyncio.current_task() is not running.task
    except RuntimeError:
        return True
