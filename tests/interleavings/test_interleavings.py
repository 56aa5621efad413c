"""Every scenario holds in every order of its statements, with kills and lost replies."""

import asyncio
import math

import pytest

from tests.interleavings.runner import exhaust, wander
from tests.interleavings.scenarios import SCENARIOS

# Schedules of a scenario in the quick tier: all with one preemption, and random ones up to this number.
QUICK = 80
# Random schedules of all scenarios together in `make storm`.
STORM = 1_000_000


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_holds_with_one_preemption(database_url: str, name: str) -> None:
    tally = asyncio.run(exhaust(database_url, SCENARIOS[name], preemptions=1, faults=0))
    if (rest := QUICK - tally.schedules) > 0:
        asyncio.run(wander(database_url, SCENARIOS[name], seed=1, count=rest))


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_holds_with_two_preemptions(database_url: str, name: str) -> None:
    asyncio.run(exhaust(database_url, SCENARIOS[name], preemptions=2, faults=0))


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_holds_with_a_fault_and_a_pinned_snapshot(database_url: str, name: str) -> None:
    asyncio.run(exhaust(database_url, SCENARIOS[name], preemptions=1, faults=1, pinned=True))


@pytest.mark.storm
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_holds_in_random_orders(database_url: str, name: str) -> None:
    count = math.ceil(STORM / len(SCENARIOS))
    tally = asyncio.run(wander(database_url, SCENARIOS[name], seed=2, count=count))
    assert tally.schedules == count
