"""The demo of this example."""

import asyncio

import pytest
from reminders import demo
from reminders.app import app

from sereno.testing.kit import Kit

pytestmark = pytest.mark.slow


async def test_the_demo_uses_every_channel(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    """All channels, and an address that turns out to be wrong; with a worker as the demo starts it."""
    monkeypatch.setattr(demo, "EACH", 0.02)
    async with demo.stage(app) as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        with kit.crash_worker(demo.APP) as worker:
            wanted = {
                ("email", "sent"),
                ("sms", "sent"),
                ("telegram", "delivered"),
                ("push", "delivered"),
                ("whatsapp", "sent"),
                ("in_app", "delivered"),
                ("email", "invalid"),
            }
            await asyncio.to_thread(worker.until, lambda: wanted <= states(kit), 60)
            assert await asyncio.to_thread(worker.stop) == 0


def test_schedules_that_the_demo_speeds_up_are_declared() -> None:
    assert demo.FAST.keys() <= app.schedules.declared.keys()


def states(kit: Kit) -> set[tuple[str, str]]:
    return {(delivery.channel, delivery.state) for delivery in kit.deliveries()}
