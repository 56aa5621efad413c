"""`kill -9` at every step from the schedule to the event: nothing is lost, and no duplicate is unrecorded.

One chain: a process that is killed at a step is followed by one that is killed at the next. `test_notified_kill.py` and
`test_archive_kill.py` continue it, each with its own tender, so that the three can run in parallel.
"""

import pytest

from tenders.tests import rules
from tenders.tests.conftest import World
from tenders.tests.crash_runner import CrashRunner
from tenders.tests.steps import TO_THE_EVENT

pytestmark = pytest.mark.slow


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("without_certificates")
async def test_killed_at_every_step_from_the_schedule_to_the_event(world: World) -> None:
    code = rules.publish(world)
    async with CrashRunner(world.kit, world.partners) as runner:
        await runner.walk(TO_THE_EVENT, lambda: rules.hold_so_far(world, code))
        await world.cycle()
        await world.until_receipts()
        rules.hold_when_notified(world, code)
        assert len(world.pushed()) == 2
        assert not runner.unlisted()
