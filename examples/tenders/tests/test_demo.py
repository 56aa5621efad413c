"""The demo of this example: pushes are sent, some fail, and it stops cleanly."""

import time
from collections import Counter

import pytest

from tenders.app import app, push
from tenders.demo import FAST, LINKS, stage
from tenders.tests.conftest import World

pytestmark = pytest.mark.slow

# Seconds; long enough for a busy machine.
PATIENCE = 90.0


async def test_the_demo_sends_pushes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async with stage(app) as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        app.channels.add(push, url=environment["TENDERS_EXPO_URL"])
        # Faults of the partners are random, so several cycles may be needed.
        end = time.monotonic() + PATIENCE
        states = Counter[str]()
        while not (states["sent"] > 10 and states["invalid"]):
            assert time.monotonic() < end, f"too few deliveries: {states}"
            await world.cycle()
            states = Counter(each.state for each in world.kit.deliveries())
    declared = {row.key for row in app.schedules.list()}
    assert set(FAST) < declared
    assert all(path.startswith("/") for _, path in LINKS)
