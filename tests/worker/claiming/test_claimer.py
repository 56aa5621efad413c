"""A busy worker claims in large batches, and while it still has jobs to run."""

import asyncio

import psycopg
import pytest

from sereno import Sereno
from sereno.worker.claiming.slots import QueueSlots
from tests.facts import auntil, one

JOBS = 5000
# Seconds between polls: a claim is only explained by a buffer that runs low.
NEVER = 3600.0


async def test_a_claim_is_followed_by_the_next_one_when_half_of_it_has_started(
    database_url: str, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Sereno(database_url, poll=NEVER)
    buffered: list[tuple[int, int]] = []

    @app.task
    async def work() -> None: ...

    # Called at the begin of every claim.
    measure = QueueSlots.measure

    def measured(queue: QueueSlots) -> None:
        # At the end of the queue it claims once more before it rests.
        if queue.more:
            buffered.append((len(queue.buffer), queue._ahead))
        measure(queue)

    monkeypatch.setattr(QueueSlots, "measure", measured)
    app.enqueue_many([work.job() for _ in range(JOBS)])
    worker = app.worker({"default": 20})
    running = asyncio.create_task(worker.run())
    await auntil(lambda: one(connection, "select count(*) from sereno.history") == JOBS)
    worker.stop()
    await running
    # No claim follows another one at once, to get the few jobs that had started meanwhile.
    assert [(buffer, ahead) for buffer, ahead in buffered if buffer * 2 > ahead] == []
