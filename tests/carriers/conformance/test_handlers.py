"""Every kind of handler, and what runs around handlers, on both sides."""

import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from sereno import Context, JobEvent
from tests.carriers.conformance import isolated_app
from tests.carriers.conformance.conftest import Side
from tests.facts import auntil

pytestmark = pytest.mark.slow


class Client:
    """What handlers share."""

    def __init__(self) -> None:
        self.calls: list[int] = []


async def test_sync_handlers_run_in_threads(side: Side) -> None:
    threads: set[int] = set()

    @side.app.task(queue="work")
    def work(number: int) -> int:
        threads.add(threading.get_ident())
        return number

    jobs = side.app.enqueue_many([work.job(number) for number in range(10)])
    async with side.app.working():
        states = await side.ended([job.id for job in jobs])
    assert set(states.values()) == {"succeeded"}
    assert threading.get_ident() not in threads


async def test_batch_tasks_settle_each_job(side: Side) -> None:
    seen: list[int] = []

    @side.app.task(queue="work", batch=10, retry=0)
    async def work(numbers: list[int]) -> None:
        seen.extend(numbers)
        if 13 in numbers:
            raise ValueError("unlucky")

    jobs = side.app.enqueue_many([work.job(number) for number in range(20)])
    async with side.app.working():
        states = await side.ended([job.id for job in jobs])
    dead = {number for number, job in enumerate(jobs) if states[job.id] == "dead"}
    assert 13 in dead
    assert set(seen) == set(range(20))
    assert set(states.values()) == {"succeeded", "dead"}


async def test_middleware_resources_and_hooks(side: Side) -> None:
    events: list[tuple[str, int]] = []
    around: list[int] = []
    client = Client()
    closed: list[Client] = []

    @side.app.around
    async def note(ctx: Context) -> AsyncIterator[None]:
        around.append(ctx.job_id)
        yield

    @side.app.resource
    def shared() -> Iterator[Client]:
        yield client
        closed.append(client)

    @side.app.on("job.succeeded", "job.dead")
    async def tell(event: JobEvent) -> None:
        events.append((event.name, event.job_id))

    @side.app.task(queue="work", history=False)
    async def good(number: int, shared: Client) -> None:
        shared.calls.append(number)

    @side.app.task(queue="work")
    async def kept(number: int, shared: Client) -> None:
        shared.calls.append(number)

    @side.app.task(queue="work", retry=0)
    async def bad(number: int, shared: Client) -> None:
        shared.calls.append(number)
        raise ValueError("bad")

    tasks: list[Any] = [good, kept, bad]
    jobs = [task.enqueue(number) for number, task in enumerate(tasks)]
    async with side.app.working():
        await auntil(lambda: len(events) == 3)

    assert sorted(client.calls) == [0, 1, 2]
    assert sorted(around) == sorted(job.id for job in jobs)
    assert closed == [client]
    assert set(events) == {
        ("job.succeeded", jobs[0].id),
        ("job.succeeded", jobs[1].id),
        ("job.dead", jobs[2].id),
    }


async def test_isolated_tasks_run_in_a_process(side: Side) -> None:
    """A carried isolated job comes home: a process of this worker runs it from PostgreSQL."""
    app = isolated_app.app
    app.override(database_url=side.app.url)
    if side.is_carried:
        app.registry.carry(side.app.registry.carried["work"])
    else:
        app.registry.carriable.clear()
        app.registry.carried.clear()
    job = isolated_app.pid.enqueue()
    async with app.working({"work": 2}):
        assert await side.ended([job.id]) == {job.id: "succeeded"}
    await app.aclose()
    app.registry.carried.clear()
    ((result,),) = side.rows("select result from sereno.history")
    assert result not in (None, threading.get_native_id())


async def test_progress_and_logs_of_a_running_job(side: Side) -> None:
    is_open = threading.Event()
    progress: list[tuple[Any, ...]] = []

    @side.app.task(queue="work")
    async def work(ctx: Context) -> None:
        ctx.log.warning("half of it")
        ctx.progress(0.5, "half")
        await auntil(is_open.is_set)

    job = work.enqueue()
    async with side.app.working():
        progress += await auntil(lambda: side.rows("select fraction, note from sereno.progress"))
        assert side.rows("select id, state, attempt from sereno.jobs") == [(job.id, "running", 1)]
        is_open.set()
        assert await side.ended([job.id]) == {job.id: "succeeded"}
    await auntil(lambda: side.rows("select message from sereno.logs where job_id = %s", job.id))
    assert progress == [(0.5, "half")]
