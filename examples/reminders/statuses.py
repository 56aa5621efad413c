"""The statuses of the original design, and the states of sereno that each stands for, as in `views.sql`."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

from sereno.jobs.filters import DeliveryFilter
from sereno.notifications.deliveries.delivery import State
from sereno.notifications.search_fields import DELIVERY_FIELDS
from sereno.search.search_filter import search_params

# SKIPPED: not sent, for example without an address. UNKNOWN: it may have been sent, and an operator decides.
Status = Literal["QUEUED", "SENT", "FAILED", "DEAD_LETTER", "SKIPPED", "UNKNOWN"]

# Events of this program; other programs may use the same database.
OWN = "event:reminders.due.*"
STATES: Mapping[Status, Sequence[tuple[Sequence[State], str]]] = {
    "QUEUED": [(["pending"], f"{OWN} attempts:0"), (["sending"], OWN)],
    "SENT": [(["sent", "delivered", "read"], OWN)],
    # Refused for good, and those with attempts left.
    "FAILED": [(["failed", "invalid", "bounced"], OWN), (["pending"], f"{OWN} attempts:>0")],
    "DEAD_LETTER": [(["dead"], OWN)],
    "SKIPPED": [(["skipped", "expired"], OWN)],
    "UNKNOWN": [(["unknown"], OWN)],
}


def filters(status: Status | None, channel: str | None, reminder: str | None) -> Iterator[DeliveryFilter]:
    """Yield filters of sereno. Together they match what the parameters of the administrative API match."""
    for states, search in STATES[status] if status else [(None, OWN)]:
        yield matching(search, states, channel=None if channel is None else channel.lower(), subject=reminder)


def matching(search: str, states: Sequence[State] | None, **others: Any) -> DeliveryFilter:
    return DeliveryFilter(states, search_params=search_params(search, DELIVERY_FIELDS, datetime.now(UTC)), **others)
