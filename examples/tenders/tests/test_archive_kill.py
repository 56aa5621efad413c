"""`kill -9` at every step to the archive, as in `test_found_kill.py`."""

import os

import pytest

from tenders.object_store import Store
from tenders.tests import rules
from tenders.tests.conftest import Bucket, World
from tenders.tests.crash_runner import CrashRunner
from tenders.tests.steps import TO_THE_ARCHIVE

pytestmark = pytest.mark.slow


@pytest.mark.timeout(300)
async def test_killed_at_every_step_to_the_archive(
    world: World, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = rules.publish(world)
    await world.cycle()
    await world.until_receipts()
    async with Store(os.environ["AWS_ENDPOINT_URL"]) as store:
        monkeypatch.setenv("AWS_ENDPOINT_URL", store.url)
        async with CrashRunner(world.kit, world.partners | {"store": store}) as runner:
            await runner.walk(TO_THE_ARCHIVE, lambda: rules.hold_so_far(world, code))
            await world.nights(1)
            rules.hold_when_archived(world, bucket, code)
            await world.cycle()
            assert not world.tenders()
            assert len(world.pushed()) == 2
            assert not runner.unlisted()
