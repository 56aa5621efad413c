"""Schedules with every kind of rule and every policy, whose instants can be counted independently."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sereno import Cron, Every, NewJob, Sereno
from sereno.schedules.rules.when import When


@dataclass(frozen=True)
class Rhythm:
    """A rule with equidistant instants, which can be counted independently."""

    when: When
    step: timedelta


RHYTHMS = (
    Rhythm(Every("500ms"), timedelta(seconds=0.5)),
    Rhythm(Every("1s", count_from="clock"), timedelta(seconds=1)),
    Rhythm(Cron("*/2 * * * * *"), timedelta(seconds=2)),
    Rhythm(Every("3s", spread="2s"), timedelta(seconds=3)),
)
POLICIES: tuple[dict[str, Any], ...] = (
    {"overlap": "allow"},
    {"overlap": "allow", "missed": "all", "missed_limit": 5},
    {"overlap": "allow", "missed": "skip"},
    {"overlap": "allow", "max_lateness": "5s"},
    {"overlap": "skip"},
    {"overlap": "queue_one"},
    {"overlap": "cancel_previous"},
)


def create_rhythms(app: Sereno, job: NewJob) -> dict[str, tuple[Rhythm, datetime]]:
    """Create a schedule for each rule and policy, and some that count from the end of a run; return the first fires."""
    first: dict[str, tuple[Rhythm, datetime]] = {}
    for number, rhythm in enumerate(RHYTHMS):
        for policy in POLICIES:
            key = f"{number} {' '.join(map(str, policy.values()))}"
            made = app.schedules.upsert(key, job, rhythm.when, **policy)
            assert made.next_run_at is not None
            first[key] = rhythm, made.next_run_at
    for number in range(3):
        app.schedules.upsert(f"end {number}", job, Every("500ms", count_from="end"))
    return first
