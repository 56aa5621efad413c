"""A reply about an earlier attempt that arrives while the job runs again changes nothing about the later attempt."""

import asyncio
from typing import Any

import psycopg
import pytest

from sereno import Limit, Sereno
from sereno.database.connect import ServiceConnection
from sereno.jobs import transitions
from tests.facts import auntil, state
from tests.jobs.job_steps import do


async def test_a_late_reply_does_not_free_the_slot_of_a_later_attempt(
    app: Sereno, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[str] = []
    proceed, replied, late = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @app.task(concurrency=Limit(1, key="{account}"))
    async def work(account: str, name: str) -> None:
        runs.append(name)
        if len(runs) > 1:
            await proceed.wait()

    run = ServiceConnection.run

    async def runs_late(line: ServiceConnection, *args: Any, **options: Any) -> Any:
        """Withhold the first reply to the settler."""
        reply = await run(line, *args, **options)
        if line._role == "settler" and not late.is_set():
            late.set()
            await replied.wait()
        return reply

    monkeypatch.setattr(ServiceConnection, "run", runs_late)
    async with app.working() as worker:
        try:
            first = await work.aenqueue("a", "first")
            await asyncio.wait_for(late.wait(), 30)
            assert state(connection, first.id) == "succeeded"
            assert do(connection, transitions.requeue([first.id])) == [first.id]
            await auntil(lambda: runs == ["first", "first"])
            replied.set()
            await worker._settler.flushed()
            second = await work.aenqueue("a", "second")
            claims = worker.tally.claims
            await auntil(lambda: worker.tally.claims >= claims + 4 or len(runs) > 2)
            assert (state(connection, first.id), state(connection, second.id)) == ("running", "ready")
            assert first.id in worker.claimer.held
        finally:
            replied.set()
            proceed.set()
        await auntil(lambda: state(connection, second.id) == "succeeded")
