"""Races of two workers on one limiter, step by step; and a worker while no job can start."""

import asyncio

import psycopg
import pytest

from sereno import Limit, Rate, Retry, Sereno
from tests.facts import auntil, one
from tests.jobs.job_steps import line
from tests.jobs.limits.lane_steps import Claimer, keys, put, set_limit
from tests.worker.limits.limit_facts import finished, waiting


def test_a_job_that_ended_here_and_runs_again_elsewhere_holds_its_slot(database_url: str) -> None:
    with line(database_url) as first_line, line(database_url) as second_line:
        set_limit(first_line, "one", Limit(1))
        first, second = Claimer(first_line), Claimer(second_line)
        (job,) = put(first_line, keys(("one", "")))
        first.wake()
        claimed = first.claim().jobs
        # The job is retried at once. The first worker knows that it left the limiter, and has no free slot now.
        first.finish(claimed, Retry(after=0))
        first_line.execute("update sereno.jobs set state = 'ready', ready_seq = nextval('sereno.ready_seq')")
        assert second.take() == [job]
        put(first_line, keys(("one", "")))
        assert first.take() == []


def test_a_claim_that_began_earlier_does_not_refill_a_bucket_twice(database_url: str) -> None:
    with line(database_url) as early_line, line(database_url) as late_line:
        set_limit(late_line, "slow", Rate(1, per="10s", burst=10))
        early, late = Claimer(early_line), Claimer(late_line)
        put(late_line, keys(("slow", "")), 40)
        late.wake()
        with early_line.transaction():
            # This claim takes its time now, and gets its locks only after the other one.
            early_line.execute("select sereno.now()")
            assert len(late.claim(free_slots=9).jobs) == 9
            counted_up_to = one(late_line, "select used_at from sereno.limiters")
            assert len(early.claim(free_slots=1).jobs) == 1
        # Tokens up to then were given out already: a claim that counts from an earlier time would give them out again.
        assert one(late_line, "select used_at from sereno.limiters") >= counted_up_to


@pytest.mark.slow
async def test_sql_enqueues_with_the_keys_that_the_code_declared(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task(concurrency=Limit(2, key="{account}"), rate=Rate(1000, name="all"))
    async def work(account: str) -> None: ...

    async with app.working():
        await auntil(lambda: one(connection, "select idle from sereno.sessions"))
        connection.execute("select sereno.enqueue('work', '{\"account\": \"a\"}')")
        await auntil(lambda: finished(connection) == 1)
    limiters = connection.execute("select limit_name, key from sereno.limiters order by 1").fetchall()
    assert limiters == [("all", ""), ("work.concurrency", "a")]


@pytest.mark.slow
async def test_a_worker_does_not_spin_while_no_job_can_start(database_url: str, connection: psycopg.Connection) -> None:
    """Jobs wait for a rate, for a slot and for their order."""
    app = Sereno(database_url, poll=3600)
    proceed = asyncio.Event()

    @app.task(rate=Rate(1, per="1h"))
    async def rated() -> None: ...

    @app.task(concurrency=Limit(1))
    async def slotted() -> None:
        await proceed.wait()

    @app.task(order_key="one")
    async def ordered() -> None:
        await proceed.wait()

    async with app.working() as worker:
        await app.aenqueue_many([task.job() for task in (rated, slotted, ordered) for _ in range(3)])
        await auntil(lambda: waiting(connection) == 3)
        # The claim loop would do a hundred rounds within two seconds if it did not rest.
        before = worker.tally.claims
        for _ in range(40):
            await asyncio.sleep(0.05)
        made = worker.tally.claims - before
        proceed.set()
    assert made < 20


@pytest.mark.slow
async def test_a_new_fair_key_is_claimed_while_jobs_with_limits_fill_every_slot(
    app: Sereno, connection: psycopg.Connection
) -> None:
    starts: list[str] = []

    @app.task(fair_key="{customer}")
    async def work(customer: str) -> None:
        # As with slow handlers and a slow database: few jobs end, and a claim takes long.
        slots._ahead, slots._limited_ahead = 0, 1
        starts.append(customer)
        await asyncio.sleep(0.002)

    await app.aenqueue_many([work.job("large") for _ in range(1000)])
    async with app.working({"default": 1}) as worker:
        slots = worker.queues["default"]
        await auntil(lambda: len(starts) > 20)
        await work.aenqueue("small")
        before = len(starts)
        await auntil(lambda: "small" in starts)
    assert starts.index("small") - before < 300
