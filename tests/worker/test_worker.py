"""A worker: claiming, waking up, stopping, and losing its session."""

import asyncio

import psycopg
import pytest

from sereno import Context, Sereno
from sereno.database.database import Database
from sereno.database.statement import Operation, Statement, run
from sereno.jobs.attempt import SUCCEEDED
from sereno.jobs.settlement import SettleResult, settle
from sereno.worker import sessions
from sereno.worker.child import SupervisedLease
from sereno.worker.heartbeat import Heartbeat, boot_clock, lease_end
from sereno.worker.maintenance import promoter
from sereno.worker.worker import Worker
from tests.facts import advance, auntil, one, state


@pytest.mark.slow
async def test_high_priorities_run_first_and_low_ones_do_not_starve(
    app: Sereno, connection: psycopg.Connection
) -> None:
    order: list[int] = []

    @app.task
    async def work(priority: int) -> None:
        order.append(priority)
        await asyncio.sleep(0.001)

    urgent, low = work.using(priority=0), work.using(priority=9)
    await app.aenqueue_many([low.job(9)] + [urgent.job(0) for _ in range(2000)])
    async with app.working({"default": 1}):
        await auntil(lambda: 9 in order)
        # Some claims read the priorities in reverse, so it did not wait for all the others.
        assert one(connection, "select count(*) from sereno.jobs where state = 'ready'") > 0
    assert order[:3] == [0, 0, 0]


@pytest.mark.slow
async def test_a_job_of_a_slow_transaction_is_found_below_the_floor(
    database_url: str, connection: psycopg.Connection
) -> None:
    # Not by the poll, but by a look-back below the floor soon after the NOTIFY.
    app = Sereno(database_url, poll=3600)
    ran: list[str] = []

    @app.task
    async def work(name: str) -> None:
        ran.append(name)

    async with app.working() as worker, app.database.aconnection() as slow:
        # From here on the worker is notified of enqueued jobs.
        await auntil(lambda: one(connection, "select idle from sereno.sessions"))
        async with slow.transaction():
            late = await work.using(slow).aenqueue("late")
            position = await (await slow.execute("select ready_seq, priority from sereno.jobs")).fetchone()
            # Ten later jobs overtake it, and the floor rises above it.
            for n in range(10):
                await work.aenqueue(str(n))
            await auntil(lambda: len(ran) == 10)
            assert position
            ready_seq, priority = position
            assert worker.floors.of("default", priority) > ready_seq
        await auntil(lambda: state(connection, late.id) == "succeeded")
    assert ran[-1] == "late"


async def test_an_idle_worker_is_marked_and_runs_a_new_job(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task
    async def work() -> None: ...

    async with app.working():
        await auntil(lambda: one(connection, "select idle from sereno.sessions"))
        job = await work.aenqueue()
        await auntil(lambda: state(connection, job.id) == "succeeded")
    assert one(connection, "select idle from sereno.sessions") is False


@pytest.mark.slow
async def test_immediate_and_delayed_jobs_run_without_notify(
    database_url: str, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(promoter, "POLL_INTERVAL", 0.2)
    app = Sereno(database_url, notify=False, poll=0.2)

    @app.task
    async def work() -> None: ...

    async with app.working():
        for _ in range(3):
            job = await work.aenqueue()
            await auntil(lambda: state(connection, job.id) == "succeeded")  # noqa: B023
        later = await work.using(delay="1h").aenqueue()
        advance(connection, 3600)
        await auntil(lambda: state(connection, later.id) == "succeeded")


async def test_jobs_enqueued_with_sql_run(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task
    async def work() -> None: ...

    async with app.working():
        await auntil(lambda: one(connection, "select idle from sereno.sessions"))
        connection.execute(
            "insert into sereno.jobs (task, state, ready_seq) values ('work', 'ready', nextval('sereno.ready_seq'))"
        )
        await auntil(lambda: one(connection, "select count(*) from sereno.history") == 1)


async def test_paused_queues_tasks_and_tenants_wait_until_resumed(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task(queue="slow")
    async def in_queue() -> None: ...

    @app.task
    async def of_task() -> None: ...

    @app.task
    async def other() -> None: ...

    connection.execute(
        "insert into sereno.pauses (kind, name, paused_by) values ('queue', 'slow', 'me'), ('task', 'of_task', 'me'), "
        "('tenant', 'r42', 'me')"
    )
    held = [await in_queue.aenqueue(), await of_task.aenqueue(), await other.using(tenant="r42").aenqueue()]
    async with app.working():
        free = await other.using(tenant="r7").aenqueue()
        await auntil(lambda: state(connection, free.id) == "succeeded")
        assert [state(connection, job.id) for job in held] == ["ready"] * 3
        connection.execute("delete from sereno.pauses")
        await auntil(lambda: all(state(connection, job.id) == "succeeded" for job in held))


async def test_a_stop_releases_jobs_without_counting_failures_or_crashes(
    app: Sereno, connection: psycopg.Connection
) -> None:
    started = asyncio.Event()

    @app.task(batch=100)
    async def batch(items: list[int]) -> None:
        started.set()
        await asyncio.Event().wait()

    app.override(grace=0.1)
    await app.aenqueue_many([batch.job(n) for n in range(150)])
    async with app.working({"default": 1}):
        await started.wait()
        await auntil(lambda: one(connection, "select count(*) from sereno.jobs where state = 'running'") > 100)
    rows = connection.execute("select distinct state, failures, crashes, releases from sereno.jobs").fetchall()
    assert rows == [("ready", 0, 0, 1)] or set(rows) <= {("ready", 0, 0, 1), ("ready", 0, 0, 0)}
    assert one(connection, "select state from sereno.sessions") == "closed"


async def test_short_jobs_finish_during_the_grace_period(app: Sereno, connection: psycopg.Connection) -> None:
    proceed = asyncio.Event()

    @app.task
    async def work() -> None:
        await proceed.wait()

    jobs = await app.aenqueue_many([work.job() for _ in range(20)])
    async with app.working() as worker:
        await auntil(lambda: len(worker.executor.running) == 20)
        worker.stop()
        await asyncio.sleep(0)
        proceed.set()
    assert {state(connection, job.id) for job in jobs} == {"succeeded"}


async def test_a_hurried_stop_releases_jobs_at_once(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task
    async def work() -> None:
        await asyncio.Event().wait()

    job = await work.aenqueue()
    app.override(grace=3600)
    async with app.working() as worker:
        await auntil(lambda: state(connection, job.id) == "running")
        worker.stop()
        worker.stop(hurry=True)
    assert connection.execute("select state, releases, failures from sereno.jobs").fetchone() == ("ready", 1, 0)


async def test_a_session_declared_dead_is_fenced_and_replaced(
    database_url: str, connection: psycopg.Connection
) -> None:
    app = Sereno(database_url, heartbeat=0.2, lease=2)
    proceed = asyncio.Event()
    attempts: list[int] = []

    @app.task
    async def work(ctx: Context) -> None:
        attempts.append(ctx.attempt)
        await proceed.wait()

    job = await work.aenqueue()
    async with app.working() as worker:
        await auntil(lambda: attempts == [1])
        old = worker.session
        connection.execute("update sereno.sessions set state = 'dead', ended_at = sereno.now() where id = %s", [old])
        await auntil(lambda: worker.session != old)
        await auntil(lambda: 2 in attempts)
        # The old session tries to settle and is fenced.
        stale = SettleResult(job.id, 1, 0.0, SUCCEEDED)
        assert run(connection, settle("succeed", old, [stale])) == set()
        proceed.set()
        await auntil(lambda: state(connection, job.id) == "succeeded")
    assert one(connection, "select attempt from sereno.history") == 2


@pytest.mark.slow
async def test_jobs_of_a_claim_whose_reply_was_lost_are_released(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task
    async def work() -> None: ...

    async with app.working() as worker:
        await auntil(lambda: one(connection, "select idle from sereno.sessions"))
        # As if a claim had committed and its reply had been lost.
        connection.execute(
            "insert into sereno.jobs (task, state, session_id, attempt, claimed_at) "
            "values ('work', 'running', %s, 1, sereno.now() - interval '10 seconds')",
            [worker.session],
        )
        worker.claimer.reply_lost_at = 0.0
        await auntil(lambda: one(connection, "select count(*) from sereno.history where releases = 1") == 1)


@pytest.mark.slow
async def test_jobs_of_a_dead_session_are_rescued_as_suspects(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task
    async def work() -> None: ...

    job = await work.aenqueue()
    gone, _ = run(connection, sessions.register(host="gone", pid=1, version="0", queues={}, tasks=[], lease=1))
    connection.execute(
        "update sereno.jobs set state = 'running', session_id = %s, attempt = 1, claimed_at = now()", [gone]
    )
    connection.execute("update sereno.sessions set lease_until = sereno.now() - interval '1 second'")
    async with app.working():
        await auntil(lambda: state(connection, job.id) == "succeeded")
    assert connection.execute("select crashes, attempt from sereno.history").fetchone() == (1, 2)
    assert one(connection, "select outcome from sereno.attempts") == "crash"


async def test_several_workers_run_every_job_once(database_url: str, connection: psycopg.Connection) -> None:
    apps = [Sereno(database_url) for _ in range(3)]
    ran: list[int] = []
    for app in apps:

        @app.task
        async def work(n: int) -> None:
            ran.append(n)

    await apps[0].aenqueue_many([work.job(n) for n in range(3000)])
    async with apps[0].working(), apps[1].working(), apps[2].working():
        await auntil(lambda: one(connection, "select count(*) from sereno.history") == 3000)
    assert sorted(ran) == list(range(3000))


async def test_working_raises_if_the_worker_cannot_start(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task
    async def work() -> None: ...

    connection.execute("alter table sereno.sessions rename to elsewhere")
    entered = False
    with pytest.raises(psycopg.errors.UndefinedTable, match="sessions"):
        async with app.working():
            entered = True
    assert not entered


@pytest.mark.slow
async def test_the_lease_counts_from_before_the_registration_was_sent(database_url: str) -> None:
    """Other work of a worker that starts may take long; none of it extends the lease."""
    app = Sereno(database_url)
    sent: list[float] = []

    @app.task
    async def work() -> None: ...

    def declare_slowly() -> Operation[None]:
        sent.append(boot_clock())
        yield Statement("select pg_sleep(0.05)")

    for lease_holder in (Heartbeat, SupervisedLease):
        database = Database(app.settings, lambda: database_url)
        worker = Worker(database, app.registry, {"default": 1}, lease_holder=lease_holder, declare_more=declare_slowly)
        running = asyncio.create_task(worker.run())
        await worker.registered.wait()
        assert worker.lease_holder.lease_end <= lease_end(sent[-1], app.settings.lease)
        worker.stop()
        await running
