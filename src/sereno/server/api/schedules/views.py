"""Schedules in responses: all fields with the rule in words, fires, upcoming instants."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from sereno.access.identity import Principal
from sereno.access.masking import masked
from sereno.schedules.lists import UpcomingFire, in_words
from sereno.schedules.rows import FireRow, ScheduleRow


class Schedule(ScheduleRow, frozen=True, kw_only=True):
    """`when`: the rule in words. `next_run_at`: null until the scheduler has planned it. Durations are in seconds."""

    when: str
    late_p99: float | None


@dataclass
class LastJob:
    """The job of the last run; `/jobs/{job_id}` has the rest."""

    id: int
    state: str
    attempt: int
    run_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


@dataclass
class Schedules:
    """`next`: pass it as `after` to get the next page; null at the end."""

    items: list[Schedule]
    now: datetime
    next: str | None


@dataclass
class ScheduleDetailResponse:
    """One schedule with its past runs, newest first, and its upcoming ones."""

    schedule: Schedule
    last_job: LastJob | None
    fires: list[FireRow]
    upcoming: list[UpcomingFire]
    now: datetime


@dataclass
class Fires:
    """The newest first."""

    items: list[FireRow]


@dataclass
class NextRuns:
    """`upcoming` is empty where no run is planned: `state` and `paused_until` say why."""

    key: str
    when: str
    state: str
    paused_until: datetime | None
    upcoming: list[UpcomingFire]


@dataclass
class SchedulePreview:
    """A rule in words and in its normal form, and when it would run."""

    when: str
    rule: dict[str, Any]
    upcoming: list[UpcomingFire]


@dataclass
class ScheduleDefinitions:
    """What `PUT /schedules/{key}` and `POST /schedules/import` accept. `next`: pass it as `after`."""

    items: list[dict[str, Any]]
    next: str | None


def shown(row: ScheduleRow, who: Principal) -> Schedule:
    """Return the response for a row. Until the scheduler has planned it, `next_run_at` of the row is when to plan it.

    Likely secrets in its arguments are masked for viewers.
    """
    values = msgspec.structs.asdict(row) | {"next_run_at": row.next_run_at if row.planned else None}
    if not who.may("operator"):
        values["args"] = masked(values["args"])
    return Schedule(when=in_words(row.rule), late_p99=row.late_p99, **values)
