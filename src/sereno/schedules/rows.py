"""Rows that queries on schedules return; the client, the API, the pages and the command line reuse them."""

from datetime import datetime
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

UpsertOutcome: TypeAlias = Literal["created", "changed", "unchanged", "taken"]


class ScheduleRow(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as it is stored."""

    id: int
    key: str
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
    # What a worker must have to run its jobs: a version of the task, a key.
    requires: dict[str, Any] | None = None

    @property
    def late_p99(self) -> float | None:
        """Return the 99th percentile of lateness in seconds, within a factor of two, from the buckets of the row."""
        counts = [count or 0 for count in self.lateness]
        wanted = sum(counts) * 0.99
        seen = 0
        for power, count in enumerate(counts, 1):
            seen += count
            if count and seen >= wanted:
                return float(2**power) / 1000
        return None


class UpsertResult(msgspec.Struct, frozen=True):
    """The result of writing a schedule, and when it fires next.

    "taken": it was declared, but the key belongs to a tenant's schedule.
    """

    id: int
    key: str
    what: UpsertOutcome
    state: str
    next_run_at: datetime | None


class FireRow(msgspec.Struct, frozen=True):
    """One instant of a schedule: its job and the outcome, or why it made no job.

    `duration`: seconds that the last attempt ran. `counts`: the number fields of the result, where one schedule is
    shown.
    """

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
    duration: float | None
    counts: dict[str, int | float] | None = None


class SchedulerRow(NamedTuple):
    """The leading scheduler and its last tick. `lag`: seconds that the oldest due schedule has waited."""

    holder: str
    fence: int
    since: datetime
    until: datetime
    alive: bool
    wakes_at: datetime | None
    ticked_at: datetime | None
    tick_seconds: float | None
    tick_fires: int | None
    error: str | None
    error_at: datetime | None
    zones: str | None
    lag: float | None
