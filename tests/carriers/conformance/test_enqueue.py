"""Every way to enqueue a job, on both sides: each job runs once."""

from collections import Counter

import psycopg
import pytest

from tests.carriers.conformance.conftest import Side
from tests.facts import auntil

pytestmark = pytest.mark.slow


@pytest.mark.quick
async def test_one_and_many(side: Side) -> None:
    seen: Counter[int] = Counter()

    @side.app.task(queue="work", history=False)
    async def work(number: int) -> None:
        seen[number] += 1

    jobs = [await work.aenqueue(0), work.enqueue(1)]
    jobs += await side.app.aenqueue_many([work.job(number) for number in range(2, 40)])
    jobs += side.app.enqueue_many(work.job(number) for number in range(40, 60))
    async with side.app.working():
        await auntil(lambda: len(seen) == 60)

    assert set(seen.values()) == {1}
    assert len({job.id for job in jobs}) == 60
    assert all((job.id >= 10**15) == side.is_carried for job in jobs)
    assert side.rows("select count(*) from sereno.jobs") == [(0,)]


async def test_in_the_transaction_of_the_caller(side: Side) -> None:
    seen: Counter[int] = Counter()

    @side.app.task(queue="work", history=False)
    async def work(number: int) -> None:
        seen[number] += 1

    with psycopg.connect(side.app.url) as connection:
        work.using(connection).enqueue(1)
        connection.rollback()
        kept = work.using(connection).enqueue(2)
        side.app.enqueue_many([work.job(3), work.job(4)], connection)
        connection.commit()
    async with side.app.working():
        await auntil(lambda: len(seen) == 3)

    assert seen == {2: 1, 3: 1, 4: 1}
    assert kept.id < 10**15


async def test_future_jobs_wait_for_their_time(side: Side) -> None:
    """A future job is in PostgreSQL until it is due, on both sides."""
    seen: list[str] = []

    @side.app.task(queue="work")
    async def work(name: str) -> None:
        seen.append(name)

    later = work.using(delay="1h").enqueue("later")
    soon = work.using(delay="300ms").enqueue("soon")
    assert side.rows("select count(*) from sereno.jobs where state = 'scheduled'") == [(2,)]
    async with side.app.working():
        assert await side.ended([soon.id]) == {soon.id: "succeeded"}
    assert seen == ["soon"]
    assert side.rows("select id, state from sereno.jobs") == [(later.id, "scheduled")]


async def test_a_result_is_returned(side: Side) -> None:
    @side.app.task(queue="work")
    async def double(number: int) -> dict[str, int]:
        return {"doubled": 2 * number}

    async with side.app.working():
        job = await double.aenqueue(21)
        assert await job.aresult("30s") == {"doubled": 42}
        stored = await double.using(direct=False if side.is_carried else None).aenqueue(4)
        assert await stored.aresult("30s") == {"doubled": 8}
    found = side.rows("select result, attempt, failures from sereno.history where id = %s", job.id)
    assert found == [({"doubled": 42}, 1, 0)]


async def test_options_are_stored_with_a_success(side: Side) -> None:
    @side.app.task(queue="work")
    async def work(number: int) -> None: ...

    job = work.using(tenant="r42", priority=1, tags=["a", "b"], trace="t-1").enqueue(7)
    plain = work.enqueue(8)
    async with side.app.working():
        await side.ended([job.id, plain.id])
    fields = "select id, tenant, priority, tags, trace, args, run_at <= started_at, started_at <= finished_at"
    assert side.rows(f"{fields} from sereno.history order by priority") == [
        (job.id, "r42", 1, ["a", "b"], "t-1", {"number": 7}, True, True),
        (plain.id, None, 5, None, None, {"number": 8}, True, True),
    ]
