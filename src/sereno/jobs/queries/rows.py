"""Row types of the read operations on jobs, queues and sessions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sereno.bounded_count import BoundedCount


@dataclass(frozen=True, slots=True)
class JobLine:
    """A job in a list."""

    id: int
    state: str
    task: str
    queue: str
    tenant: str | None
    priority: int
    attempt: int
    failures: int
    run_at: datetime
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    unique_key: str | None
    tags: Sequence[str] | None
    reason: str | None
    error_type: str | None
    error_message: str | None


@dataclass(frozen=True, slots=True)
class JobRow:
    """A live or finished job with all columns of its row."""

    id: int
    state: str
    task: str
    queue: str
    tenant: str | None
    priority: int
    attempt: int
    failures: int
    crashes: int
    snoozes: int
    releases: int
    run_at: datetime
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    expires_at: datetime | None
    cancel_requested: bool
    unique_key: str | None
    tags: Sequence[str] | None
    trace: str | None
    args: Mapping[str, Any]
    reason: str | None
    error_type: str | None
    error_message: str | None
    traceback: str | None
    session_id: int | None
    host: str | None
    pid: int | None
    ready_seq: int | None
    # The key of the schedule that created it, and the planned time.
    schedule: str | None
    planned_at: datetime | None
    # Its limit keys, fair key and order key; None when it has none.
    keys: Mapping[str, Any] | None
    # What the task returned, if it keeps its result.
    result: Any
    # The group it belongs to, the jobs it waits or waited for, what a dead one means, and the group it follows.
    group_id: int | None
    after: Sequence[int] | None
    on_dead: str | None
    after_group: int | None
    # What its worker must have: a version of its task, a key; None when every worker of its task can run it.
    requires: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One attempt. `outcome` is "running" while it has not ended."""

    number: int
    session_id: int | None
    started_at: datetime
    finished_at: datetime | None
    outcome: str
    reason: str | None
    error_type: str | None
    error_message: str | None
    traceback: str | None


@dataclass(frozen=True, slots=True)
class StepRow:
    """A finished step; it is not run again."""

    name: str
    attempt: int
    result: Any
    done_at: datetime


@dataclass(frozen=True, slots=True)
class ProgressRow:
    """The progress that the running attempt reported."""

    attempt: int
    fraction: float
    note: str | None
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class PauseRow:
    """A paused queue, task or tenant. `by_tenant`: paused by one of that tenant's own users."""

    kind: str
    name: str
    paused_at: datetime
    paused_by: str
    note: str | None
    by_tenant: bool


@dataclass(frozen=True, slots=True)
class SessionRow:
    """One run of a worker process. `expired`: its lease ran out, and no worker has declared it dead yet."""

    id: int
    host: str
    pid: int
    state: str
    queues: Mapping[str, int]
    tasks: int
    running: int
    started_at: datetime
    ended_at: datetime | None
    lease_seconds: float
    version: str
    idle: bool
    # Of its code: the setting `release`.
    release: str | None = None


@dataclass(frozen=True, slots=True)
class WaitReason:
    """Figures that explain why a ready job has not been claimed."""

    workers: int
    serving: int
    able: int
    slots: int
    busy: int
    ahead: BoundedCount
    now: datetime


@dataclass(frozen=True, slots=True)
class NextJob:
    """The job that falls due next."""

    id: int
    task: str
    run_at: datetime
    in_seconds: float


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """The oldest open transaction of the database."""

    pid: int
    application: str
    seconds: float
    state: str | None


@dataclass(frozen=True, slots=True)
class FailureRow:
    """A recently failed attempt."""

    id: int
    task: str
    queue: str
    attempt: int
    outcome: str
    finished_at: datetime
    reason: str | None
    error_type: str | None
    error_message: str | None


@dataclass(frozen=True, slots=True)
class TaskLine:
    """Figures of a task over the newest jobs. `median_wait`: seconds from due to started, of succeeded jobs."""

    task: str
    waiting: int
    running: int
    succeeded: int
    cancelled: int
    dead: int
    retried: int
    median_wait: float | None


@dataclass(frozen=True, slots=True)
class RunningRow:
    """A running job that reports progress."""

    id: int
    task: str
    tenant: str | None
    seconds: float
    fraction: float
    note: str | None
