"""How schedules look over HTTP: everything on the row with its rule in words, fires, instants to come."""

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
    """`when`: the rule in words. `next_run_at`: null while the scheduler has not planned it. Durations are seconds."""

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
    """One instant of a schedule: the job that it made and how that went, or the `reason` why there is none."""

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
    """When it runs, on the clock of the rule as well. `note`: what is odd about it, where that clock is turned."""

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
    """`next`: give it as `after` to get the page after this one; null at the end."""

    items: list[Schedule]
    now: datetime
    next: str | None


@dataclass
class ScheduleDetailAnswer:
    """One schedule with what it did, newest first, and what it will do."""

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
    """`upcoming` is empty where nothing is to come: `state` and `paused_until` say why."""

    key: str
    when: str
    state: str
    paused_until: datetime | None
    upcoming: list[UpcomingFire]


@dataclass
class Preview:
    """A rule in words and in its one spelling, and when it would run."""

    when: str
    rule: dict[str, Any]
    upcoming: list[UpcomingFire]


@dataclass
class Definitions:
    """What `PUT /schedules/{key}` and `POST /schedules/import` read. `next`: give it as `after`."""

    items: list[dict[str, Any]]
    next: str | None


def shown(row: ScheduleRow, who: Principal) -> Schedule:
    """Before the scheduler has planned it, the row holds when to do that instead of when it runs.

    What looks like a secret in its arguments is hidden from those who only look.
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
