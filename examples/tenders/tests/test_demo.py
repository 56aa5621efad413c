"""The demo of this example: something happens, also something bad, and it ends when it is told to."""

import pytest

from tenders.app import app, push
from tenders.demo import FAST, LOOK, stage
from tenders.tests.conftest import World


async def test_the_stage_is_set(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async with stage(app) as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        app.channels.add(push, url=environment["TENDERS_EXPO_URL"])
        await world.cycle()
        states = [each.state for each in world.kit.deliveries()]
        assert states.count("sent") > 10
        assert "invalid" in states
    declared = {row.key for row in app.schedules.list()}
    assert set(FAST) < declared
    assert all(path.startswith("/") for _, path in LOOK)
