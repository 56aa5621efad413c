"""Jobs run in the event loop, in threads, in processes and in batches, and can be stopped there."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from sereno import Backoff, Context, Dead, Outcome, Sereno
from sereno.jobs import transitions
from sereno.worker import handler_threads
from tests.facts import advance, auntil, one, state
from tests.worker.isolation import isolated_tasks

ONCE = Backoff(0)
SIDE_ROWS = "select (select count(*) from sereno.steps) + (select count(*) from sereno.progress)"


async def test_sync_handlers_run_in_threads(app: Sereno, connection: psycopg.Connection) -> None:
    names: list[str] = []

    @app.task
    def work() -> None:
        names.append(threading.current_thread().name)

    job = await work.aenqueue()
    async with app.working():
        await auntil(lambda: state(connection, job.id) == "succeeded")
    assert names[0].startswith("sereno")


@pytest.mark.slow
async def test_no_more_jobs_run_at_once_than_a_queue_has_slots(app: Sereno, connection: psycopg.Connection) -> None:
    running = 0
    peak = 0

    @app.task
    async def work() -> None:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        await asyncio.sleep(0.001)
        running -= 1

    await app.aenqueue_many([work.job() for _ in range(200)])
    async with app.working({"default": 7}):
        await auntil(lambda: one(connection, "select count(*) from sereno.jobs") == 0)
    assert peak == 7


@pytest.mark.slow
async def test_a_coroutine_past_its_deadline_is_cancelled_and_retried(
    app: Sereno, connection: psycopg.Connection
) -> None:
    @app.task(timeout="50ms", retry=ONCE)
    async def work() -> None:
        await asyncio.Event().wait()

    job = await work.aenqueue()
    async with app.working():
        await auntil(lambda: state(connection, job.id) == "dead")
    assert one(connection, "select error_type from sereno.history") == "TimeoutError"


@pytest.mark.slow
async def test_timeout_error_is_raised_in_a_thread_past_its_deadline(
    app: Sereno, connection: psycopg.Connection
) -> None:
    @app.task(timeout="50ms", retry=ONCE)
    def work() -> None:
        while True:
            time.sleep(0.001)

    job = await work.aenqueue()
    async with app.working():
        await auntil(lambda: state(connection, job.id) == "dead")
    assert one(connection, "select error_type from sereno.history") == "TimeoutError"


async def test_a_timeout_can_be_disabled_explicitly(app: Sereno) -> None:
    @app.task(timeout=None)
    async def work() -> None: ...

    assert work.definition.timeout is None


async def test_a_running_coroutine_can_be_cancelled(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task
    async def work() -> None:
        await asyncio.Event().wait()

    job = await work.aenqueue()
    async with app.working():
        await auntil(lambda: state(connection, job.id) == "running")
        assert await app.database.arun(transitions.cancel([job.id], "by a test")) == ([], [job.id])
        await auntil(lambda: state(connection, job.id) == "cancelled")


@pytest.fixture
def threads_may_start(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Return an event without which no thread starts, as on a busy machine."""
    may_start = threading.Event()

    class BusyPool(ThreadPoolExecutor):
        def submit(self, function: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
            def later() -> Any:
                may_start.wait(30)
                return function(*args, **named)

            return super().submit(later)

    monkeypatch.setattr(handler_threads, "ThreadPoolExecutor", BusyPool)
    return may_start


async def test_cancelling_a_sync_handler_that_has_not_started_sets_its_flag(
    app: Sereno, connection: psycopg.Connection, threads_may_start: threading.Event
) -> None:
    """A handler that cannot be stopped must not be settled as if it had been."""

    @app.task
    def work(ctx: Context) -> None:
        if ctx.cancel_requested:
            raise Dead("stopped on request")

    job = await work.aenqueue()
    async with app.working() as worker:
        await auntil(lambda: job.id in worker.executor.running)
        running = worker.executor.running[job.id]
        await auntil(lambda: running.is_plain)
        await app.database.arun(transitions.cancel([job.id], "by a test"))
        await auntil(lambda: running.context is not None and running.context.cancel_requested)
        threads_may_start.set()
        await auntil(lambda: state(connection, job.id) == "dead")
    assert one(connection, "select reason from sereno.history") == "stopped on request"


@pytest.mark.slow
async def test_a_sync_handler_that_has_not_started_by_its_deadline_never_runs(
    app: Sereno, connection: psycopg.Connection, threads_may_start: threading.Event
) -> None:
    began: list[int] = []

    @app.task(timeout="10ms", retry=ONCE)
    def work(ctx: Context) -> None:
        began.append(ctx.job_id)

    job = await work.aenqueue()
    async with app.working() as worker:
        await auntil(lambda: job.id in worker.executor.running)
        running = worker.executor.running[job.id]
        await auntil(lambda: running.stopped)
        threads_may_start.set()
        await auntil(lambda: state(connection, job.id) == "dead")
        assert not worker.executor.stuck
    assert began == []
    assert one(connection, "select error_type from sereno.history") == "TimeoutError"


async def test_cancelling_a_running_sync_handler_sets_its_flag(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task
    def work(ctx: Context) -> None:
        while not ctx.cancel_requested:
            time.sleep(0.001)
        raise Dead("stopped on request")

    job = await work.aenqueue()
    async with app.working():
        await auntil(lambda: state(connection, job.id) == "running")
        await app.database.arun(transitions.cancel([job.id], "by a test"))
        await auntil(lambda: state(connection, job.id) == "dead")


@pytest.mark.slow
async def test_a_cancel_works_without_notify(database_url: str, connection: psycopg.Connection) -> None:
    app = Sereno(database_url, notify=False, heartbeat=0.5, lease=5)

    @app.task
    async def work() -> None:
        await asyncio.Event().wait()

    job = await work.aenqueue()
    async with app.working():
        await auntil(lambda: state(connection, job.id) == "running")
        await app.database.arun(transitions.cancel([job.id], "by a test"))
        await auntil(lambda: state(connection, job.id) == "cancelled")


@pytest.mark.slow
async def test_a_batch_task_returns_one_outcome_for_each_job(app: Sereno, connection: psycopg.Connection) -> None:
    sizes: list[int] = []

    @app.task(batch=50, retry=ONCE)
    async def work(items: list[int]) -> list[Outcome | None]:
        sizes.append(len(items))
        return [Dead(f"odd {item}") if item % 2 else None for item in items]

    await app.aenqueue_many([work.job(n) for n in range(200)])
    connection.execute("""select sereno.enqueue('work', '{"item": "no number"}')""")
    async with app.working():
        await auntil(lambda: one(connection, "select count(*) from sereno.jobs") == 0)
    assert max(sizes) == 50
    assert sum(sizes) == 200
    found: dict[str, int] = dict(
        connection.execute("select state, count(*) from sereno.history group by state").fetchall()
    )
    assert found == {"succeeded": 100, "dead": 101}
    assert one(connection, "select count(*) from sereno.history where reason = 'odd ' || (args ->> 'item')") == 100


@pytest.mark.slow
async def test_a_batch_that_raises_or_returns_too_few_outcomes_fails_every_job(
    app: Sereno, connection: psycopg.Connection
) -> None:
    @app.task(batch=10, retry=ONCE)
    async def short(items: list[int]) -> list[Outcome | None]:
        return [None]

    @app.task(batch=10, retry=ONCE)
    def broken(items: list[int]) -> None:
        raise ValueError("all of them")

    await app.aenqueue_many([short.job(1), short.job(2), broken.job(1), broken.job(2)])
    async with app.working():
        await auntil(lambda: one(connection, "select count(*) from sereno.history where state = 'dead'") == 4)


@pytest.fixture
def isolated(app: Sereno) -> None:
    """Register the isolated tasks in this application."""
    isolated_tasks.adopt(app)


@pytest.mark.quick
async def test_isolated_tasks_run_in_separate_processes_with_the_database_of_their_worker(
    app: Sereno, connection: psycopg.Connection, isolated: None
) -> None:
    """Such a process imports the application again, whose database was given on the command line.

    The retry policy that a handler sets for its job applies there too.
    """
    connection.execute("create table seen (pid integer, attempt integer)")
    jobs = await app.aenqueue_many(
        [
            isolated_tasks.in_own_process.job("here"),
            isolated_tasks.enqueues_another.job(),
            isolated_tasks.writes_a_step_and_commits.job(),
            isolated_tasks.gives_up.job(),
        ]
    )
    async with app.working():
        await auntil(lambda: [state(connection, job.id) for job in jobs] == ["succeeded"] * 3 + ["dead"])
        assert one(connection, SIDE_ROWS) == 0, "steps are deleted with the commit of the job"
    assert one(connection, "select pid from seen") != os.getpid()
    assert one(connection, "select args ->> 'parent' from sereno.jobs where task = 'follow'") == str(jobs[1].id)


@pytest.mark.slow
async def test_an_isolated_task_past_its_deadline_is_killed(
    app: Sereno, connection: psycopg.Connection, isolated: None
) -> None:
    job = (await app.aenqueue_many([isolated_tasks.never_ends.job()]))[0]
    async with app.working():
        await auntil(lambda: state(connection, job.id) == "dead")
    assert one(connection, "select error_type from sereno.history") == "TimeoutError"


@pytest.mark.slow
@pytest.mark.quick
async def test_a_job_that_kills_its_process_is_dead_after_three_crashes(
    app: Sereno, connection: psycopg.Connection, isolated: None
) -> None:
    poison = (await app.aenqueue_many([isolated_tasks.kills_its_process.job()]))[0]
    others = await app.aenqueue_many([isolated_tasks.innocent.job(n) for n in range(20)])
    async with app.working():
        for crashes in (1, 2):
            await auntil(lambda: one(connection, "select crashes from sereno.jobs where id = %s", poison.id) == crashes)  # noqa: B023
            advance(connection, 3600)
        await auntil(lambda: state(connection, poison.id) == "dead")
        await auntil(lambda: all(state(connection, job.id) == "succeeded" for job in others))
    reason, crashes = connection.execute("select reason, crashes from sereno.history_dead").fetchone() or ()
    assert reason == f"crash loop: its process died ({signal.Signals.SIGKILL.name}), 3 times"
    assert crashes == 3


@pytest.mark.slow
async def test_a_suspect_runs_in_a_separate_process_and_can_succeed(
    app: Sereno, connection: psycopg.Connection, isolated: None
) -> None:
    """All its steps are deleted with it, including those of the attempt that died with its worker."""
    connection.execute("create table seen (pid integer, attempt integer)")
    jobs = await app.aenqueue_many([isolated_tasks.ordinary.job(), isolated_tasks.writes_a_step.job()])
    connection.execute("update sereno.jobs set crashes = 1, attempt = 1")
    connection.execute("insert into sereno.steps values (%s, 'first', 1, '{}')", [jobs[1].id])
    connection.execute("insert into sereno.progress values (%s, 1, 0.1)", [jobs[1].id])
    async with app.working():
        await auntil(lambda: {state(connection, job.id) for job in jobs} == {"succeeded"})
        assert one(connection, SIDE_ROWS) == 0
    assert one(connection, "select pid from seen") != os.getpid()


async def test_steps_of_an_earlier_task_version_are_deleted_with_the_job(
    app: Sereno, connection: psycopg.Connection
) -> None:
    """The previous attempt ran another version of the task."""

    @app.task
    async def work() -> None: ...

    job = await work.aenqueue()
    connection.execute("update sereno.jobs set failures = 1, attempt = 1")
    connection.execute("insert into sereno.steps values (%s, 'first', 1, '{}')", [job.id])
    async with app.working():
        await auntil(lambda: state(connection, job.id) == "succeeded")
        assert one(connection, SIDE_ROWS) == 0


@pytest.mark.slow
async def test_an_idle_process_that_died_does_not_fail_the_next_job(
    app: Sereno, connection: psycopg.Connection, isolated: None, tmp_path: Path
) -> None:
    """An idle process may be killed (for example by the kernel for its memory) before the next job starts."""
    pids = [tmp_path / "first", tmp_path / "second", tmp_path / "third"]
    async with app.working():
        for pid_file in pids:
            (job,) = await app.aenqueue_many([isolated_tasks.writes_its_pid.job(str(pid_file))])
            await auntil(lambda: state(connection, job.id) == "succeeded")  # noqa: B023
            assert one(connection, "select (attempt, crashes) = (1, 0) from sereno.history where id = %s", job.id)
            if pid_file != pids[1]:
                os.kill(int(pid_file.read_text()), signal.SIGKILL)
    first, second, third = (pid_file.read_text() for pid_file in pids)
    assert first != second == third
