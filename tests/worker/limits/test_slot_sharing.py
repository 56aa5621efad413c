"""Short jobs of one key share its slots within one worker; slow ones do not."""

import asyncio
from typing import Any

import msgspec
import psycopg
import pytest

from sereno import Limit, Sereno
from sereno.jobs.job import ClaimedJob
from sereno.worker.claiming import slots
from sereno.worker.claiming.slots import QueueSlots
from tests.facts import auntil, one
from tests.worker.limits.limit_facts import Inside, finished


def claimed(job_id: int) -> ClaimedJob:
    return ClaimedJob(job_id, 1, "work", "q", 5, job_id, None, msgspec.Raw(b"{}"), 0.0, 0.0)


@pytest.fixture
def queue() -> QueueSlots:
    """Jobs 1 to 5 of lane 7 share two slots; job 9 has its own slot."""
    made = QueueSlots("q", 10)
    jobs = [claimed(number) for number in (1, 2, 3, 4, 5)]
    made.add_slot_group(7, 2, jobs)
    made.add_limited([*jobs[:2], claimed(9)], ())
    return made


def waiting(queue: QueueSlots) -> list[int]:
    return [job.id for job in queue.limited]


def test_the_next_job_of_a_slot_group_starts_when_one_has_ended(queue: QueueSlots) -> None:
    assert waiting(queue) == [1, 2, 9]
    queue.limited.clear()
    for ended, started in ((2, [3]), (9, []), (3, [4]), (1, [5])):
        queue.step_up(claimed(ended))
        assert waiting(queue) == started
        queue.limited.clear()
    queue.step_up(claimed(4))
    assert queue.has_slot_groups
    assert not queue.waits_behind
    queue.step_up(claimed(5))
    assert not queue.has_slot_groups


def test_jobs_behind_a_slow_job_are_released_once(queue: QueueSlots, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "SLOT_GROUP_SECONDS", -1e9)
    assert {lane: [job.id for job in jobs] for lane, jobs in queue.take_slow().items()} == {7: [3, 4, 5]}
    assert queue.take_slow() == {}
    queue.limited.clear()
    queue.step_up(claimed(1))
    assert waiting(queue) == []


def test_every_job_that_has_not_started_is_released_at_the_end(queue: QueueSlots) -> None:
    assert sorted(job.id for job in queue.take_all()) == [1, 2, 3, 4, 5, 9]
    assert queue.take_all() == []


@pytest.mark.slow
async def test_short_jobs_of_a_key_share_a_slot_and_never_overlap(app: Sereno, connection: psycopg.Connection) -> None:
    inside = Inside()
    shared = 0

    @app.task(concurrency=Limit(1, key="{account}"))
    async def work(account: str) -> None:
        nonlocal shared
        with inside.here(account):
            await asyncio.sleep(0)
            shared += worker.queues["default"].waits_behind

    await app.aenqueue_many([work.job(f"k{n % 40}") for n in range(3000)])
    async with app.working() as worker:
        await auntil(lambda: finished(connection) == 3000, timeout=60)
    assert max(inside.most.values()) == 1
    assert shared > 0
    assert len(inside.starts) == 3000
    assert one(connection, "select count(*) from sereno.jobs") == 0


@pytest.mark.slow
async def test_short_jobs_behind_a_slow_one_are_released_soon(
    app: Sereno, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slot group is forced here: a claim takes as many jobs as it can, at any measured rate."""
    monkeypatch.setattr(QueueSlots, "measure", lambda self: setattr(self, "_limited_ahead", 50))
    proceed = asyncio.Event()
    inside = Inside()

    @app.task(concurrency=Limit(1, key="{account}"))
    async def work(account: str) -> None:
        with inside.here(account):
            await proceed.wait()

    await app.aenqueue_many([work.job("slow") for _ in range(8)])
    async with app.working():
        await auntil(lambda: _states(connection) == {"running": 8})
        await auntil(lambda: _states(connection) == {"running": 1, "ready": 7})
        assert one(connection, "select sum(releases) from sereno.jobs") == 7
        assert one(connection, "select sereno.slots_taken(held) from sereno.limiters") == 1
        proceed.set()
        await auntil(lambda: finished(connection) == 8)
    assert inside.most["slow"] == 1


def _states(connection: psycopg.Connection) -> dict[str, Any]:
    return dict(connection.execute("select state, count(*) from sereno.jobs group by state").fetchall())
