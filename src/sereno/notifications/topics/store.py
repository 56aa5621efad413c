"""Subscribes recipients to topics."""

from collections.abc import Sequence

from sereno.database.statement import Operation, Statement, queries
from sereno.errors import InvalidArguments
from sereno.text import check_text

_sql = queries("notifications/topics/store")

# Recipients that one call subscribes.
MOST_NAMED = 10_000
# Recipients that an error names.
MOST_IN_ERROR = 5


def subscribe(topic: str, recipients: str | Sequence[str], *, tenant: str | None) -> Operation[int]:
    """Subscribe recipients to a topic; InvalidArguments if one does not exist. Return how many are new."""
    rows = yield Statement(_sql["subscribe"], _values(topic, recipients, tenant))
    count, missing = rows[0]
    if missing:
        more = f" and {len(missing) - MOST_IN_ERROR:,} more" if len(missing) > MOST_IN_ERROR else ""
        names = ", ".join(f"{key!r:.60}" for key in missing[:MOST_IN_ERROR])
        raise InvalidArguments(f"there is no recipient {names}{more}: create it first with app.recipients.upsert(…)")
    return int(count)


def unsubscribe(topic: str, recipients: str | Sequence[str], *, tenant: str | None) -> Operation[int]:
    """End the subscriptions of recipients to a topic. Return how many there were."""
    rows = yield Statement(_sql["unsubscribe"], _values(topic, recipients, tenant))
    return int(rows[0][0])


def _values(topic: str, recipients: str | Sequence[str], tenant: str | None) -> dict[str, object]:
    named = [recipients] if isinstance(recipients, str) else list(recipients)
    if len(named) > MOST_NAMED:
        raise InvalidArguments(f"{len(named):,} recipients, at most {MOST_NAMED:,} in one call")
    check_text("topic", topic)
    check_text("tenant", tenant)
    for key in named:
        check_text("recipient", key)
    return {"topic": topic, "recipients": sorted(set(named)), "tenant": tenant or ""}
