"""Every outcome of an attempt, on both sides: what goes wrong is in PostgreSQL, as the same rows."""

from collections import Counter

import psycopg
import pytest

from sereno import Backoff, Cancel, Context, Dead, Sereno, Snooze
from tests.carriers.conformance.conftest import Side
from tests.facts import auntil

pytestmark = pytest.mark.slow


@pytest.mark.quick
async def test_a_retry_and_a_dead_letter(side: Side) -> None:
    tries: Counter[str] = Counter()

    @side.app.task(queue="work", retry=Backoff(2, delays=["50ms"], jitter=0))
    async def work(name: str) -> None:
        tries[name] += 1
        if name == "never" or tries[name] < 2:
            raise ValueError(f"{name}: {tries[name]}")

    jobs = [work.using(tenant="r42", tags=["x"], trace="t-9", priority=2).enqueue(name) for name in ("twice", "never")]
    async with side.app.working():
        states = await side.ended([job.id for job in jobs])

    assert [states[job.id] for job in jobs] == ["succeeded", "dead"]
    assert tries == {"twice": 2, "never": 3}
    found = "select tenant, tags, trace, priority, attempt, failures, error_type, error_message, reason, args"
    assert side.rows(f"{found} from sereno.history where id = %s", jobs[1].id) == [
        ("r42", ["x"], "t-9", 2, 3, 3, "ValueError", "never: 3", "failed 3 times", {"name": "never"})
    ]
    attempts = "select number, outcome from sereno.attempts where job_id = %s order by number"
    assert side.rows(attempts, jobs[1].id)[:2] == [(1, "retry"), (2, "retry")]


async def test_snooze_cancel_and_dead(side: Side) -> None:
    calls: Counter[str] = Counter()

    @side.app.task(queue="work")
    async def work(name: str) -> None:
        calls[name] += 1
        if name == "snooze" and calls[name] == 1:
            raise Snooze("50ms", reason="not yet")
        if name == "cancel":
            raise Cancel("not wanted")
        if name == "dead":
            raise Dead("never")

    jobs = {name: work.enqueue(name).id for name in ("snooze", "cancel", "dead")}
    async with side.app.working():
        states = await side.ended(list(jobs.values()))
    assert {name: states[job_id] for name, job_id in jobs.items()} == {
        "snooze": "succeeded",
        "cancel": "cancelled",
        "dead": "dead",
    }
    assert calls == {"snooze": 2, "cancel": 1, "dead": 1}
    assert side.rows("select snoozes, failures from sereno.history where id = %s", jobs["snooze"]) == [(1, 0)]
    assert side.rows("select reason from sereno.history where id = %s", jobs["dead"]) == [("never",)]


async def test_a_timeout(side: Side) -> None:
    @side.app.task(queue="work", timeout="200ms", retry=0)
    async def work(ctx: Context) -> None:
        await auntil(lambda: False)

    job = work.enqueue()
    async with side.app.working():
        assert await side.ended([job.id]) == {job.id: "dead"}
    assert side.rows("select failures, error_type from sereno.history") == [(1, "TimeoutError")]


async def test_a_dead_job_is_retried(side: Side) -> None:
    calls: Counter[int] = Counter()

    @side.app.task(queue="work", retry=0)
    async def work(number: int) -> None:
        calls[number] += 1
        if calls[number] == 1:
            raise ValueError("broken")

    job = work.enqueue(1)
    async with side.app.working():
        assert await side.ended([job.id]) == {job.id: "dead"}
        side.app.jobs.find(f"id:{job.id}").retry()
        await auntil(lambda: calls[1] == 2)
    assert side.rows("select count(*) from sereno.history where state = 'dead'") == [(0,)]


async def test_a_transaction_settles_with_the_effect(side: Side) -> None:
    side.connection.execute("create table effects (number integer)")

    @side.app.task(queue="work")
    async def work(ctx: Context, number: int) -> None:
        async with ctx.transaction() as connection:
            await connection.execute("insert into effects values (%s)", [number])

    @side.app.task(queue="work")
    def work_in_thread(ctx: Context, number: int) -> None:
        with ctx.transaction() as connection:
            connection.execute("insert into effects values (%s)", [number])

    @side.app.task(queue="work", retry=0)
    async def fail(ctx: Context, number: int) -> None:
        async with ctx.transaction() as connection:
            await connection.execute("insert into effects values (%s)", [number])
            raise ValueError("after the effect")

    jobs = [work.enqueue(1), work_in_thread.enqueue(2), fail.enqueue(3)]
    async with side.app.working():
        states = await side.ended([job.id for job in jobs])
    assert [states[job.id] for job in jobs] == ["succeeded", "succeeded", "dead"]
    assert side.rows("select number from effects order by number") == [(1,), (2,)]


async def test_a_step_runs_once(side: Side) -> None:
    calls: Counter[str] = Counter()

    def charge() -> int:
        calls["step"] += 1
        return 7

    @side.app.task(queue="work", retry=Backoff(2, delays=["20ms"]))
    async def work(ctx: Context) -> int:
        number = await ctx.step("charge", charge)
        calls["runs"] += 1
        if calls["runs"] == 1:
            raise ValueError("after the step")
        return number

    async with side.app.working():
        job = await work.aenqueue()
        assert await job.aresult("30s") == 7
    assert calls == {"step": 1, "runs": 2}


async def test_an_unknown_task_waits_for_a_worker_that_knows_it(side: Side) -> None:
    """The producer has a task that the worker does not have: the job is kept, and runs in a worker that has it."""
    seen: list[int] = []
    other = Sereno(side.app.url)
    if side.is_carried:
        other.queue("work", carrier=side.app.registry.carried["work"].carrier, direct=True)

    @side.app.task(queue="work", name="known")
    async def known() -> None: ...

    @other.task(queue="work", name="new")
    async def new(number: int) -> None:
        seen.append(number)

    job = new.enqueue(5)
    async with side.app.working():
        await side.ended([known.enqueue().id])
        await auntil(lambda: side.rows("select count(*) from sereno.jobs where id = %s", job.id) == [(1,)])
        assert not seen
    async with other.working():
        assert await side.ended([job.id]) == {job.id: "succeeded"}
    await other.aclose()
    assert seen == [5]


async def test_arguments_that_do_not_fit_are_kept(side: Side) -> None:
    """The task has another parameter than its producer knew: a dead letter with its arguments."""
    other = Sereno(side.app.url)
    if side.is_carried:
        other.queue("work", carrier=side.app.registry.carried["work"].carrier, direct=True)

    @other.task(queue="work", name="work")
    async def old(text: str) -> None: ...

    @side.app.task(queue="work", name="work", retry=0)
    async def work(number: int) -> None: ...

    job = old.enqueue("five")
    await other.aclose()
    async with side.app.working():
        assert await side.ended([job.id]) == {job.id: "dead"}
    assert side.rows("select args from sereno.history") == [({"text": "five"},)]


async def test_a_lost_commit_of_the_caller_runs_nothing(side: Side) -> None:
    seen: list[int] = []

    @side.app.task(queue="work")
    async def work(number: int) -> None:
        seen.append(number)

    with psycopg.connect(side.app.url) as connection:
        work.using(connection).enqueue(1)
        connection.rollback()
    last = work.enqueue(2)
    async with side.app.working():
        await side.ended([last.id])
    assert seen == [2]
