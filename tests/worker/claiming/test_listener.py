"""The listener reacts to NOTIFY at once and reconnects when lost; nothing depends on it."""

import psycopg
import pytest

from sereno import Sereno
from sereno.worker.claiming import wakeups
from tests.facts import auntil, one, state

# Seconds between polls: long enough that only a NOTIFY or a reconnected listener can explain a start.
NEVER = 3600.0

END_LISTENERS = (
    "select count(pg_terminate_backend(pid)) from pg_stat_activity "
    "where application_name = 'sereno listener' and datname = current_database()"
)


async def test_an_idle_worker_starts_a_job_on_notify(database_url: str, connection: psycopg.Connection) -> None:
    app = Sereno(database_url, poll=NEVER)

    @app.task
    async def work() -> None: ...

    async with app.working():
        await auntil(lambda: one(connection, "select idle from sereno.sessions"))
        for _ in range(5):
            job = await work.aenqueue()
            await auntil(lambda: state(connection, job.id) == "succeeded")  # noqa: B023


@pytest.mark.slow
async def test_a_listener_reconnects_and_finds_missed_jobs(database_url: str, connection: psycopg.Connection) -> None:
    app = Sereno(database_url, poll=NEVER)

    @app.task
    async def work() -> None: ...

    async with app.working():
        await auntil(lambda: one(connection, "select idle from sereno.sessions"))
        for _ in range(3):
            await auntil(lambda: one(connection, END_LISTENERS) == 1)
            job = await work.aenqueue()
            await auntil(lambda: state(connection, job.id) == "succeeded")  # noqa: B023


@pytest.mark.slow
async def test_a_job_due_soon_does_not_wait_for_the_next_poll(
    database_url: str, connection: psycopg.Connection
) -> None:
    app = Sereno(database_url, poll=NEVER)

    @app.task
    async def work() -> None: ...

    async with app.working():
        await auntil(lambda: one(connection, "select idle from sereno.sessions"))
        job = await work.using(delay="300ms").aenqueue()
        await auntil(lambda: state(connection, job.id) == "succeeded")
    assert one(connection, "select started_at >= run_at from sereno.history")


@pytest.mark.slow
async def test_a_worker_notified_often_polls_and_no_enqueue_notifies(
    app: Sereno, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Even if notifications arrive slowly on this machine.
    monkeypatch.setattr(wakeups, "WITHIN", 3600.0)
    monkeypatch.setattr(wakeups, "PERIOD", 3600.0)
    ran: list[int] = []

    @app.task
    async def work(n: int) -> None:
        ran.append(n)

    idle = "select idle from sereno.sessions where state = 'alive'"
    async with app.working() as worker:
        await auntil(lambda: one(connection, idle))
        for n in range(wakeups.OFTEN):
            await work.aenqueue(n)
            await auntil(lambda n=n: n in ran)  # type: ignore[misc]
        await auntil(lambda: one(connection, idle) is False)
        with psycopg.connect(app.url, autocommit=True) as listener:
            listener.execute('listen "sereno.ready"')
            for n in range(100, 120):
                await work.aenqueue(n)
            await auntil(lambda: {*range(100, 120)} <= {*ran})
            assert list(listener.notifies(timeout=0.1)) == []
        # Few jobs arrive: the worker listens again.
        worker.claimer._wakeups._period_end = 0.0
        await auntil(lambda: one(connection, idle))
        await work.aenqueue(1000)
        await auntil(lambda: 1000 in ran)
