"""`@app.on`: functions that are called after a settlement is committed, and never delay or fail it."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import psycopg
import pytest

from sereno import Backoff, Cancel, ConfigurationError, Context, Dead, JobEvent, Sereno
from sereno.database.connect import ServiceConnection
from sereno.errors import DatabaseUnavailable
from sereno.jobs.attempt import SUCCEEDED, CrashedAttempt, Settlement
from sereno.jobs.job import ClaimedJob
from sereno.jobs.settlement import SettleResult
from sereno.telemetry.metrics import MetricTally
from sereno.worker import hooks as hook_module
from sereno.worker.hooks import EVENT_NAMES, EventName, HookCaller
from sereno.worker.settler import Settler
from tests.facts import auntil, one
from tests.jobs.job_steps import add, decided, line, session, settled, take
from tests.worker.test_lost_replies import LosesReplies

ALL: tuple[EventName, ...] = ("job.succeeded", "job.failed", "job.dead", "job.cancelled")


def _job(number: int = 1, task: str = "work", attempt: int = 1) -> ClaimedJob:
    return ClaimedJob(number, attempt, task, "default", 5, 1, "r42", b"{}", 0.0, 0.0)  # type: ignore[arg-type]


def _result(job: ClaimedJob, decision: Settlement, *, was_cancelled: bool = False) -> SettleResult:
    return SettleResult(job.id, job.attempt, 0.0, decision, was_cancelled=was_cancelled)


@asynccontextmanager
async def _caller(function: Any, *names: EventName) -> AsyncIterator[HookCaller]:
    caller = HookCaller({name: [function] for name in names or ALL})
    caller.start()
    yield caller
    await caller.stop()


async def _ended(app: Sereno, connection: psycopg.Connection, jobs: int) -> None:
    async with app.working():
        await auntil(lambda: one(connection, "select count(*) from sereno.history") == jobs)
    await app.aclose()


async def test_each_outcome_calls_its_hooks_after_it_is_stored(app: Sereno, connection: psycopg.Connection) -> None:
    """The hook reads what is stored: it is called after the commit."""
    called: list[tuple[JobEvent, str]] = []

    @app.on(*ALL)
    async def asynchronous(event: JobEvent) -> None:
        state = one(connection, "select state from sereno.history where id = %s", event.job_id)
        called.append((event, state))

    @app.task(retry=0)
    async def work(what: str) -> None:
        match what:
            case "error":
                raise OSError("no route")
            case "dead":
                raise Dead("account closed")
            case "cancel":
                raise Cancel("not wanted")

    @app.task
    async def writes(ctx: Context) -> None:
        async with ctx.transaction():
            pass

    jobs = [await work.using(tenant="r42").aenqueue(what) for what in ("nothing", "error", "dead", "cancel")]
    jobs.append(await writes.aenqueue())
    await _ended(app, connection, len(jobs))
    found = {event.job_id: (event, state) for event, state in called}
    assert len(called) == len(found) == len(jobs)
    expected = ["succeeded", "dead", "dead", "cancelled", "succeeded"]
    assert [found[job.id][0].name for job in jobs] == [f"job.{state}" for state in expected]
    assert [found[job.id][1] for job in jobs] == expected
    assert found[jobs[1].id][0] == JobEvent(
        "job.dead", jobs[1].id, "work", "default", "r42", 1, None, "failed 1 times", "OSError", "no route"
    )
    assert found[jobs[2].id][0].reason == "account closed"


async def test_a_retry_is_a_failure_and_sync_hooks_run_in_a_thread(app: Sereno, connection: psycopg.Connection) -> None:
    called: list[tuple[str, str | None, int]] = []
    threads: set[int] = set()

    @app.on("job.failed", "job.succeeded")
    def synchronous(event: JobEvent) -> None:
        threads.add(threading.get_ident())
        called.append((event.name, event.error_message, event.attempt))

    @app.task(retry=Backoff(1, delays=[0]))
    def work(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise OSError("no route")

    await work.aenqueue()
    await _ended(app, connection, 1)
    assert called == [("job.failed", "no route", 1), ("job.succeeded", None, 2)]
    assert threading.get_ident() not in threads


async def test_a_hook_that_fails_changes_nothing(
    app: Sereno, connection: psycopg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    called: list[int] = []

    @app.on("job.succeeded")
    def fails(event: JobEvent) -> None:
        raise StopIteration("a hook's own error")

    @app.on("job.succeeded")
    async def exits(event: JobEvent) -> None:
        raise SystemExit(1)

    async def works(numbers: list[int], event: JobEvent) -> None:
        numbers.append(event.job_id)

    app.on("job.succeeded")(partial(works, called))

    @app.task
    async def work() -> None: ...

    jobs = [(await work.aenqueue()).id for _ in range(3)]
    await _ended(app, connection, 3)
    assert sorted(called) == jobs
    assert one(connection, "select count(*) from sereno.history where state = 'succeeded'") == 3
    assert caplog.text.count("hook fails failed for job.succeeded") == 3
    assert caplog.text.count("hook exits failed for job.succeeded") == 3


async def test_a_requested_cancel_of_a_job_that_fails_is_cancelled(app: Sereno, connection: psycopg.Connection) -> None:
    """The attempt asked for a retry; the job ended as cancelled, and the event says so."""
    called: list[str] = []

    @app.on(*ALL)
    async def note(event: JobEvent) -> None:
        called.append(event.name)

    @app.task
    def work(ctx: Context) -> None:
        connection.execute("update sereno.jobs set cancel_requested = true where id = %s", [ctx.job_id])
        raise OSError("no route")

    await work.aenqueue()
    await _ended(app, connection, 1)
    assert called == ["job.cancelled"]


@pytest.mark.slow
async def test_a_slow_hook_does_not_delay_settlements(
    app: Sereno, connection: psycopg.Connection, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hook_module, "MOST_WAITING", 1)
    monkeypatch.setattr(hook_module, "DRAIN_TIMEOUT", 0.05)
    begun = asyncio.Event()

    @app.on("job.succeeded")
    async def hangs(event: JobEvent) -> None:
        begun.set()
        await asyncio.Event().wait()

    @app.task
    async def work() -> None: ...

    monkeypatch.setattr("sereno.telemetry.service.STOP_TIMEOUT", 0.05)
    await work.aenqueue()
    async with app.working():
        await begun.wait()
        for _ in range(4):
            await work.aenqueue()
        await auntil(lambda: one(connection, "select count(*) from sereno.history") == 5)
    await app.aclose()
    assert "hooks of 4 events are not called: the worker stopped before they were called" in caplog.text


async def test_events_of_settlements(subtests: pytest.Subtests) -> None:
    events: list[JobEvent] = []
    crash = decided(CrashedAttempt("its process died"))
    rows = {
        "a crash is retried": (_result(_job(), crash), set(), ["job.failed"]),
        "a crash loop": (_result(_job(), Settlement("dead", reason="crash loop")), set(), ["job.dead"]),
        "released": (_result(_job(), Settlement("release")), set(), []),
        "snoozed": (_result(_job(), Settlement("snooze")), set(), []),
        "refused": (_result(_job(), SUCCEEDED), {1}, []),
        "another attempt": (_result(_job(attempt=2), SUCCEEDED), set(), []),
        "cancelled by an operator": (
            _result(_job(), Settlement("retry"), was_cancelled=True),
            set(),
            ["job.cancelled"],
        ),
    }
    for name, (item, fenced, expected) in rows.items():
        with subtests.test(name):
            events.clear()
            async with _caller(events.append) as caller:
                caller.ended(_job())
                caller.settled([item], fenced)
                # A settlement that is confirmed again calls nothing.
                caller.settled([item], fenced)
            assert [event.name for event in events] == expected


async def test_a_settlement_whose_reply_was_lost_calls_its_hooks_once(app: Sereno, database_url: str) -> None:
    """It was applied, and is recognised when it is written again. A refused one calls none."""
    events: list[JobEvent] = []
    with line(database_url) as connection:
        add(connection, 3)
        owner = session(connection)
        jobs = take(connection, owner)
        lossy = LosesReplies(app.database.url, app.settings, "test")
        async with _caller(events.append) as caller:
            settler = Settler(lossy, owner, MetricTally(), lambda _, __: None, lambda: None, caller)
            connection.execute("update sereno.jobs set attempt = attempt + 1 where id = %s", [jobs[2].id])
            for job in jobs:
                caller.ended(job)
                settler.add(settled(job, decided()), at_once=True)
            lossy.loses = True
            with pytest.raises(DatabaseUnavailable):
                await settler.run_once()
            await settler.run_once()
        await lossy.close()
    assert sorted(event.job_id for event in events) == [job.id for job in jobs[:2]]


async def test_an_outcome_that_cannot_be_stored_is_dead(app: Sereno, database_url: str) -> None:
    events: list[JobEvent] = []
    with line(database_url) as connection:
        add(connection, 1)
        owner = session(connection)
        (job,) = take(connection, owner)
        service = ServiceConnection(app.database.url, app.settings, "test")
        async with _caller(events.append) as caller:
            settler = Settler(service, owner, MetricTally(), lambda _, __: None, lambda: None, caller)
            caller.ended(job)
            settler.add(settled(job, Settlement("retry", reason="\0")), at_once=True)
            await settler.run_once()
        await service.close()
    assert [(event.name, event.reason) for event in events] == [("job.dead", "its outcome could not be stored")]


async def test_internal_tasks_have_no_hooks() -> None:
    events: list[JobEvent] = []
    async with _caller(events.append) as caller:
        caller.ended(_job(task="sereno.bulk"))
        caller.settled([_result(_job(), SUCCEEDED)], ())
    assert events == []


async def test_events_that_wait_are_handled_when_the_worker_stops() -> None:
    events: list[JobEvent] = []
    async with _caller(events.append, "job.succeeded") as caller:
        for number in range(100):
            caller.ended(_job(number))
        caller.settled([_result(_job(number), SUCCEEDED) for number in range(100)], ())
    assert [event.job_id for event in events] == list(range(100))


def test_wrong_hooks_are_refused(app: Sereno) -> None:
    def takes_nothing() -> None: ...
    def takes_an_event(event: JobEvent) -> None: ...

    with pytest.raises(
        ConfigurationError, match=r"there is no event job\.ended; known are: job\.succeeded, job\.failed"
    ):
        app.on("job.ended")(takes_an_event)  # type: ignore[arg-type]  # the point of the test
    with pytest.raises(ConfigurationError, match="takes_nothing must take one argument"):
        app.on("job.dead")(takes_nothing)  # type: ignore[type-var]  # the point of the test
    with pytest.raises(ConfigurationError, match="name an event"):
        app.on()(takes_an_event)
    assert app.registry.hooks == {}
    assert EVENT_NAMES == ALL


async def test_without_hooks_nothing_is_remembered(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task
    async def work() -> None: ...

    await work.aenqueue()
    async with app.working() as worker:
        await auntil(lambda: one(connection, "select count(*) from sereno.history") == 1)
        assert worker.executor._settler.hooks is None
    await app.aclose()
