"""`kill -9` at every step from the clock to the event: nothing is lost, and nothing is done twice without a word of it.

One chain: a life that is killed at a step is followed by one that is killed at the next. It goes on in
`test_told_kill.py` and `test_archive_kill.py`, each with a tender of its own: the three can run side by side.
"""

import pytest

from tenders.tests import rules
from tenders.tests.conftest import World
from tenders.tests.house import House
from tenders.tests.steps import TO_THE_EVENT


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("without_certificates")
async def test_killed_at_every_step_from_the_clock_to_the_event(world: World) -> None:
    code = rules.publish(world)
    async with House(world.kit, world.partners) as house:
        await house.walk(TO_THE_EVENT, lambda: rules.hold_so_far(world, code))
        await world.cycle()
        await world.until_receipts()
        rules.hold_when_told(world, code)
        assert len(world.pushed()) == 2
        assert not house.unlisted()
