"""Isolated tasks wait, call, iterate and read results as others do; their outcomes and those of batches call hooks."""

from collections import Counter
from typing import Any

import psycopg
import pytest

from sereno import Job
from tests.facts import auntil, one
from tests.worker.isolation.workflow_app import app, batch, events, fails, in_loop, in_thread, number, reads

LONG = "60s"


@pytest.mark.slow
async def test_isolated_tasks_wait_call_iterate_and_call_hooks(
    database_url: str, connection: psycopg.Connection
) -> None:
    app.override(database_url=database_url)
    app.database.forget_url()
    events.clear()
    waiting = [await task.aenqueue() for task in (in_thread, in_loop)]
    first = [await number.aenqueue(n) for n in (5, 6)]
    after = await reads.using(after=first).aenqueue()
    others: list[Job[Any]] = [await fails.aenqueue(), await batch.aenqueue(1), await batch.aenqueue(2)]
    async with app.working():
        await auntil(lambda: one(connection, "select count(*) from sereno.signal_waits") == len(waiting))
        await app.asignal("paid", 7)
        assert [await job.aresult(LONG) for job in waiting] == [[7, 1, 2, 3, 4], [7, 1, 3, 4]]
        assert await after.aresult(LONG) == [5, 6]
        assert [job.state for job in await app.jobs.wait_async(others, LONG)] == ["dead", "succeeded", "succeeded"]
    await app.aclose()
    assert Counter(events) == {
        ("job.succeeded", "number"): 5,
        ("job.succeeded", "in_thread"): 1,
        ("job.succeeded", "in_loop"): 1,
        ("job.succeeded", "reads"): 1,
        ("job.dead", "fails"): 1,
        ("job.succeeded", "batch"): 2,
    }
