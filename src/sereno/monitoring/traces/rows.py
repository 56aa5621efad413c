"""Row types of traces: jobs and attempts, fires, events, deliveries and receipts."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class TracedJob:
    """A job, live or finished. `after`: the jobs that it waited for; `after_group`: the group that it followed."""

    id: int
    state: str
    task: str
    queue: str
    tenant: str | None
    created_at: datetime
    run_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    attempt: int
    reason: str | None
    error_type: str | None
    schedule_id: int | None
    planned_at: datetime | None
    group_id: int | None = None
    after: list[int] | None = None
    after_group: int | None = None


@dataclass(frozen=True, slots=True)
class TracedAttempt:
    """An attempt of a job, except the last one, which is in the row of the job."""

    job_id: int
    number: int
    started_at: datetime
    finished_at: datetime
    outcome: str
    reason: str | None
    error_type: str | None


@dataclass(frozen=True, slots=True)
class TracedFire:
    """The instant of a schedule that created a job. `fired_at`: None if the fire was deleted."""

    job_id: int
    key: str
    planned_at: datetime
    fired_at: datetime | None


@dataclass(frozen=True, slots=True)
class TracedEvent:
    """An event."""

    id: int
    type: str
    tenant: str | None
    subject: str | None
    trace: str | None
    created_at: datetime
    due_at: datetime
    matched_at: datetime | None


@dataclass(frozen=True, slots=True)
class TracedGroup:
    """Deliveries of an event by one channel, in one state."""

    event_id: int
    channel: str
    state: str
    count: int
    first_at: datetime
    last_at: datetime
    first_sent_at: datetime | None
    last_sent_at: datetime | None


@dataclass(frozen=True, slots=True)
class TracedDelivery:
    """One delivery, without its recipient. `due_at`: a pending delivery is held until then."""

    id: int
    event_id: int
    channel: str
    state: str
    attempts: int
    created_at: datetime
    due_at: datetime
    sent_at: datetime | None
    changed_at: datetime
    reason: str | None
    error_code: str | None


@dataclass(frozen=True, slots=True)
class TracedReceipt:
    """A receipt of a provider for one delivery."""

    delivery_id: int
    outcome: str
    code: str | None
    at: datetime
