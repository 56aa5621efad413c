"""Row types of changes to jobs: pauses, conflicts of unique keys, bulk operations."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias

PauseKind: TypeAlias = Literal["queue", "task", "tenant"]
JobAction: TypeAlias = Literal["job.retry", "job.cancel", "job.delete"]
ScheduleAction: TypeAlias = Literal[
    "schedule.pause", "schedule.resume", "schedule.disable", "schedule.delete", "schedule.spread"
]
Action: TypeAlias = JobAction | ScheduleAction | Literal["delivery.requeue"]


@dataclass(frozen=True, slots=True)
class KeyConflict:
    """A finished job that could not be requeued, because the live job `held_by` has its unique key."""

    job: int
    held_by: int


@dataclass(frozen=True, slots=True)
class BulkOperation:
    """A bulk change in the background.

    `total`: the number of matches when it was requested; null if they could not be counted in time, a lower bound
    unless `total_exact`. `stop_requested`: running jobs that were requested to cancel. `left_alone`: matches that could
    not be changed. `options`: other options of the change. `waits_for`: what is missing for it to continue.
    """

    id: int
    action: str
    state: str
    wanted: Mapping[str, Any]
    options: Mapping[str, Any]
    tenant: str | None
    rate: float | None
    reason: str | None
    requested_by: str
    total: int | None
    total_exact: bool
    done: int
    stop_requested: int
    left_alone: int
    created_at: datetime
    started_at: datetime | None
    seen_at: datetime | None
    stop_requested_at: datetime | None
    stop_requested_by: str | None
    finished_at: datetime | None
    job_id: int | None
    error: str | None
    waits_for: str | None

    @property
    def is_over(self) -> bool:
        return self.state in ("done", "stopped", "failed")
