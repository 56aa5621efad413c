"""A job that has begun with other steps than the code has now is dead, with an error that names them."""

import asyncio
import threading
from collections.abc import Awaitable, Callable

import psycopg
import pytest

from sereno import Backoff, Context, Sereno
from tests.facts import auntil, one
from tests.jobs.job_steps import advance

RETRY = Backoff(3, delays=["1s"], jitter=0)

Handler = Callable[[Context], Awaitable[None]]


async def two_attempts(app: Sereno, connection: psycopg.Connection, first: Handler, then: Handler) -> None:
    """Run one job: its first attempt by `first`, which raises at its end, the next ones by `then`."""

    @app.task(retry=RETRY)
    async def work(ctx: Context) -> None:
        if ctx.attempt == 1:
            await first(ctx)
            raise RuntimeError("the code is changed now")
        await then(ctx)

    await work.aenqueue()
    async with app.working():
        await auntil(lambda: one(connection, "select count(*) from sereno.attempts") == 1)
        advance(connection, 5)
        await auntil(lambda: one(connection, "select count(*) from sereno.history") == 1)


def ran(calls: list[str], name: str) -> Callable[[], None]:
    return lambda: calls.append(name)


async def test_a_step_before_stored_ones_makes_the_job_dead(app: Sereno, connection: psycopg.Connection) -> None:
    calls: list[str] = []

    async def first(ctx: Context) -> None:
        await ctx.step("reserve", ran(calls, "reserve"))
        await ctx.step("charge", ran(calls, "charge"))

    async def then(ctx: Context) -> None:
        await ctx.step("reserve", ran(calls, "reserve"))
        await ctx.step("check fraud", ran(calls, "check fraud"))
        await ctx.step("charge", ran(calls, "charge"))

    await two_attempts(app, connection, first, then)
    state, reason, message = (
        connection.execute("select state, reason, error_message from sereno.history").fetchone() or ()
    )
    assert (state, reason) == ("dead", "permanent error: StepOrderChanged")
    assert "step 'check fraud' is new, and an earlier attempt has stored 'charge' without it" in message
    assert "'check fraud@2'" in message
    assert calls == ["reserve", "charge"]


async def test_a_renamed_step_makes_the_job_dead(app: Sereno, connection: psycopg.Connection) -> None:
    calls: list[str] = []

    async def first(ctx: Context) -> None:
        await ctx.step("charge", ran(calls, "charge"))

    async def then(ctx: Context) -> None:
        await ctx.step("charge card", ran(calls, "charge card"))

    await two_attempts(app, connection, first, then)
    assert one(connection, "select state from sereno.history") == "dead"
    assert calls == ["charge"]


@pytest.mark.slow
async def test_a_step_after_stored_ones_runs(app: Sereno, connection: psycopg.Connection) -> None:
    calls: list[str] = []

    async def first(ctx: Context) -> None:
        await ctx.step("reserve", ran(calls, "reserve"))
        await ctx.step("charge", ran(calls, "charge"))

    async def then(ctx: Context) -> None:
        # The order of stored steps among themselves has no effects any more.
        await ctx.step("charge", ran(calls, "charge"))
        await ctx.step("reserve", ran(calls, "reserve"))
        if calls == ["reserve", "charge"]:
            await ctx.step("charge@2", ran(calls, "charge@2"))

    await two_attempts(app, connection, first, then)
    assert one(connection, "select state from sereno.history") == "succeeded"
    assert calls == ["reserve", "charge", "charge@2"]


async def test_a_step_that_failed_and_was_handled_runs_again(app: Sereno, connection: psycopg.Connection) -> None:
    calls: list[str] = []

    def decline() -> None:
        calls.append("charge")
        raise PermissionError("declined")

    async def handler(ctx: Context) -> None:
        try:
            await ctx.step("charge", decline)
        except PermissionError:
            await ctx.step("mail", ran(calls, "mail"))

    await two_attempts(app, connection, handler, handler)
    assert one(connection, "select state from sereno.history") == "succeeded"
    assert calls == ["charge", "mail", "charge"]


@pytest.mark.slow
async def test_steps_side_by_side_have_no_order(app: Sereno, connection: psycopg.Connection) -> None:
    calls: list[str] = []
    packed = asyncio.Event()

    async def pay(ctx: Context) -> None:
        # In the first attempt this step is asked for after the other one was stored, in the second one before.
        if ctx.attempt == 1:
            await packed.wait()
            raise RuntimeError("before the step")
        await ctx.step("pay", ran(calls, "pay"))

    async def pack(ctx: Context) -> None:
        if ctx.attempt > 1:
            await auntil(lambda: "pay" in calls)
        await ctx.step("pack", ran(calls, "pack"))
        packed.set()

    async def handler(ctx: Context) -> None:
        await asyncio.gather(pay(ctx), pack(ctx))
        await ctx.step("ship", ran(calls, "ship"))

    await two_attempts(app, connection, handler, handler)
    assert one(connection, "select state from sereno.history") == "succeeded"
    assert calls == ["pack", "pay", "ship"]


async def test_the_order_of_sync_steps_is_that_of_the_handlers_thread(
    app: Sereno, connection: psycopg.Connection
) -> None:
    calls: list[str] = []

    @app.task(retry=RETRY)
    def work(ctx: Context) -> None:
        ctx.run_step("reserve", ran(calls, "reserve"))
        if ctx.attempt == 1:
            beside = threading.Thread(target=ctx.run_step, args=("log", ran(calls, "log")))
            beside.start()
            beside.join()
            ctx.run_step("charge", ran(calls, "charge"))
            raise RuntimeError("the code is changed now")
        ctx.run_step("check fraud", ran(calls, "check fraud"))

    job = await work.aenqueue()
    async with app.working():
        await auntil(lambda: one(connection, "select count(*) from sereno.attempts") == 1)
        stored = connection.execute("select name, position from sereno.steps order by done_at").fetchall()
        assert stored == [("reserve", 1), ("log", None), ("charge", 2)]
        advance(connection, 5)
        await auntil(lambda: one(connection, "select count(*) from sereno.history") == 1)
    message = one(connection, "select error_message from sereno.history")
    assert message.startswith(
        f"job {job.id}: step 'check fraud' is new, and an earlier attempt has stored 'charge' without"
    )


@pytest.mark.slow
async def test_a_wait_for_a_signal_is_a_step_too(app: Sereno, connection: psycopg.Connection) -> None:
    async def first(ctx: Context) -> None:
        app.signal("paid", 1)
        await ctx.wait_for("paid")
        await ctx.step("ship", lambda: None)

    async def then(ctx: Context) -> None:
        await ctx.wait_for("approved")

    await two_attempts(app, connection, first, then)
    assert "stored 'signal:paid', 'ship' without it" in one(connection, "select error_message from sereno.history")


async def test_a_step_beside_the_handler_may_be_later_than_in_the_earlier_attempt(
    app: Sereno, connection: psycopg.Connection
) -> None:
    calls: list[str] = []

    async def first(ctx: Context) -> None:
        await asyncio.create_task(ctx.step("log", ran(calls, "log")))

    async def log(ctx: Context) -> None:
        await auntil(lambda: "charge" in calls)
        await ctx.step("log", ran(calls, "log"))

    async def then(ctx: Context) -> None:
        beside = asyncio.create_task(log(ctx))
        await ctx.step("charge", ran(calls, "charge"))
        await beside

    await two_attempts(app, connection, first, then)
    assert one(connection, "select state from sereno.history") == "succeeded"
    assert calls == ["log", "charge"]


async def test_a_step_beside_the_handler_may_be_earlier_than_in_the_earlier_attempt(
    app: Sereno, connection: psycopg.Connection
) -> None:
    calls: list[str] = []

    async def first(ctx: Context) -> None:
        await ctx.step("charge", ran(calls, "charge"))

    async def then(ctx: Context) -> None:
        await asyncio.create_task(ctx.step("log", ran(calls, "log")))
        await ctx.step("charge", ran(calls, "charge"))

    await two_attempts(app, connection, first, then)
    assert one(connection, "select state from sereno.history") == "succeeded"
    assert calls == ["charge", "log"]
