"""Jobs that wait for signals, with a running worker."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from sereno import Backoff, Context, Sereno
from sereno.errors import ConfigurationError, InvalidArguments
from sereno.jobs import signals
from tests.facts import auntil, one
from tests.jobs.job_steps import advance


def waiting(connection: psycopg.Connection, jobs: int = 1) -> bool:
    """Return whether this many jobs were settled as waiting."""
    return bool(one(connection, "select count(*) from sereno.signal_waits where attempt is not null") >= jobs)


def ended(connection: psycopg.Connection, jobs: int = 1) -> bool:
    return bool(one(connection, "select count(*) from sereno.history") >= jobs)


@dataclass
class Payment:
    amount: int


@pytest.mark.slow
async def test_a_job_waits_without_a_slot_and_gets_the_value(app: Sereno, connection: psycopg.Connection) -> None:
    got: list[Any] = []
    steps: list[str] = []

    @app.task
    async def order(ctx: Context, number: int) -> None:
        await ctx.step("reserve", steps.append, f"reserve {number}")
        got.append(await ctx.wait_for(f"paid:{number}", timeout="14d", type=Payment))
        await ctx.step("ship", steps.append, f"ship {number}")

    @app.task
    def plain(ctx: Context, number: int) -> None:
        got.append(ctx.receive(f"paid:{number}", type=Payment))

    await order.aenqueue(42)
    await plain.aenqueue(42)
    # One slot: the second job runs while the first one waits.
    async with app.working({"default": 1}):
        await auntil(lambda: waiting(connection, 2))
        rows = connection.execute(
            "select state, session_id, snoozes, extract(year from run_at) from sereno.jobs order by id"
        ).fetchall()
        assert [row[:3] for row in rows] == [("scheduled", None, 1)] * 2
        assert rows[1][3] == signals.NEVER.year
        await app.asignal("paid:42", Payment(7))
        await auntil(lambda: ended(connection, 2))
    assert got == [Payment(7), Payment(7)]
    assert steps == ["reserve 42", "ship 42"]
    assert one(connection, "select count(*) from sereno.history where state = 'succeeded' and failures = 0") == 2
    assert one(connection, "select count(*) from sereno.signal_waits") == 0
    assert one(connection, "select count(*) from sereno.steps") == 0


@pytest.mark.slow
async def test_a_later_attempt_gets_the_same_value(app: Sereno, connection: psycopg.Connection) -> None:
    got: list[Any] = []

    @app.task(retry=Backoff(3, delays=["1s"], jitter=0))
    async def order(ctx: Context) -> None:
        got.append(await ctx.wait_for("price", which="latest"))
        if len(got) == 1:
            raise RuntimeError("after the signal")

    await order.aenqueue()
    app.signal("price", 1)
    app.signal("price", 2)
    async with app.working():
        await auntil(lambda: one(connection, "select count(*) from sereno.attempts") == 1)
        app.signal("price", 3)
        advance(connection, 5)
        await auntil(lambda: ended(connection))
    assert got == [2, 2]


@pytest.mark.slow
async def test_a_timeout_is_an_answer_that_later_attempts_get_too(app: Sereno, connection: psycopg.Connection) -> None:
    got: list[str] = []

    @app.task(retry=Backoff(3, delays=["1s"], jitter=0))
    async def order(ctx: Context) -> None:
        try:
            await ctx.wait_for("paid", timeout="10s")
        except TimeoutError as error:
            got.append(str(error))
        if len(got) == 1:
            raise RuntimeError("after the timeout")

    job = await order.aenqueue()
    async with app.working():
        await auntil(lambda: waiting(connection))
        advance(connection, 11)
        await auntil(lambda: len(got) == 1)
        app.signal("paid", 1)
        advance(connection, 5)
        await auntil(lambda: ended(connection))
    assert got == [f"job {job.id}: no signal 'paid' was sent in time"] * 2


async def test_which_signals_a_job_sees(app: Sereno, connection: psycopg.Connection) -> None:
    got: dict[str, Any] = {}

    @app.task
    async def order(ctx: Context, which: str) -> None:
        got[which] = await ctx.wait_for("seen", which=which, type=int)  # type: ignore[call-overload]  # as text

    app.signal("seen", 0)
    for which in ("first", "latest", "all"):
        await order.aenqueue(which)
    app.signal("seen", 9, tenant="other")
    app.signal("seen", 1)
    app.signal("seen", 2)
    async with app.working():
        await auntil(lambda: ended(connection, 3))
    assert got == {"first": 1, "latest": 2, "all": [1, 2]}


@pytest.mark.slow
async def test_a_signal_of_another_tenant_wakes_no_job(app: Sereno, connection: psycopg.Connection) -> None:
    got: list[Any] = []

    @app.task
    async def order(ctx: Context) -> None:
        got.append((ctx.tenant, await ctx.wait_for("paid")))

    jobs = [await order.using(tenant=tenant).aenqueue() for tenant in ("a", "b")] + [await order.aenqueue()]
    async with app.working():
        await auntil(lambda: waiting(connection, len(jobs)))
        app.signal("paid", 1, tenant="a")
        await auntil(lambda: ended(connection))
        connection.execute("select sereno.signal('paid', '2')")
        await auntil(lambda: ended(connection, 2))
        assert one(connection, "select tenant from sereno.jobs where state = 'scheduled'") == "b"
    assert got == [("a", 1), (None, 2)]


@pytest.mark.slow
async def test_a_signal_arrives_with_the_commit_of_its_sender(app: Sereno, connection: psycopg.Connection) -> None:
    got: list[Any] = []

    @app.task
    async def order(ctx: Context) -> None:
        got.append(await ctx.wait_for("paid"))

    await order.aenqueue()
    async with app.working():
        await auntil(lambda: waiting(connection))
        async with await psycopg.AsyncConnection.connect(app.url) as own:
            await app.asignal("paid", "rolled back", conn=own)
            await own.rollback()
            await own.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
            await own.execute("select from sereno.jobs")
            await app.asignal("paid", "committed", conn=own)
            assert one(connection, "select state from sereno.jobs") == "scheduled"
            await own.commit()
        await auntil(lambda: ended(connection))
    assert got == ["committed"]


@pytest.mark.slow
async def test_jobs_that_wait_side_by_side_get_every_signal(app: Sereno, connection: psycopg.Connection) -> None:
    got: list[Any] = []

    @app.task(retry=0)
    async def order(ctx: Context) -> None:
        got.extend(await asyncio.gather(ctx.wait_for("paid"), ctx.wait_for("packed")))

    @app.task(retry=0)
    async def grouped(ctx: Context) -> None:
        async with asyncio.TaskGroup() as group:
            waits = [group.create_task(ctx.wait_for(name)) for name in ("paid", "packed")]
        got.extend(wait.result() for wait in waits)

    await order.aenqueue()
    await grouped.aenqueue()
    async with app.working():
        await auntil(lambda: waiting(connection, 2))
        app.signal("packed", "box")
        app.signal("paid", 7)
        await auntil(lambda: ended(connection, 2))
    assert got == [7, "box"] * 2


@pytest.mark.slow
async def test_a_signal_never_shortens_a_retry(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task(retry=Backoff(3, delays=["1h"], jitter=0))
    async def order(ctx: Context) -> None:
        await ctx.wait_for("first", timeout="10s")

    await order.aenqueue()
    async with app.working():
        await auntil(lambda: waiting(connection))
        advance(connection, 11)
        await auntil(lambda: one(connection, "select failures from sereno.jobs") == 1)
        due = one(connection, "select run_at from sereno.jobs")
        app.signal("first", 1)
        await app.database.arun(signals.wake_waiting())
        assert one(connection, "select run_at from sereno.jobs where state = 'scheduled'") == due


async def test_a_value_of_another_type_is_an_error_of_the_job(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task(retry=0)
    async def order(ctx: Context) -> None:
        await ctx.wait_for("paid", type=Payment)

    await order.aenqueue()
    app.signal("paid", {"amount": "seven"})
    async with app.working():
        await auntil(lambda: ended(connection))
    assert "signal 'paid': its value is not of the type" in one(connection, "select error_message from sereno.history")


async def test_a_batch_task_cannot_wait(app: Sereno, connection: psycopg.Connection) -> None:
    errors: list[BaseException] = []

    @app.task(batch=10, retry=0)
    async def order(ctx: Context, items: list[int]) -> None:
        try:
            await ctx.wait_for("paid")
        except ConfigurationError as error:
            errors.append(error)

    await order.aenqueue(1)
    async with app.working():
        await auntil(lambda: ended(connection))
    assert "a batch task cannot wait" in str(errors[0])


def test_a_signal_that_cannot_be_stored_is_refused(app: Sereno) -> None:
    for name, value in (("", 1), ("x" * 201, 1), ("nul\x00", 1), ("ok", float("nan")), ("ok", "x" * 1024 * 1024)):
        with pytest.raises(InvalidArguments, match="signal"):
            app.signal(name, value)
    with pytest.raises(InvalidArguments, match="tenant"):
        app.signal("ok", 1, tenant="")


async def test_old_signals_are_deleted_after_their_retention(app: Sereno, connection: psycopg.Connection) -> None:
    app.signal("old", 1)
    advance(connection, 30 * 86400.0)
    app.signal("young", 2)
    assert app.database.run(signals.forget_old(30)) is False
    assert [row.name for row in app.database.run(signals.list_signals())] == ["young"]
    assert datetime.now(UTC) < one(connection, "select sent_at from sereno.signals")
