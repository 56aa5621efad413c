"""The scenarios, by the part of sereno that they are about."""

from tests.interleavings.scenario import AnyScenario
from tests.interleavings.scenarios import archive, bulk, jobs, limits, notifications, releases, schedules

_ALL: list[AnyScenario] = [
    *jobs.SCENARIOS,
    *bulk.SCENARIOS,
    *limits.SCENARIOS,
    *schedules.SCENARIOS,
    *notifications.SCENARIOS,
    *archive.SCENARIOS,
    *releases.SCENARIOS,
]
SCENARIOS: dict[str, AnyScenario] = {scenario.name: scenario for scenario in _ALL}
