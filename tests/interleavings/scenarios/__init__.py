"""The scenarios, by the part of sereno that they are about."""

from tests.interleavings.scenario import AnyScenario
from tests.interleavings.scenarios import (
    archive,
    broadcasts,
    bulk,
    carriers,
    iterations,
    job_streams,
    jobs,
    limits,
    links,
    notifications,
    preferences,
    relay,
    releases,
    requested_receipts,
    schedules,
    signals,
)

_ALL: list[AnyScenario] = [
    *jobs.SCENARIOS,
    *job_streams.SCENARIOS,
    *bulk.SCENARIOS,
    *iterations.SCENARIOS,
    *limits.SCENARIOS,
    *links.SCENARIOS,
    *schedules.SCENARIOS,
    *notifications.SCENARIOS,
    *requested_receipts.SCENARIOS,
    *preferences.SCENARIOS,
    *broadcasts.SCENARIOS,
    *archive.SCENARIOS,
    *signals.SCENARIOS,
    *releases.SCENARIOS,
    *carriers.SCENARIOS,
    *relay.SCENARIOS,
]
SCENARIOS: dict[str, AnyScenario] = {scenario.name: scenario for scenario in _ALL}
