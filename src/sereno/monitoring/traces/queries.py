"""Queries by trace: jobs and attempts, fires, events, deliveries and receipts. Every query is bounded."""

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from sereno.database.statement import Operation, Row, Statement, queries
from sereno.monitoring.traces.rows import (
    TracedAttempt,
    TracedDelivery,
    TracedEvent,
    TracedFire,
    TracedGroup,
    TracedJob,
    TracedReceipt,
)

_sql = queries("monitoring/traces/queries")
T = TypeVar("T")

# Rows that are searched for those of a tenant.
WINDOW = 10_000
MOST_JOBS = 200
MOST_ATTEMPTS = 2000
MOST_EVENTS = 50
# Bounds: deliveries that are counted over all events, deliveries that are listed, and receipts of those.
BOUND = 50_000
MOST_DELIVERIES = 200
MOST_RECEIPTS = 500


def jobs(trace: str, *, tenant: str | None) -> Operation[list[TracedJob]]:
    """Return the first ones; one more than are shown, to detect that there are more."""
    params = {"trace": trace, "tenant": tenant, "window": WINDOW, "most": MOST_JOBS + 1}
    return _all(TracedJob, (yield Statement(_sql["jobs"], params)))


def job(number: int, *, tenant: str | None) -> Operation[tuple[str | None, TracedJob] | None]:
    """Return the trace id of a job, and the job; None if it does not exist."""
    rows = yield Statement(_sql["job"], {"id": number, "tenant": tenant})
    return (rows[0][0], msgspec.json.decode(rows[0][1], type=TracedJob)) if rows else None


def attempts(ids: Sequence[int]) -> Operation[list[TracedAttempt]]:
    return _all(TracedAttempt, (yield Statement(_sql["attempts"], {"ids": list(ids), "most": MOST_ATTEMPTS})))


def fires(found: Sequence[TracedJob]) -> Operation[list[TracedFire]]:
    """Return the fires that created these jobs."""
    made = [
        {"job_id": each.id, "schedule_id": each.schedule_id, "planned_at": each.planned_at}
        for each in found
        if each.schedule_id is not None and each.planned_at is not None
    ]
    if not made:
        return []
    return _all(TracedFire, (yield Statement(_sql["fires"], {"jobs": msgspec.json.encode(made).decode()})))


def events(trace: str, *, tenant: str | None) -> Operation[list[TracedEvent]]:
    """Return the first ones; one more than are shown, to detect that there are more."""
    params = {"trace": trace, "tenant": tenant, "window": WINDOW, "most": MOST_EVENTS + 1}
    return _all(TracedEvent, (yield Statement(_sql["events"], params)))


def event(
    number: int | None = None, *, delivery: int | None = None, tenant: str | None
) -> Operation[TracedEvent | None]:
    """Return an event by its id, or by the id of one of its deliveries."""
    rows = yield Statement(_sql["event"], {"event": number, "delivery": delivery, "tenant": tenant})
    return _all(TracedEvent, rows)[0] if rows else None


def about(subject: str, *, tenant: str | None) -> Operation[list[TracedEvent]]:
    """Return events with this subject, newest first."""
    params = {"subject": subject, "tenant": tenant, "window": WINDOW, "most": MOST_EVENTS}
    return _all(TracedEvent, (yield Statement(_sql["subject"], params)))


def newest(*, tenant: str | None, most: int) -> Operation[list[TracedEvent]]:
    """Return the newest events that have a subject."""
    params = {"tenant": tenant, "window": WINDOW, "most": most}
    return _all(TracedEvent, (yield Statement(_sql["newest"], params)))


def deliveries(events: Sequence[int], bound: int) -> Operation[list[TracedGroup]]:
    """Return counts by event, channel and state; at most `bound` + 1 deliveries of each event are counted."""
    return _all(TracedGroup, (yield Statement(_sql["deliveries"], {"events": list(events), "bound": bound})))


def sample(events: Sequence[int]) -> Operation[list[TracedDelivery]]:
    """Return a sample of the deliveries; all, if they are few."""
    return _all(TracedDelivery, (yield Statement(_sql["sample"], {"events": list(events), "most": MOST_DELIVERIES})))


def receipts(ids: Sequence[int]) -> Operation[list[TracedReceipt]]:
    return _all(TracedReceipt, (yield Statement(_sql["receipts"], {"ids": list(ids), "most": MOST_RECEIPTS})))


def _all(shape: type[T], rows: Sequence[Row]) -> list[T]:
    return [msgspec.json.decode(row[-1], type=shape) for row in rows]
