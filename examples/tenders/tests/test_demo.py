"""The demo of this example: something happens, also something bad, and it ends when it is told to."""

import time
from collections import Counter

import pytest

from tenders.app import app, push
from tenders.demo import FAST, LOOK, stage
from tenders.tests.conftest import World

# Only what never happens takes this long, also on a busy machine.
PATIENCE = 90.0


async def test_the_stage_is_set(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async with stage(app) as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        app.channels.add(push, url=environment["TENDERS_EXPO_URL"])
        # The partners have their moods: what one cycle meets, the next ones do not.
        end = time.monotonic() + PATIENCE
        states = Counter[str]()
        while not (states["sent"] > 10 and states["invalid"]):
            assert time.monotonic() < end, f"little has happened: {states}"
            await world.cycle()
            states = Counter(each.state for each in world.kit.deliveries())
    declared = {row.key for row in app.schedules.list()}
    assert set(FAST) < declared
    assert all(path.startswith("/") for _, path in LOOK)
