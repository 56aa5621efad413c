"""The scenarios, by the part of sereno that they are about."""

from tests.interleavings.scenario import AnyScenario
from tests.interleavings.scenarios import jobs

SCENARIOS: dict[str, AnyScenario] = {scenario.name: scenario for scenario in [*jobs.SCENARIOS]}
