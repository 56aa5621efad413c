"""The stage of the demo: within a moment, runs that succeed, one that is tried again, and one that nobody allowed."""

from sereno.testing.kit import Kit
from triggers.app import app
from triggers.demo import FAST, stage


async def test_something_happens(kit: Kit) -> None:
    async with stage(app) as environment:
        assert environment["SERENO_PROCEDURE_URL"] not in repr(app.settings)
        app.override(procedure_url=environment["SERENO_PROCEDURE_URL"])
        assert {row.key for row in await app.schedules.alist("triggers.*")} == FAST.keys()
        # Beyond the longest of the rhythms.
        kit.travel("11s")
        await kit.adrain()
    ended = {job.task: job.state for job in kit.jobs()}
    assert ended["triggers.refresh_stock"] == ended["triggers.close_day"] == "succeeded"
    assert ended["triggers.settle_month"] == "scheduled"
    assert ended["triggers.purge_readings"] == "dead"
