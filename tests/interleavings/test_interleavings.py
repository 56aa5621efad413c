"""Every scenario holds in every order of its statements, with kills and lost replies.

`make interleavings` searches two preemptions and a fault; the tests here are a part of that.
"""

import asyncio
import math

import pytest

from tests.interleavings.explore import explore_all, explore_random
from tests.interleavings.scenarios import SCENARIOS

# The quick tier has a few scenarios of each part of sereno, and a few random schedules of each.
QUICK_SCENARIOS = list(SCENARIOS)[::6]
QUICK = 10
# Random schedules of all scenarios together in `make storm`.
STORM = 100_000


@pytest.mark.parametrize("name", QUICK_SCENARIOS)
def test_a_scenario_holds_in_some_random_orders(database_url: str, name: str) -> None:
    asyncio.run(explore_random(database_url, SCENARIOS[name], seed=1, count=QUICK))


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_holds_with_one_preemption(database_url: str, name: str) -> None:
    asyncio.run(explore_all(database_url, SCENARIOS[name], preemptions=1, faults=0))


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_holds_with_a_fault_beside_a_pinned_snapshot(database_url: str, name: str) -> None:
    asyncio.run(explore_all(database_url, SCENARIOS[name], preemptions=0, faults=1, pinned=True))


@pytest.mark.storm
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_holds_in_random_orders(database_url: str, name: str) -> None:
    count = math.ceil(STORM / len(SCENARIOS))
    tally = asyncio.run(explore_random(database_url, SCENARIOS[name], seed=2, count=count))
    assert tally.schedules == count
