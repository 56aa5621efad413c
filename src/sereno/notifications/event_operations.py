"""`app.events` and operator actions on events: cancel one, and read how far it got."""

from dataclasses import dataclass
from typing import Any

from sereno.bounded_count import BoundedCount
from sereno.database.client import DatabaseClient
from sereno.database.database import Database
from sereno.database.statement import Operation
from sereno.jobs import transitions
from sereno.notifications import broadcasts
from sereno.notifications.jobs import NotificationJobs
from sereno.notifications.operations import EventDetail, record_audit, show_event

# States of deliveries that are cancelled with their event.
UNSENT = "pending"
# States of deliveries that never reached a provider or an inbox.
NEVER_SENT = frozenset({UNSENT, "skipped", "expired"})


@dataclass(frozen=True, slots=True)
class EventCancellation:
    """How far a cancelled event got. `changed`: False if it was cancelled already.

    `sent`: deliveries that were given to a provider or an inbox, or are being given. `unsent`: those that are skipped.
    `total`: deliveries that were created; above its bound, the others are lower bounds.
    """

    event: int
    changed: bool
    sent: int
    unsent: int
    total: BoundedCount


def cancel_event(number: int, jobs: NotificationJobs) -> Operation[EventCancellation]:
    """Cancel an event; ConfigurationError if it does not exist. A job skips its deliveries that wait."""
    yield from show_event(number)
    cancelled = yield from broadcasts.cancel(number)
    if cancelled is not None:
        tenant, queue = cancelled
        yield from transitions.enqueue([jobs.cancel(number, tenant, queue)])
    # Read again: the current step of the fan-out may have ended meanwhile.
    detail = yield from show_event(number)
    sent = sum(line.count for line in detail.deliveries if line.state not in NEVER_SENT)
    unsent = sum(line.count for line in detail.deliveries if line.state == UNSENT)
    return EventCancellation(number, cancelled is not None, sent, unsent, detail.total)


def cancel_and_record(number: int, jobs: NotificationJobs, *, actor: str | None = None) -> Operation[EventCancellation]:
    """`cancel_event` for an operator, recorded in the audit log."""
    found = yield from cancel_event(number, jobs)
    if found.changed:
        detail = {"sent": found.sent, "unsent": found.unsent}
        yield from record_audit("event.cancel", f"event {number}", detail, actor=actor)
    return found


class Events(DatabaseClient):
    """Events by id, as `notify` returns it. Every method has an async twin with the prefix `a`."""

    def __init__(self, database: Database, jobs: NotificationJobs) -> None:
        super().__init__(database)
        self.jobs = jobs

    def show(self, event: int) -> EventDetail:
        """Return the event with its deliveries by channel and state, and by variant of the message."""
        return self._run(show_event(event), None)

    async def ashow(self, event: int) -> EventDetail:
        return await self._arun(show_event(event), None)

    def cancel(self, event: int, *, conn: Any = None) -> EventCancellation:
        """Send nothing more of an event: unsent deliveries are `skipped: cancelled`. Return how far it got."""
        return self._run(cancel_event(event, self.jobs), conn)

    async def acancel(self, event: int, *, conn: Any = None) -> EventCancellation:
        return await self._arun(cancel_event(event, self.jobs), conn)
