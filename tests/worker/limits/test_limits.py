"""Limits with a live worker: concurrency and rate, alone and together."""

import asyncio

import psycopg
import pytest

from sereno import Limit, Rate, Sereno
from sereno.database.statement import run
from sereno.jobs.limits.store import change
from tests.facts import advance, auntil, one, state
from tests.worker.limits.limit_facts import Inside, advance_until, finished, waiting


@pytest.fixture
def inside() -> Inside:
    return Inside()


async def set_slots(connection: psycopg.Connection, name: str, slots: int, queue: str | None = None) -> None:
    """Set a limit in a thread: the statement waits for a claim in progress, which this loop has to finish."""
    operation = change(name, "slots", {"slots": slots}, queue=queue, actor="me", note=None)
    assert await asyncio.to_thread(run, connection, operation)


@pytest.mark.slow
async def test_a_concurrency_limit_applies_to_each_key(
    app: Sereno, connection: psycopg.Connection, inside: Inside
) -> None:
    proceed = asyncio.Event()

    @app.task(concurrency=Limit(2, key="{account}"))
    async def work(account: str) -> None:
        with inside.here(account):
            await proceed.wait()

    await app.aenqueue_many([work.job(account) for account in "aabbabab"])
    async with app.working():
        await auntil(lambda: inside.now == {"a": 2, "b": 2})
        await auntil(lambda: waiting(connection) == 2)
        proceed.set()
        await auntil(lambda: finished(connection) == 8)
    assert inside.most == {"a": 2, "b": 2}


@pytest.mark.slow
async def test_several_limits_apply_together(app: Sereno, connection: psycopg.Connection, inside: Inside) -> None:
    @app.task(concurrency=[Limit(2, key="{account}"), Limit(3, name="together")])
    async def work(account: str) -> None:
        with inside.here(account, "all"):
            await asyncio.sleep(0.005)

    await app.aenqueue_many([work.job("abc"[n % 3]) for n in range(90)])
    async with app.working():
        await auntil(lambda: finished(connection) == 90)
    assert inside.most["all"] == 3
    assert max(inside.most[account] for account in "abc") <= 2


@pytest.mark.slow
async def test_two_tasks_that_name_one_limit_share_it(
    app: Sereno, connection: psycopg.Connection, inside: Inside
) -> None:
    @app.task(concurrency=Limit(2, name="shared"))
    async def one_task(n: int) -> None:
        with inside.here("all"):
            await asyncio.sleep(0.005)

    @app.task(queue="other", concurrency=Limit(2, name="shared"))
    async def other_task(n: int) -> None:
        with inside.here("all"):
            await asyncio.sleep(0.005)

    await app.aenqueue_many([task.job(n) for n in range(20) for task in (one_task, other_task)])
    async with app.working():
        await auntil(lambda: finished(connection) == 40)
    assert inside.most["all"] == 2


@pytest.mark.slow
async def test_a_limit_given_with_the_job_applies(app: Sereno, connection: psycopg.Connection, inside: Inside) -> None:
    @app.task
    async def work(n: int) -> None:
        with inside.here("all"):
            await asyncio.sleep(0.005)

    one_by_one = work.using(concurrency=Limit(1, name="of-this-caller"))
    await app.aenqueue_many([one_by_one.job(n) for n in range(20)])
    async with app.working():
        await auntil(lambda: finished(connection) == 20)
    assert inside.most["all"] == 1


@pytest.mark.slow
async def test_a_limit_can_be_set_on_a_queue_of_plain_jobs_at_run_time(
    app: Sereno, connection: psycopg.Connection, inside: Inside
) -> None:
    proceed = asyncio.Event()

    @app.task
    async def work(n: int) -> None:
        with inside.here("all"):
            await proceed.wait()

    async with app.working():
        await auntil(lambda: one(connection, "select idle from sereno.sessions"))
        await set_slots(connection, "narrow", 2, queue="default")
        await app.aenqueue_many([work.job(n) for n in range(30)])
        await auntil(lambda: inside.now["all"] == 2)
        await set_slots(connection, "narrow", 5)
        await auntil(lambda: inside.now["all"] == 5)
        proceed.set()
        await auntil(lambda: finished(connection) == 30)
    assert inside.most["all"] == 5


@pytest.mark.slow
async def test_the_limit_of_a_queue_counts_jobs_with_keys_and_without(
    app: Sereno, connection: psycopg.Connection, inside: Inside
) -> None:
    app.queue("narrow", concurrency=Limit(3))

    @app.task(queue="narrow")
    async def plain(n: int) -> None:
        with inside.here("all"):
            await asyncio.sleep(0.005)

    @app.task(queue="narrow", concurrency=Limit(2, key="{account}"))
    async def keyed(account: str) -> None:
        with inside.here("all", account):
            await asyncio.sleep(0.005)

    await app.aenqueue_many([job for n in range(30) for job in (plain.job(n), keyed.job(str(n % 2)))])
    async with app.working():
        await auntil(lambda: finished(connection) == 60)
    assert inside.most["all"] == 3
    assert max(inside.most["0"], inside.most["1"]) <= 2


async def test_a_rate_allows_its_burst_and_then_one_start_per_token(
    database_url: str, connection: psycopg.Connection, inside: Inside
) -> None:
    app = Sereno(database_url, poll=0.1)

    @app.task(rate=Rate(1, per="1h", burst=5))
    async def work(n: int) -> None:
        with inside.here("all"):
            pass

    await app.aenqueue_many([work.job(n) for n in range(8)])
    async with app.working():
        total = 0.0
        for started in (5, 6):
            await auntil(lambda: finished(connection) == started)  # noqa: B023
            await auntil(lambda: waiting(connection) == 1)
            assert len(inside.starts) == started
            total += await advance_until(connection, lambda: len(inside.starts) > started, 1800)  # noqa: B023
            assert total >= 3600 * (started - 4)
        # After a long time there are no more tokens than the burst.
        await advance_until(connection, lambda: finished(connection) == 8, 24 * 3600)
        advance(connection, 24 * 3600)
        await app.aenqueue_many([work.job(n) for n in range(6)])
        await auntil(lambda: finished(connection) == 13)
        await auntil(lambda: waiting(connection) == 1)
    assert len(inside.starts) == 13


@pytest.mark.slow
async def test_a_job_costs_its_units(database_url: str, connection: psycopg.Connection) -> None:
    app = Sereno(database_url, poll=0.1)
    started: list[int] = []

    @app.task(rate=Rate(10, per="1h", burst=10, units="{pages}"))
    async def work(pages: int) -> None:
        started.append(pages)

    await app.aenqueue_many([work.job(pages) for pages in (4, 4, 4)])
    async with app.working():
        await auntil(lambda: waiting(connection) == 1)
        await auntil(lambda: finished(connection) == 2)
        assert started == [4, 4]
        # Two tokens are left, and two more come in twelve minutes; one minute is the margin for the test itself.
        assert await advance_until(connection, lambda: finished(connection) == 3, 240) >= 11 * 60


@pytest.mark.slow
async def test_each_key_of_a_rate_has_its_own_bucket(app: Sereno, connection: psycopg.Connection) -> None:
    started: list[str] = []

    @app.task(rate=Rate(1, per="1h", key="{account}", burst=2))
    async def work(account: str) -> None:
        started.append(account)

    await app.aenqueue_many([work.job(account) for account in "aaaabbbbc"])
    async with app.working():
        await auntil(lambda: finished(connection) == 5)
        await auntil(lambda: waiting(connection) == 2)
    assert sorted(started) == ["a", "a", "b", "b", "c"]


@pytest.mark.slow
async def test_jobs_of_a_batch_task_count_one_by_one(app: Sereno, connection: psycopg.Connection) -> None:
    calls: list[list[str]] = []

    @app.task(batch=50, concurrency=Limit(4, key="{item}"))
    async def work(items: list[str]) -> None:
        calls.append(items)
        await asyncio.sleep(0.005)

    await app.aenqueue_many([work.job("ab"[n % 2]) for n in range(60)])
    async with app.working():
        await auntil(lambda: finished(connection) == 60)
    assert sum(map(len, calls)) == 60
    assert max(call.count(account) for call in calls for account in "ab") <= 4
    assert max(map(len, calls)) > 1


@pytest.mark.slow
async def test_a_limit_of_zero_stops_jobs_until_it_is_raised(
    app: Sereno, connection: psycopg.Connection, inside: Inside
) -> None:
    @app.task(concurrency=Limit(2, name="stopped"))
    async def work(n: int) -> None:
        with inside.here("all"):
            await asyncio.sleep(0.005)

    @app.task
    async def plain() -> None: ...

    async with app.working():
        await set_slots(connection, "stopped", 0)
        await app.aenqueue_many([work.job(n) for n in range(20)])
        await auntil(lambda: waiting(connection) == 1)
        unlimited = await plain.aenqueue()
        await auntil(lambda: state(connection, unlimited.id) == "succeeded")
        assert inside.starts == []
        await set_slots(connection, "stopped", 3)
        await auntil(lambda: finished(connection, "work") == 20)
    assert inside.most["all"] == 3


@pytest.mark.slow
async def test_a_lowered_limit_applies_to_later_jobs(
    app: Sereno, connection: psycopg.Connection, inside: Inside
) -> None:
    proceed = asyncio.Event()

    @app.task(concurrency=Limit(4, name="lowered"))
    async def work(n: int) -> None:
        with inside.here("first" if n < 4 else "later"):
            await (proceed.wait() if n < 4 else asyncio.sleep(0.005))

    await app.aenqueue_many([work.job(n) for n in range(20)])
    async with app.working():
        await auntil(lambda: inside.now["first"] == 4)
        await set_slots(connection, "lowered", 1)
        proceed.set()
        await auntil(lambda: finished(connection) == 20)
    assert inside.most == {"first": 4, "later": 1}


@pytest.mark.slow
async def test_a_retrying_job_frees_its_slot(app: Sereno, connection: psycopg.Connection) -> None:
    ran: list[int] = []

    @app.task(concurrency=Limit(1), retry=1)
    async def work(n: int) -> None:
        ran.append(n)
        if n == 0:
            raise RuntimeError("not yet")

    await app.aenqueue_many([work.job(n) for n in range(5)])
    async with app.working():
        await auntil(lambda: finished(connection) == 4)
    assert ran == [0, 1, 2, 3, 4]


@pytest.mark.slow
@pytest.mark.parametrize(
    "slots", [pytest.param(1, marks=pytest.mark.slow), 2, pytest.param(10, marks=pytest.mark.slow)]
)
async def test_plain_and_limited_jobs_share_the_slots_of_a_queue(
    app: Sereno, connection: psycopg.Connection, slots: int
) -> None:
    starts: list[str] = []

    @app.task
    async def plain(n: int) -> None:
        starts.append("plain")
        await asyncio.sleep(0.001)

    @app.task(concurrency=Limit(100))
    async def limited(n: int) -> None:
        starts.append("limited")
        await asyncio.sleep(0.001)

    await app.aenqueue_many([task.job(n) for n in range(150) for task in (plain, limited)])
    async with app.working({"default": slots}):
        await auntil(lambda: len(starts) >= 100)
        among_first = starts[:100]
        await auntil(lambda: finished(connection) == 300)
    # Each kind gets half of the slots while both have jobs; the exact counts vary with how they are claimed.
    assert min(among_first.count("plain"), among_first.count("limited")) >= 15


async def test_a_slot_that_was_reserved_for_jobs_with_limits_goes_to_plain_ones(
    app: Sereno, connection: psycopg.Connection
) -> None:
    proceed = asyncio.Event()

    @app.task
    async def plain() -> None:
        await proceed.wait()

    async with app.working({"default": 1}) as worker:
        await plain.aenqueue()
        slots = worker.claimer._queues["default"]
        await auntil(lambda: slots.calls == 1)
        # As if another worker had started the last jobs with limits since this one saw them.
        slots.more_limited = True
        await plain.aenqueue()
        proceed.set()
        await auntil(lambda: finished(connection) == 2)
        assert not slots.more_limited
