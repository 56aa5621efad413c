"""`kill -9` at every step from the event to the flag, as in `test_found_kill.py`."""

import pytest

from tenders.tests import rules
from tenders.tests.conftest import World
from tenders.tests.crash_runner import CrashRunner
from tenders.tests.steps import TO_THE_FLAG

pytestmark = pytest.mark.slow


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("without_certificates")
async def test_killed_at_every_step_from_the_event_to_the_flag(world: World) -> None:
    code = rules.publish(world)
    world.kit.travel("2m")
    async with CrashRunner(world.kit, world.partners) as runner:
        await runner.walk(TO_THE_FLAG, lambda: rules.hold_so_far(world, code))
        rules.hold_when_notified(world, code)
        await world.cycle()
        # It was killed twice after Expo had the push and before the ticket was written.
        assert len(world.pushed()) == 2 * 3
        assert not runner.unlisted()
