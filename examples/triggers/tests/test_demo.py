"""The demo of this example: runs that succeed, one that is retried, and one that is not allowed."""

import pytest

from sereno.testing.kit import Kit
from triggers.app import app
from triggers.demo import FAST, stage

pytestmark = pytest.mark.slow


async def test_the_demo_runs_its_triggers(kit: Kit) -> None:
    async with stage(app) as environment:
        assert environment["SERENO_PROCEDURE_URL"] not in repr(app.settings)
        app.override(procedure_url=environment["SERENO_PROCEDURE_URL"])
        assert {row.key for row in await app.schedules.alist("triggers.*")} == FAST.keys()
        # Longer than the longest interval.
        kit.travel("11s")
        await kit.adrain()
    ended = {job.args["procedure"]: job.state for job in kit.jobs()}
    assert ended["refresh_stock"] == ended["close_day"] == "succeeded"
    assert ended["settle_month"] == "scheduled"
    assert ended["purge_readings"] == "dead"
