"""Every outcome of an attempt settles its job."""

import asyncio
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from sereno import Backoff, Cancel, ConfigurationError, Context, Dead, Retry, Sereno, Snooze
from sereno.jobs.job import ClaimedJob
from sereno.jobs.task import TaskDefinition
from sereno.worker.executor import Executor
from tests.facts import advance, auntil, one, state

QUICK = Backoff(2, first="1m", jitter=0)


async def run_until(app: Sereno, connection: psycopg.Connection, job_id: int, expected: str) -> None:
    async with app.working():
        await auntil(lambda: state(connection, job_id) == expected)


@pytest.mark.slow
async def test_a_handler_that_returns_succeeds_and_writes_one_row(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task
    async def work(n: int) -> int:
        return n

    job = await work.aenqueue(1)
    await run_until(app, connection, job.id, "succeeded")
    assert one(connection, "select count(*) from sereno.attempts") == 0
    row = connection.execute("select attempt, failures, started_at <= finished_at, args from sereno.history").fetchone()
    assert row == (1, 0, True, {"n": 1})


@pytest.mark.slow
async def test_an_exception_is_stored_with_its_traceback_and_never_retried_early(
    app: Sereno, connection: psycopg.Connection
) -> None:
    @app.task(retry=QUICK)
    async def work() -> None:
        raise ValueError("no luck")

    job = await work.aenqueue()
    async with app.working():
        await auntil(lambda: one(connection, "select failures from sereno.jobs where id = %s", job.id) == 1)
        assert state(connection, job.id) == "scheduled"
        wait = one(connection, "select run_at - finished_at from sereno.jobs join sereno.attempts on job_id = id")
        assert wait >= timedelta(minutes=1)
        row = connection.execute("select number, outcome, error_type, error_message, traceback from sereno.attempts")
        number, outcome, kind, message, trace = row.fetchone() or ()
        assert (number, outcome, kind, message) == (1, "retry", "ValueError", "no luck")
        assert "in work" in trace
        advance(connection, 60)
        await auntil(lambda: one(connection, "select failures from sereno.jobs where id = %s", job.id) == 2)
        advance(connection, 120)
        await auntil(lambda: state(connection, job.id) == "dead")
    dead = connection.execute("select attempt, failures, reason, error_type from sereno.history").fetchone()
    assert dead == (3, 3, "failed 3 times", "ValueError")


@pytest.mark.slow
async def test_a_handler_can_set_the_retry_policy_of_its_job(app: Sereno, connection: psycopg.Connection) -> None:
    """The arguments of a job say how it is retried; the policy of the task is for jobs that set none."""

    @app.task(retry=QUICK)
    async def work(ctx: Context, retries: int, delay: int) -> None:
        ctx.retry = Backoff(retries, delays=[delay], jitter=0)
        raise ValueError("no luck")

    never, later = await work.aenqueue(0, 0), await work.aenqueue(1, 3600)
    async with app.working():
        await auntil(lambda: state(connection, never.id) == "dead")
        await auntil(lambda: one(connection, "select failures from sereno.jobs where id = %s", later.id) == 1)
        wait = one(connection, "select run_at - finished_at from sereno.jobs join sereno.attempts on job_id = id")
        assert wait == timedelta(hours=1)
        advance(connection, 3600)
        await auntil(lambda: state(connection, later.id) == "dead")
    reasons = connection.execute("select reason from sereno.history order by id").fetchall()
    assert reasons == [("failed 1 times",), ("failed 2 times",)]


async def test_a_permanent_error_makes_a_job_dead_at_once(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task(retry=Backoff(5, permanent=(KeyError,)))
    async def work() -> None:
        raise KeyError("closed")

    job = await work.aenqueue()
    await run_until(app, connection, job.id, "dead")
    assert one(connection, "select reason from sereno.history") == "permanent error: KeyError"


async def test_the_delay_of_retry_is_exact(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task(retry=QUICK)
    async def work() -> None:
        raise Retry("429", after="17m")

    job = await work.aenqueue()
    async with app.working():
        await auntil(lambda: one(connection, "select failures from sereno.jobs where id = %s", job.id) == 1)
    wait = one(connection, "select run_at - finished_at from sereno.jobs join sereno.attempts on job_id = id")
    assert wait == timedelta(minutes=17)


@pytest.mark.slow
async def test_a_snooze_counts_no_failure(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task(retry=Backoff(0))
    async def work(ctx: Context) -> Snooze | None:
        return Snooze("5m") if ctx.attempt < 3 else None

    job = await work.aenqueue()
    async with app.working():
        for snoozes in (1, 2):
            await auntil(lambda: one(connection, "select snoozes from sereno.jobs where id = %s", job.id) == snoozes)  # noqa: B023
            advance(connection, 300)
        await auntil(lambda: state(connection, job.id) == "succeeded")
    assert connection.execute("select attempt, failures, snoozes from sereno.history").fetchone() == (3, 0, 2)


@pytest.mark.slow
@pytest.mark.parametrize("is_async", [True, False])
async def test_a_job_is_cancelled_before_its_first_step(
    app: Sereno, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch, is_async: bool
) -> None:
    """The NOTIFY of a cancel may arrive in the same turn of the event loop as the job, if that does not run at once."""
    asyncio.get_running_loop().set_task_factory(lambda loop, job, **options: asyncio.Task(job, loop=loop, **options))
    start = Executor.start
    calls: list[str] = []

    def start_and_cancel(self: Executor, definition: TaskDefinition, jobs: list[ClaimedJob]) -> None:
        start(self, definition, jobs)
        if definition.name == "work":
            self.cancel(jobs[0].id)

    monkeypatch.setattr(Executor, "start", start_and_cancel)

    async def wait() -> None:
        calls.append("async")

    def block() -> None:
        calls.append("sync")

    work, after = app.task(name="work")(wait if is_async else block), app.task(name="after")(wait)
    cancelled = await work.aenqueue()
    async with app.working({"default": 1}):
        await auntil(lambda: state(connection, cancelled.id) == "cancelled")
        assert calls == []
        later = await after.aenqueue()
        await auntil(lambda: state(connection, later.id) == "succeeded")


async def test_dead_and_cancel_end_a_job_with_their_reason(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task
    async def work(outcome: str) -> Cancel:
        if outcome == "dead":
            raise Dead("account closed")
        return Cancel("not wanted")

    dead, cancelled = await work.aenqueue("dead"), await work.aenqueue("cancel")
    async with app.working():
        await auntil(lambda: state(connection, dead.id) == "dead" and state(connection, cancelled.id) == "cancelled")
    reasons: dict[str, str] = dict(connection.execute("select state, reason from sereno.history").fetchall())
    assert reasons == {"dead": "account closed", "cancelled": "not wanted"}


async def test_an_error_that_postgresql_cannot_store_still_settles(app: Sereno, connection: psycopg.Connection) -> None:
    class UnstorableError(Exception):
        def __str__(self) -> str:
            return "NUL \x00 and surrogate \ud800"

    @app.task(retry=Backoff(0))
    async def work() -> None:
        raise UnstorableError

    job = await work.aenqueue()
    await run_until(app, connection, job.id, "dead")
    assert "NUL" in one(connection, "select error_message from sereno.history")


async def test_a_job_with_undecodable_arguments_is_dead_with_its_arguments(
    app: Sereno, connection: psycopg.Connection
) -> None:
    @app.task
    async def work(n: int) -> None: ...

    job_id = one(connection, """select sereno.enqueue('work', '{"n": "seven", "extra": true}')""")
    await run_until(app, connection, job_id, "dead")
    reason, args = connection.execute("select reason, args from sereno.history").fetchone() or ()
    assert reason.startswith("undecodable arguments: task work:")
    assert args == {"n": "seven", "extra": True}


async def test_an_unknown_task_stays_for_a_worker_that_knows_it(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task
    async def known() -> None: ...

    unknown = one(connection, "select sereno.enqueue('unknown_here')")
    job = await known.aenqueue()
    await run_until(app, connection, job.id, "succeeded")
    assert connection.execute("select state, attempt from sereno.jobs where id = %s", [unknown]).fetchone() == (
        "ready",
        0,
    )


async def test_an_expired_job_does_not_run(app: Sereno, connection: psycopg.Connection) -> None:
    ran = []

    @app.task
    async def work() -> None:
        ran.append(1)

    job = await work.using(expires_at=datetime.now(UTC) - timedelta(seconds=1)).aenqueue()
    await run_until(app, connection, job.id, "dead")
    assert not ran
    assert "expired" in one(connection, "select reason from sereno.history")


async def test_the_handlers_own_commit_settles_the_job(app: Sereno, connection: psycopg.Connection) -> None:
    connection.execute("create table effects (job bigint)")

    @app.task
    async def work(ctx: Context) -> None:
        async with ctx.transaction() as own:
            await own.execute("insert into effects values (%s)", [ctx.job_id])

    @app.task
    def plain(ctx: Context) -> None:
        with ctx.transaction() as own:
            own.execute("insert into effects values (%s)", [ctx.job_id])

    jobs = [await work.aenqueue(), await plain.aenqueue()]
    async with app.working():
        await auntil(lambda: all(state(connection, job.id) == "succeeded" for job in jobs))
    assert {row[0] for row in connection.execute("select job from effects")} == {job.id for job in jobs}


@pytest.mark.slow
async def test_a_lost_lease_rolls_the_handlers_transaction_back(app: Sereno, connection: psycopg.Connection) -> None:
    connection.execute("create table effects (job bigint)")
    errors: list[BaseException] = []

    @app.task
    async def work(ctx: Context) -> None:
        try:
            async with ctx.transaction() as own:
                await own.execute("insert into effects values (%s)", [ctx.job_id])
                # Another session has the job now.
                connection.execute("update sereno.jobs set attempt = attempt + 1")
        except Exception as error:
            errors.append(error)
            raise

    await work.aenqueue()
    async with app.working():
        await auntil(lambda: errors)
    assert type(errors[0]).__name__ == "LeaseLost"
    assert one(connection, "select count(*) from effects") == 0
    assert one(connection, "select count(*) from sereno.history") == 0


@pytest.mark.slow
async def test_steps_run_once_and_are_skipped_by_a_retry(app: Sereno, connection: psycopg.Connection) -> None:
    calls: list[str] = []

    def download(name: str) -> dict[str, int]:
        calls.append(name)
        return {"size": 7}

    @app.task(retry=Backoff(3, delays=["1s"], jitter=0))
    async def work(ctx: Context) -> None:
        first = await ctx.step("download", download, "file")
        assert first == {"size": 7}
        if ctx.attempt == 1:
            raise RuntimeError("after the first step")
        await ctx.step("upload", asyncio.sleep, 0)

    @app.task(retry=Backoff(3, delays=["1s"], jitter=0))
    def plain(ctx: Context) -> None:
        ctx.run_step("download", download, "plain")
        if ctx.attempt == 1:
            raise RuntimeError("again")

    jobs = [await work.aenqueue(), await plain.aenqueue()]
    async with app.working():
        await auntil(lambda: one(connection, "select count(*) from sereno.attempts") == 2)
        advance(connection, 5)
        await auntil(lambda: all(state(connection, job.id) == "succeeded" for job in jobs))
        await auntil(lambda: one(connection, "select count(*) from sereno.steps") == 0)
    assert sorted(calls) == ["file", "plain"]


WAITS_FOR_ITS_PARTITION = """
select exists (
    select from pg_locks join pg_database on pg_database.oid = database
    where datname = current_database() and not granted
    and relation in ('sereno.history_done'::regclass, 'sereno.history_done_default'::regclass))
"""


@pytest.mark.slow
@pytest.mark.parametrize("own", [False, True], ids=["in a batch", "in its own transaction"])
async def test_an_outcome_settled_while_its_partition_is_created_is_stored_in_it(
    app: Sereno, connection: psycopg.Connection, database_url: str, own: bool
) -> None:
    """A row that was routed to the default partition would be refused there."""
    today = one(connection, "select 'history_done_' || to_char(now() at time zone 'UTC', 'YYYYMMDD')")
    connection.execute(f"drop table sereno.{today}")

    @app.task(retry=Backoff(1))
    async def work(ctx: Context) -> None:
        if own:
            async with ctx.transaction():
                pass

    job = await work.aenqueue()
    with psycopg.connect(database_url) as creator:
        creator.execute("select sereno.make_history_partition((now() at time zone 'UTC')::date)")
        async with app.working():
            await auntil(lambda: one(connection, WAITS_FOR_ITS_PARTITION))
            creator.commit()
            await auntil(lambda: state(connection, job.id) == "succeeded")
    assert one(connection, f"select count(*) from sereno.{today}") == 1


@pytest.mark.slow
async def test_steps_are_deleted_with_their_jobs_in_batches(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task
    async def work(ctx: Context, number: int) -> None:
        await ctx.step("one", asyncio.sleep, 0)
        async with ctx.transaction():
            pass

    await app.aenqueue_many([work.job(number) for number in range(300)])
    async with app.working({"default": 50}):
        await auntil(lambda: one(connection, "select count(*) from sereno.jobs") == 0)
    assert one(connection, "select count(*) from sereno.history") == 300
    assert one(connection, "select count(*) from sereno.steps") == 0


@pytest.mark.slow
async def test_sleep_until_frees_the_slot_and_the_job_continues_later(
    app: Sereno, connection: psycopg.Connection
) -> None:
    morning = datetime.now(UTC) + timedelta(hours=8)

    @app.task
    async def work(ctx: Context) -> None:
        await ctx.step("before", asyncio.sleep, 0)
        await ctx.sleep_until(morning)

    job = await work.aenqueue()
    async with app.working() as worker:
        await auntil(lambda: one(connection, "select snoozes from sereno.jobs where id = %s", job.id) == 1)
        assert not worker.executor.running
        advance(connection, 8 * 3600 + 1)
        await auntil(lambda: state(connection, job.id) == "succeeded")


@pytest.mark.slow
async def test_progress_is_visible_while_a_job_runs(app: Sereno, connection: psycopg.Connection) -> None:
    proceed = asyncio.Event()

    @app.task
    async def work(ctx: Context) -> None:
        ctx.progress(0.4, "downloading")
        await proceed.wait()

    job = await work.aenqueue()
    async with app.working():
        await auntil(lambda: one(connection, "select fraction from sereno.progress where job_id = %s", job.id) == 0.4)
        proceed.set()
        await auntil(lambda: state(connection, job.id) == "succeeded")
        await auntil(lambda: one(connection, "select count(*) from sereno.progress") == 0)


async def test_a_task_may_store_no_history(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task(history=False)
    async def work() -> None: ...

    await work.aenqueue()
    async with app.working():
        await auntil(lambda: one(connection, "select count(*) from sereno.jobs") == 0)
    assert one(connection, "select count(*) from sereno.history") == 0


async def test_an_error_after_the_handlers_own_commit_changes_nothing(
    app: Sereno, connection: psycopg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task
    async def work(ctx: Context) -> None:
        async with ctx.transaction():
            pass
        with pytest.raises(ConfigurationError, match="has already settled it"):
            ctx.transaction()
        raise ValueError("too late")

    job = await work.aenqueue()
    await run_until(app, connection, job.id, "succeeded")
    assert [r.event for r in caplog.records if r.levelname == "WARNING"] == ["job.error_after_success"]  # type: ignore[attr-defined]


async def test_a_refused_enqueue_inside_a_handler_fails_its_job(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task
    async def other(n: int) -> None: ...

    @app.task(retry=0)
    async def work() -> None:
        await other.aenqueue("seven")  # type: ignore[arg-type]  # the mistake under test

    job = await work.aenqueue()
    await run_until(app, connection, job.id, "dead")
    assert one(connection, "select reason from sereno.history") == "failed 1 times"


@pytest.mark.slow
async def test_a_sleep_continues_at_its_stored_end(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task
    async def work(ctx: Context) -> None:
        await ctx.sleep("three days", "3d")

    job = await work.aenqueue()
    async with app.working():
        await auntil(lambda: one(connection, "select snoozes from sereno.jobs where id = %s", job.id) == 1)
        advance(connection, 3 * 86400)
        await auntil(lambda: state(connection, job.id) == "succeeded")
    assert one(connection, "select snoozes from sereno.history") == 1
