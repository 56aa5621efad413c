"""Schedules in responses: all fields with the rule in words, fires, upcoming instants."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from sereno.access.identity import Principal
from sereno.access.masking import masked
from sereno.schedules.lists import in_words
from sereno.schedules.rules.preview import Instant
from sereno.schedules.store import FireRow, ScheduleRow


@dataclass
class Schedule:
    """`when`: the rule in words. `next_run_at`: null until the scheduler has planned it. Durations are in seconds."""

    key: str
    when: str
    id: int
    state: str
    rule: dict[str, Any]
    shift: int
    next_run_at: datetime | None
    planned: bool
    task: str
    queue: str
    priority: int
    tenant: str | None
    trace: str | None
    tags: list[str] | None
    args: dict[str, Any]
    unique_key: str | None
    unique_for: float | None
    unique_forever: bool | None
    on_conflict: str | None
    expires_after: float | None
    missed: str
    missed_limit: int
    missed_window: float
    max_lateness: float | None
    overlap: str
    disable_after: int | None
    starts_at: datetime | None
    ends_at: datetime | None
    max_fires: int | None
    paused_until: datetime | None
    note: str | None
    changed_by: str | None
    declared_by: str | None
    created_at: datetime
    changed_at: datetime
    last_planned_at: datetime | None
    last_base_at: datetime | None
    last_fired_at: datetime | None
    last_job_id: int | None
    last_finished_at: datetime | None
    last_state: str | None
    last_error: str | None
    held_at: datetime | None
    fired: int
    missed_count: int
    succeeded: int
    failed: int
    failed_in_row: int
    skipped: dict[str, int]
    lateness: list[int | None]
    late_p99: float | None


@dataclass
class Fire:
    """One instant of a schedule: the job that it created and its outcome, or the `reason` why there is none."""

    planned_at: datetime | None
    fired_at: datetime
    job_id: int | None
    stands_for: int | None
    reason: str | None
    state: str
    started_at: datetime | None
    finished_at: datetime | None
    attempt: int
    error: str | None


@dataclass
class UpcomingFire:
    """When it runs, also in the time zone of the rule. `note`: what is special about it at a change of the clock."""

    at: datetime
    local: str
    zone: str
    note: str | None


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
class ScheduleDetailAnswer:
    """One schedule with its past runs, newest first, and its upcoming ones."""

    schedule: Schedule
    last_job: LastJob | None
    fires: list[Fire]
    upcoming: list[UpcomingFire]
    now: datetime


@dataclass
class Fires:
    """The newest first."""

    items: list[Fire]


@dataclass
class NextRuns:
    """`upcoming` is empty where no run is planned: `state` and `paused_until` say why."""

    key: str
    when: str
    state: str
    paused_until: datetime | None
    upcoming: list[UpcomingFire]


@dataclass
class Preview:
    """A rule in words and in its normal form, and when it would run."""

    when: str
    rule: dict[str, Any]
    upcoming: list[UpcomingFire]


@dataclass
class Definitions:
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


def shown_fires(found: Iterable[FireRow]) -> list[Fire]:
    return [Fire(*fire) for fire in found]


def shown_instants(found: Iterable[Instant]) -> list[UpcomingFire]:
    return [
        UpcomingFire(each.at, each.local.isoformat(), each.local.strftime("%Z"), each.note or None) for each in found
    ]
