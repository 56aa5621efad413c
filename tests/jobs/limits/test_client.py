"""`app.limits`: limits are changed at run time, and waiting jobs start."""

import asyncio
import inspect
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from sereno import ConfigurationError, InvalidArguments, Limit, Rate, RetryAfter, Sereno
from sereno.jobs.limits.client import LimitsClient
from tests.facts import auntil, one


@pytest.fixture
def ran(app: Sereno) -> list[int]:
    """Return the jobs that a worker ran, of tasks that cannot start under their declared limits."""
    app.override(scheduler=False)
    done: list[int] = []

    @app.task(name="stopped", concurrency=Limit(0))
    async def stopped(n: int) -> None:
        done.append(n)

    @app.task(name="slow", rate=Rate(1, per="1h", name="slow"))
    async def slow(n: int) -> None:
        done.append(n)

    @app.task(name="each", concurrency=Limit(1, key="{tenant}"))
    async def each(n: int) -> None:
        done.append(n)

    @app.task(name="plain", queue="reconcile")
    async def plain(n: int) -> None:
        done.append(n)

    app.queue("reconcile", concurrency=Limit(0))
    return done


def enqueue(app: Sereno, task: str, count: int) -> None:
    app.enqueue_many([app.new_job(task, f'{{"n": {n}}}'.encode()) for n in range(count)])


def waiting(app: Sereno, name: str, count: int) -> Callable[[], bool]:
    """Return a condition: this many jobs wait for the limit."""
    return lambda: any(row.waiting == count for row in app.limits.list(name))


@pytest.mark.slow
async def test_more_slots_apply_at_once(app: Sereno, ran: list[int]) -> None:
    async with app.working():
        enqueue(app, "stopped", 5)
        await auntil(waiting(app, "stopped.concurrency", 5))
        assert ran == []
        await asyncio.to_thread(app.limits.set, "stopped.concurrency", slots=2)
        await auntil(lambda: sorted(ran) == [0, 1, 2, 3, 4])
        await asyncio.to_thread(app.limits.reset, "stopped.concurrency")
        enqueue(app, "stopped", 1)
        await auntil(waiting(app, "stopped.concurrency", 1))
    assert len(ran) == 5


async def test_a_faster_rate_applies_at_once(app: Sereno, ran: list[int]) -> None:
    async with app.working():
        enqueue(app, "slow", 5)
        await auntil(lambda: len(ran) == 1)
        await auntil(waiting(app, "slow", 4))
        await app.limits.aset("slow", rate=1000, burst=100)
        await auntil(lambda: len(ran) == 5)


@pytest.mark.slow
async def test_a_limit_of_a_whole_queue_is_lifted_and_restored(app: Sereno, ran: list[int]) -> None:
    async with app.working():
        enqueue(app, "plain", 3)
        await auntil(waiting(app, "queue.reconcile.concurrency", 3))
        assert ran == []
        await app.limits.aset_queue("reconcile", slots=2)
        await auntil(lambda: len(ran) == 3)
        await app.limits.aset_queue("reconcile", slots=0)
        enqueue(app, "plain", 2)
        await auntil(waiting(app, "queue.reconcile.concurrency", 2))
    assert len(ran) == 3


@pytest.mark.slow
async def test_an_undeclared_queue_limit_stops_and_frees_the_queue(app: Sereno, ran: list[int]) -> None:
    free: list[int] = []

    @app.task(name="free", queue="mail")
    async def task(n: int) -> None:
        free.append(n)

    async with app.working():
        await asyncio.to_thread(app.limits.set_queue, "mail", slots=0)
        enqueue(app, "free", 3)
        await auntil(waiting(app, "queue.mail.concurrency", 3))
        assert free == []
        assert await app.limits.areset("queue.mail.concurrency") is None
        await auntil(lambda: len(free) == 3)
    assert ran == []


@pytest.mark.slow
async def test_jobs_of_a_closed_limit_start_when_it_is_opened(app: Sereno, ran: list[int]) -> None:
    async with app.working():
        await asyncio.to_thread(app.limits.close, "each.concurrency", seconds="1h", key="")
        enqueue(app, "each", 3)
        await auntil(waiting(app, "each.concurrency", 3))
        (limiter,) = app.limits.show("each.concurrency").keys
        assert limiter.closed_until is not None
        assert (limiter.waiting, limiter.held) == (3, [])
        assert ran == []
        assert await asyncio.to_thread(app.limits.open, "each.concurrency") == 1
        await auntil(lambda: ran == [0, 1, 2])


@pytest.mark.slow
async def test_a_closed_rate_starts_when_it_is_opened(app: Sereno, ran: list[int]) -> None:
    async with app.working():
        await app.limits.aset("slow", rate=1000)
        await app.limits.aclose("slow", seconds=3600)
        enqueue(app, "slow", 3)
        await auntil(waiting(app, "slow", 3))
        assert ran == []
        assert await app.limits.aopen("slow") == 1
        await auntil(lambda: len(ran) == 3)


async def test_a_retry_after_is_capped_at_a_year_and_does_not_stop_the_worker(app: Sereno, ran: list[int]) -> None:
    @app.task(name="throttled", rate=Rate(100, name="throttled"))
    async def throttled(n: int) -> RetryAfter:
        return RetryAfter("999999999999999")

    @app.task(name="free")
    async def free(n: int) -> None:
        ran.append(n)

    async with app.working():
        enqueue(app, "throttled", 1)
        await auntil(lambda: any(row.closed for row in app.limits.list("throttled")))
        enqueue(app, "free", 1)
        await auntil(lambda: len(ran) == 1)
    (limiter,) = app.limits.show("throttled").keys
    assert limiter.closed_until is not None
    assert limiter.closed_until < datetime.now(UTC) + timedelta(days=366)


@pytest.mark.slow
async def test_the_jobs_that_hold_a_slot_are_shown(app: Sereno, ran: list[int]) -> None:
    release = asyncio.Event()

    @app.task(name="hold", concurrency=Limit(2, key="{tenant}"))
    async def hold(n: int) -> None:
        await release.wait()
        ran.append(n)

    async with app.working():
        jobs = app.enqueue_many([hold.using(tenant="r1").job(n=n) for n in range(5)])
        await auntil(waiting(app, "hold.concurrency", 3))
        detail = await app.limits.ashow("hold.concurrency")
        assert (detail.limit.held, detail.limit.keys, detail.limit.waiting) == (2, 1, 3)
        (key,) = detail.keys
        assert (key.key, key.held, key.waiting, key.tokens) == ("r1", [job.id for job in jobs[:2]], 3, None)
        assert (await app.limits.ashow("hold.concurrency", key="r2")).keys == []
        release.set()
        await auntil(lambda: len(ran) == 5)


async def test_sync_and_async_methods_have_the_same_effect(app: Sereno, connection: psycopg.Connection) -> None:
    limits = app.limits
    made = limits.set_queue("mail", slots=3, actor="eve@host", note="slow today")
    assert [made] == list(await limits.alist("queue.*")) == list(limits.list())
    assert (await limits.aset("queue.mail.concurrency", slots=4, actor="eve@host")).slots == 4
    assert limits.show(made.name).limit.slots == 4
    until = await limits.aclose(made.name, seconds="1m", actor="eve@host")
    assert limits.close(made.name, seconds="1s", actor="eve@host") == until
    assert (await limits.aopen(made.name, actor="eve@host"), limits.open(made.name, actor="eve@host")) == (1, 0)
    limits.weigh("r1", 3, actor="eve@host")
    await limits.aweigh("r2", 2, actor="eve@host")
    assert [line.key for line in limits.weights()] == ["r1", "r2"]
    assert (limits.unweigh("r1", actor="eve@host"), await limits.aunweigh("r1")) == (True, False)
    assert [line.key for line in await limits.aweights()] == ["r2"]
    assert await limits.areset(made.name, actor="eve@host") is None
    actions = connection.execute("select action from sereno.audit where actor = 'eve@host' order by id").fetchall()
    assert [action for (action,) in actions] == [
        "limit.set",
        "limit.set",
        "limit.close",
        "limit.close",
        "limit.open",
        "limit.weigh",
        "limit.weigh",
        "limit.weigh",
        "limit.reset",
    ]
    assert one(connection, "select count(*) from sereno.audit") == len(actions)


def test_every_method_has_an_async_twin() -> None:
    methods = {name: method for name, method in vars(LimitsClient).items() if not name.startswith("_")}
    sync = {name: method for name, method in methods.items() if not inspect.iscoroutinefunction(method)}
    assert {f"a{name}" for name in sync} == set(methods) - set(sync)
    for name, method in sync.items():
        assert inspect.signature(method) == inspect.signature(methods[f"a{name}"])


@pytest.mark.parametrize("numbers", [{}, {"slots": -1}, {"rate": float("nan")}, {"slots": 1, "rate": 1}], ids=str)
async def test_invalid_numbers_are_refused_by_sync_and_async_methods(app: Sereno, numbers: Any) -> None:
    with pytest.raises(InvalidArguments):
        app.limits.set("none", **numbers)
    with pytest.raises(InvalidArguments):
        app.limits.set_queue("mail", **numbers)
    with pytest.raises(InvalidArguments):
        await app.limits.aset("none", **numbers)
    with pytest.raises(ConfigurationError, match="there is no limit 'none'"):
        await app.limits.areset("none")
