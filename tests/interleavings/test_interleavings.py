"""Every scenario holds in every order of its statements, with kills and lost replies.

`make interleavings` searches two preemptions and a fault, `make storm` a million random orders; the tests here are a
part of that.
"""

import math

import pytest

from tests.interleavings.connections import Connections
from tests.interleavings.explore import explore_all, explore_random
from tests.interleavings.scenarios import SCENARIOS

# Random schedules of all scenarios together, and of each one at least. The rest are of plain jobs: they take the least
# time.
QUICK, EACH = 2_000, 8
# Those that only have rows take a fraction of the time of those with files and tables.
FAST = [name for name, scenario in SCENARIOS.items() if scenario.only_rows]
SLOW = SCENARIOS.keys() - FAST
PLAIN = [name for name in FAST if SCENARIOS[name].capability == "jobs"]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("capability", sorted({SCENARIOS[name].capability for name in FAST}))
def test_every_scenario_holds_in_random_orders(database_url: str, capability: str, subtests: pytest.Subtests) -> None:
    names = [name for name in FAST if SCENARIOS[name].capability == capability]
    with Connections(database_url) as connections:
        for name in names:
            with subtests.test(scenario=name):
                explore_random(connections, SCENARIOS[name], seed=1, count=_count(name))


def _count(name: str) -> int:
    return EACH if name not in PLAIN else math.ceil((QUICK - EACH * (len(FAST) - len(PLAIN))) / len(PLAIN))


@pytest.mark.slow
def test_every_scenario_with_files_holds_in_random_orders(database_url: str, subtests: pytest.Subtests) -> None:
    with Connections(database_url) as connections:
        for name in SLOW:
            with subtests.test(scenario=name):
                explore_random(connections, SCENARIOS[name], seed=1, count=20)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_holds_with_one_preemption(database_url: str, name: str) -> None:
    with Connections(database_url) as connections:
        explore_all(connections, SCENARIOS[name], preemptions=1, faults=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_holds_with_a_fault_beside_a_pinned_snapshot(database_url: str, name: str) -> None:
    with Connections(database_url) as connections:
        explore_all(connections, SCENARIOS[name], preemptions=0, faults=1, pinned=True)
