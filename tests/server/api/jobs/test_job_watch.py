"""A job that is looked up while another query runs gets its own."""

import asyncio
from typing import Any

import pytest

from sereno.database.statement import Operation
from sereno.jobs.job_stream import JobView
from sereno.server.api.jobs import job_watch
from sereno.server.api.jobs.job_watch import JobWatch


class SlowReader:
    """A fake reader of jobs; the test decides when a query ends."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.may_end = asyncio.Event()

    async def read(self, operation: Operation[Any], *, seconds: float = 1.0) -> Any:  # noqa: ARG002 - the test sets the result
        wanted = next(operation).params["ids"]
        self.started.set()
        await self.may_end.wait()
        return [JobView("running", 1, None, None, None, 0, (), None) for _ in wanted]


async def test_a_job_is_not_dropped_before_its_first_query(monkeypatch: pytest.MonkeyPatch) -> None:
    # Every job that no stream watches counts as unused at once.
    monkeypatch.setattr(job_watch, "BEAT_SECONDS", 0.0)
    reader = SlowReader()
    watch = JobWatch(reader)
    first = asyncio.create_task(watch.view(1))
    await reader.started.wait()
    second = asyncio.create_task(watch.view(2))
    await asyncio.sleep(0)
    reader.may_end.set()
    for found in (await first, await second):
        assert found is not None
        assert found.state == "running"
    await watch.end()
