"""The demo of this example: within seconds a job succeeds, a job dies, and a notification is created."""

import asyncio

import pytest
from reconciliation import demo
from reconciliation.app import app
from reconciliation.database import Connection

from sereno.testing.kit import Kit

pytestmark = pytest.mark.slow


async def test_the_demo_has_successes_and_dead_letters(
    kit: Kit, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with demo.stage(app) as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        with kit.crash_worker(demo.APP) as worker:
            await asyncio.to_thread(worker.until, lambda: kit.jobs("reconciliation.reconcile", state="succeeded"))
            await asyncio.to_thread(worker.until, lambda: kit.jobs("reconciliation.reconcile", state="dead"))
            kit.travel("1m")
            await asyncio.to_thread(worker.until, lambda: kit.deliveries("reconciliation.failed", channel="discord"))
            # In a thread: the partner runs in this event loop.
            assert await asyncio.to_thread(worker.stop) == 0


def test_links_and_schedules_of_the_demo_exist() -> None:
    assert set(demo.FAST) <= set(app.schedules.declared)
    assert all(sentence.endswith(".") and path.startswith("/") for sentence, path in demo.LINKS)
