"""What a person sees, as values: the rows of the read operations, by name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

# No list counts further than this; what is behind it is shown as "more than".
BOUND = 10_000


@dataclass(frozen=True, slots=True)
class Count:
    """A number that was counted up to a bound; when it is not exact, there are at least this many."""

    value: int
    exact: bool = True

    @classmethod
    def bounded(cls, found: int, bound: int = BOUND) -> "Count":
        return cls(min(found, bound), found <= bound)

    def __str__(self) -> str:
        if self.exact:
            return f"{self.value:,}"
        return f">{self.value:,}" if self.value >= BOUND else f"≥{self.value:,}"


@dataclass(frozen=True, slots=True)
class JobLine:
    """A job as a list shows it."""

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
    """A job with everything that its own row holds, live or finished."""

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
    # The key of the schedule that made it, and for which instant.
    schedule: str | None
    planned_at: datetime | None
    # The limits that it passes, its fair key and its order key; None when it has none of its own.
    keys: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One try. `outcome` is "running" for the one that has not ended."""

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
    """A step that is done for good."""

    name: str
    attempt: int
    result: Any
    done_at: datetime


@dataclass(frozen=True, slots=True)
class ProgressRow:
    """How far the running attempt says it is."""

    attempt: int
    fraction: float
    note: str | None
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class PauseRow:
    """A queue, a task or a tenant that an operator has stopped. `by_tenant`: one of that tenant's own people."""

    kind: str
    name: str
    paused_at: datetime
    paused_by: str
    note: str | None
    by_tenant: bool


@dataclass(frozen=True, slots=True)
class SessionRow:
    """One life of one worker process. `expired`: its lease ran out and nobody has declared it dead yet."""

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


@dataclass(frozen=True, slots=True)
class WaitReason:
    """What stands between a ready job and a worker."""

    workers: int
    serving: int
    able: int
    slots: int
    busy: int
    ahead: Count
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
    """The oldest transaction of the database."""

    pid: int
    application: str
    seconds: float
    state: str | None


@dataclass(frozen=True, slots=True)
class FailureRow:
    """An attempt that went wrong lately."""

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
    """How a task fares among the newest jobs. `median_wait`: seconds from due to started, of those that succeeded."""

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
    """A running job that reports its progress."""

    id: int
    task: str
    tenant: str | None
    seconds: float
    fraction: float
    note: str | None
