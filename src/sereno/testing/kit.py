"""The test kit for applications: a schema of its own, a clock that can be moved, real workers, and assertions.

Nothing is mocked: jobs are rows in PostgreSQL, and a worker runs them.
"""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from sereno.app import Sereno
from sereno.duration import Duration, seconds
from sereno.jobs.encrypted_arguments import EncryptedArguments
from sereno.jobs.handle import Job, ids_of
from sereno.jobs.resource import Resource
from sereno.jobs.signals import NEVER
from sereno.jobs.task_handle import Task
from sereno.testing import test_support
from sereno.testing.process import POLL_INTERVAL, TIMEOUT, WorkerProcess, wait_for
from sereno.testing.signal_assertions import SignalAssertions
from sereno.testing.test_support import DeliveryState, JobState

T = TypeVar("T")

# States of a delivery that the provider accepted.
ARRIVED = ("sent", "delivered", "read")


@dataclass(frozen=True, slots=True)
class DrainResult:
    """The jobs that ended while draining; jobs that are retried later are not included."""

    jobs: Sequence[JobState]

    @property
    def failed(self) -> list[JobState]:
        return [job for job in self.jobs if job.state == "dead"]


class Kit(SignalAssertions):
    """One application under test. Created by the fixture `sereno_kit`."""

    def __init__(self, app: Sereno) -> None:
        self.app = app

    @contextmanager
    def override(self, resource: Resource[Any], value: Any) -> Iterator[None]:
        """Give handlers this value instead of opening the resource. Not in isolated processes."""
        overrides = self.app.registry.resources.overrides
        before = dict(overrides)
        overrides[resource.name] = value
        try:
            yield
        finally:
            overrides.clear()
            overrides.update(before)

    # Time

    def travel(self, by: Duration) -> datetime:
        """Move the clock of this schema forward, and return its new time. Live workers keep their leases."""
        self.app.database.run(test_support.travel(seconds(by)))
        return self.now()

    def travel_to(self, moment: datetime) -> datetime:
        """Move the clock forward to a time."""
        ahead = (moment - self.now()).total_seconds()
        if ahead < 0:
            raise ValueError(f"{moment.isoformat()} is past: the clock of the schema is at {self.now().isoformat()}")
        return self.travel(ahead)

    def travel_to_next(self) -> datetime:
        """Move the clock to the time of the next scheduled job, such as a retry, whose delay has a random part."""
        waiting = [job.run_at for job in self.jobs(state="scheduled") if job.run_at < NEVER]
        if not waiting:
            raise AssertionError(f"no job is scheduled; jobs: {_listed(self.jobs())}")
        # A job that is due by now needs no travel; the clock advances between two queries.
        return self.travel(max(0.0, (min(waiting) - self.now()).total_seconds()))

    def now(self) -> datetime:
        return self.app.database.run(test_support.now())

    def lose_leases(self) -> None:
        """Let the leases of killed workers expire, so that their jobs run again."""
        self.app.database.run(test_support.travel(self.app.settings.lease + 1, leases=False))

    # Run

    def drain(self, *, timeout: float = TIMEOUT) -> DrainResult:
        """Fire due schedules and run jobs until nothing is left to do now. Retries stay scheduled."""
        return _run_sync(lambda: self.adrain(timeout=timeout))

    async def adrain(self, *, timeout: float = TIMEOUT) -> DrainResult:
        """`drain` for async tests."""
        before = {job.id for job in await self._arun(test_support.jobs()) if _is_over(job)}
        worker = self.app.worker()
        await self.app.adeclare()
        await self.app.schedules.atick()
        running = asyncio.create_task(worker.run())
        try:
            await self._until_idle(list(worker.queues), running, timeout)
        finally:
            worker.stop()
            await running
        after = await self._arun(test_support.jobs())
        return DrainResult([job for job in after if _is_over(job) and job.id not in before])

    async def _until_idle(self, queues: list[str], running: "asyncio.Task[None]", timeout: float) -> None:
        end = time.monotonic() + timeout
        while left := await self._arun(test_support.continue_and_count(queues)):
            if running.done():
                return
            if time.monotonic() > end:
                live = [str(job) for job in await self._arun(test_support.jobs()) if not _is_over(job)]
                raise AssertionError(f"{left} jobs are not finished after {timeout:g} s: {'; '.join(live[:5])}")
            await asyncio.sleep(POLL_INTERVAL)

    @contextmanager
    def crash_worker(self, app: str, *options: str) -> Iterator[WorkerProcess]:
        """Start a real worker for `module:name`, to be killed: `worker.kill()`, then `lose_leases()` and `drain()`."""
        process = WorkerProcess(app, self.app, options)
        try:
            yield process
        finally:
            process.kill()

    def until(self, fact: Callable[[], T], timeout: float = TIMEOUT) -> T:
        """Wait until `fact` returns a true value, and return it."""
        return wait_for(fact, timeout)

    # Query

    def job(self, job: Job[Any] | int) -> JobState:
        """Return the current state of one job."""
        wanted = job if isinstance(job, int) else job.id
        found = [each for each in self.jobs() if each.id == wanted]
        if not found:
            raise AssertionError(f"there is no job {wanted}")
        return found[0]

    def jobs(self, task: Task[..., Any] | str | None = None, *, state: str | None = None) -> list[JobState]:
        """Return jobs, live and ended, in the order of their creation."""
        return self.app.database.run(test_support.jobs(_task_name(task), state))

    def assert_enqueued(
        self, task: Task[..., Any] | str, *, times: int | None = None, tenant: str | None = None, **args: Any
    ) -> JobState:
        """Assert that the task has a job with these arguments; `times`: exactly this many. Return the newest."""
        found = [job for job in self.jobs(task) if _fits(job, tenant, self._arguments(job), args)]
        if not found or (times is not None and len(found) != times):
            wanted = f"{_task_name(task)}({', '.join(f'{name}={value!r}' for name, value in args.items())})"
            raise AssertionError(
                f"{wanted} was enqueued {len(found)} times, not {times or 'once'}; jobs: {_listed(self.jobs())}"
            )
        return found[-1]

    def _arguments(self, job: JobState) -> dict[str, Any]:
        """Return the arguments of a job, decrypted if they are encrypted."""
        definition = self.app.registry.get(job.task)
        if definition is None or not isinstance(definition.arguments, EncryptedArguments):
            return job.args
        return definition.arguments.decrypted(job.args)

    def assert_not_enqueued(self, task: Task[..., Any] | str, *, tenant: str | None = None, **args: Any) -> None:
        """Assert that no job of the task has these arguments."""
        found = [job for job in self.jobs(task) if _fits(job, tenant, self._arguments(job), args)]
        if found:
            raise AssertionError(f"{_task_name(task)} was enqueued: {_listed(found)}")

    def assert_waiting(self, job: Job[Any] | int, *, after: Iterable[Job[Any] | int] | None = None) -> JobState:
        """Assert that a job waits for others; `after`: for exactly these of its predecessors, which have not ended."""
        found = self.job(job)
        if found.state != "waiting":
            raise AssertionError(f"it does not wait for other jobs: {found}")
        open_ids = self.app.database.run(test_support.open_predecessors(found.id))
        if after is not None and open_ids != ids_of(after):
            raise AssertionError(f"job {found.id} waits for the jobs {open_ids}, not {ids_of(after)}: {found}")
        return found

    def assert_not_waiting(self, job: Job[Any] | int) -> JobState:
        """Assert that a job does not wait for others: they have ended, or it had none."""
        found = self.job(job)
        if found.state == "waiting":
            open_ids = self.app.database.run(test_support.open_predecessors(found.id))
            raise AssertionError(f"job {found.id} waits for the jobs {open_ids}: {found}")
        return found

    def deliveries(
        self, event: Any = None, *, to: str | None = None, channel: str | None = None
    ) -> list[DeliveryState]:
        """Return deliveries in the order of their creation. `event`: from `app.event`, or its name."""
        return self.app.database.run(test_support.deliveries(_event_name(event), to, channel))

    def assert_delivered(
        self, event: Any, *, to: str, channel: str | None = None, states: Sequence[str] = ARRIVED
    ) -> DeliveryState:
        """Assert that the event was sent to this recipient: sent, delivered or read. Return the newest delivery."""
        found = self.deliveries(event, to=to, channel=channel)
        arrived = [delivery for delivery in found if delivery.state in states]
        if not arrived:
            others = found or self.deliveries(event) or self.deliveries()
            raise AssertionError(f"{_event_name(event)} did not reach {to}; deliveries: {_listed(others)}")
        return arrived[-1]

    def assert_not_delivered(self, event: Any, *, to: str, channel: str | None = None) -> None:
        """Assert that the event was not sent to this recipient."""
        found = [each for each in self.deliveries(event, to=to, channel=channel) if each.state in ARRIVED]
        if found:
            raise AssertionError(f"{_event_name(event)} was delivered: {_listed(found)}")

    async def _arun(self, operation: Any) -> Any:
        return await self.app.database.arun(operation)


def _run_sync(start: Callable[[], Awaitable[T]]) -> T:
    """Run the coroutine; in a thread if an event loop is running here, so that plain and async tests can call it."""

    async def run() -> T:
        return await start()

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(run())
    results: list[T] = []
    errors: list[BaseException] = []

    def run_in_thread() -> None:
        try:
            results.append(asyncio.run(run()))
        except BaseException as error:  # noqa: BLE001 - it is raised again in the calling thread
            errors.append(error)

    thread = threading.Thread(target=run_in_thread)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def _is_over(job: JobState) -> bool:
    return job.state in ("succeeded", "dead", "cancelled")


def _fits(job: JobState, tenant: str | None, found: dict[str, Any], args: dict[str, Any]) -> bool:
    missing = object()
    return (tenant is None or job.tenant == tenant) and all(
        found.get(name, missing) == value for name, value in args.items()
    )


def _task_name(task: Task[..., Any] | str | None) -> str | None:
    return task if task is None or isinstance(task, str) else task.name


def _event_name(event: Any) -> str | None:
    return event if event is None or isinstance(event, str) else event.name


def _listed(found: Sequence[object], most: int = 10) -> str:
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return "; ".join(map(str, found[:most])) + more if found else "none"
