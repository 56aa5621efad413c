"""The scenarios, by the part of sereno that they are about."""

from tests.interleavings.scenario import AnyScenario
from tests.interleavings.scenarios import archive, bulk, job_streams, jobs, limits, notifications, schedules

_ALL: list[AnyScenario] = [
    *jobs.SCENARIOS,
    *job_streams.SCENARIOS,
    *bulk.SCENARIOS,
    *limits.SCENARIOS,
    *schedules.SCENARIOS,
    *notifications.SCENARIOS,
    *archive.SCENARIOS,
]
SCENARIOS: dict[str, AnyScenario] = {scenario.name: scenario for scenario in _ALL}
