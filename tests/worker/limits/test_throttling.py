"""`RetryAfter` and `ctx.throttle` close a limit for all jobs, and count no failure."""

import logging

import psycopg
import pytest

from sereno import Backoff, Context, Limit, Rate, RetryAfter, Sereno
from tests.facts import auntil, state
from tests.worker.limits import limited_tasks
from tests.worker.limits.limit_facts import advance_until, closed, finished, waiting

PROVIDER = Rate(1000, name="provider")


@pytest.mark.slow
async def test_retry_after_closes_the_limit_for_all_jobs_and_counts_no_failure(
    database_url: str, connection: psycopg.Connection
) -> None:
    app = Sereno(database_url, poll=0.1)
    ran: list[str] = []

    @app.task(rate=PROVIDER)
    async def throttled(ctx: Context) -> None:
        ran.append(f"throttled {ctx.attempt}")
        if ctx.attempt == 1:
            raise RetryAfter("1h")

    @app.task(rate=PROVIDER)
    async def innocent() -> None:
        ran.append("innocent")

    @app.task(rate=Rate(1000, name="elsewhere"))
    async def elsewhere() -> None:
        ran.append("elsewhere")

    async with app.working():
        job = await throttled.aenqueue()
        await auntil(lambda: state(connection, job.id) == "scheduled")
        await auntil(lambda: closed(connection, "provider") == [""])
        await innocent.aenqueue()
        await auntil(lambda: waiting(connection) == 1)
        await elsewhere.aenqueue()
        await auntil(lambda: finished(connection, "elsewhere") == 1)
        assert ran == ["throttled 1", "elsewhere"]
        assert await advance_until(connection, lambda: finished(connection) == 3, 600) >= 3600
    row = connection.execute("select attempt, failures, snoozes from sereno.history where id = %s", [job.id]).fetchone()
    assert row == (2, 0, 1)


@pytest.mark.slow
async def test_retry_after_closes_only_the_named_limit(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task(rate=[Rate(1000, name="one"), Rate(1000, name="other")], concurrency=Limit(9, key="{account}", name="at"))
    async def named(account: str) -> None:
        raise RetryAfter("1h", limit="other")

    @app.task(rate=[Rate(1000, key="{account}", name="third"), Rate(1000, name="fourth")])
    async def unnamed(account: str) -> None:
        raise RetryAfter("1h")

    async with app.working():
        await named.aenqueue("a")
        await unnamed.aenqueue("b")
        await auntil(lambda: closed(connection, "other") == [""])
        await auntil(lambda: (closed(connection, "third"), closed(connection, "fourth")) == (["b"], [""]))
    # Neither the limit that was not named, nor the concurrency limit.
    assert (closed(connection, "one"), closed(connection, "at")) == ([], [])


async def test_retry_after_of_a_sync_handler_closes_the_limit(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task(rate=Rate(1000, key="{account}", name="provider"))
    def work(account: str) -> None:
        raise RetryAfter("1h")

    async with app.working():
        job = await work.aenqueue("a")
        await auntil(lambda: state(connection, job.id) == "scheduled")
        await auntil(lambda: closed(connection, "provider") == ["a"])


@pytest.mark.slow
async def test_throttle_works_in_async_and_sync_handlers(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task(rate=Rate(1000, key="{account}", name="in-loop"))
    async def in_loop(ctx: Context, account: str) -> None:
        ctx.throttle("in-loop", seconds="1h")

    @app.task(rate=Rate(1000, key="{account}", name="in-thread"))
    def in_thread(ctx: Context, account: str) -> None:
        ctx.throttle("in-thread", seconds="1h")

    async with app.working():
        await in_loop.aenqueue("a")
        await in_thread.aenqueue("b")
        await auntil(lambda: finished(connection) == 2)
        await auntil(lambda: closed(connection, "in-loop") == ["a"])
        await auntil(lambda: closed(connection, "in-thread") == ["b"])
        # The same key waits; another one does not.
        await in_loop.aenqueue("a")
        await in_thread.aenqueue("b")
        await in_loop.aenqueue("c")
        await auntil(lambda: waiting(connection) == 2)
        await auntil(lambda: finished(connection) == 3)


@pytest.mark.slow
async def test_throttle_works_in_an_isolated_process(app: Sereno, connection: psycopg.Connection) -> None:
    limited_tasks.adopt(app)
    new = [
        app.new_job("throttles", b'{"account": "a"}'),
        app.new_job("throttles_in_a_thread", b'{"account": "b"}'),
    ]
    async with app.working():
        jobs = await app.aenqueue_many(new)
        await auntil(lambda: finished(connection) == 2, timeout=60)
    assert closed(connection, "isolated") == ["a", "b"]
    assert {state(connection, job.id) for job in jobs} == {"succeeded"}


async def test_throttle_closes_a_limit_and_key_of_other_jobs(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task(rate=Rate(1000, key="{account}", name="provider"))
    async def other(account: str) -> None: ...

    @app.task
    async def work(ctx: Context) -> None:
        ctx.throttle("provider", key="a", seconds="1h")

    async with app.working():
        await work.aenqueue()
        await auntil(lambda: closed(connection, "provider") == ["a"])
        await other.aenqueue("a")
        await other.aenqueue("b")
        await auntil(lambda: waiting(connection) == 1)
        await auntil(lambda: finished(connection, "other") == 1)


async def test_throttling_an_unknown_limit_raises_in_a_thread_and_is_logged_in_a_loop(
    app: Sereno, connection: psycopg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task(retry=Backoff(0))
    def in_thread(ctx: Context) -> None:
        ctx.throttle("unknown", seconds=30)

    @app.task(retry=Backoff(0))
    async def in_loop(ctx: Context) -> None:
        ctx.throttle("unknown", seconds=30)

    with caplog.at_level(logging.ERROR):
        async with app.working():
            fails = await in_thread.aenqueue()
            succeeds = await in_loop.aenqueue()
            await auntil(lambda: finished(connection) == 2)
            await auntil(lambda: "limit unknown" in caplog.text)
    assert (state(connection, fails.id), state(connection, succeeds.id)) == ("dead", "succeeded")
    row = connection.execute("select error_type, error_message from sereno.history_dead").fetchone()
    assert row == ("ConfigurationError", "ctx.throttle: there is no limit named unknown")
