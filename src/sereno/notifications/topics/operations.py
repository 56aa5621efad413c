"""Operator actions on topics, recorded in the audit log."""

from collections.abc import Sequence

from sereno.database.statement import Operation
from sereno.notifications.operations import record_audit
from sereno.notifications.topics import store

# Recipients that an audit entry names.
MOST_RECORDED = 20


def subscribe(topic: str, recipients: Sequence[str], *, tenant: str | None, actor: str | None = None) -> Operation[int]:
    """Subscribe recipients to a topic. Return how many subscriptions are new."""
    count = yield from store.subscribe(topic, recipients, tenant=tenant)
    yield from _record("topic.subscribe", topic, recipients, tenant, count, actor)
    return count


def unsubscribe(
    topic: str, recipients: Sequence[str], *, tenant: str | None, actor: str | None = None
) -> Operation[int]:
    """End the subscriptions of recipients to a topic. Return how many there were."""
    count = yield from store.unsubscribe(topic, recipients, tenant=tenant)
    yield from _record("topic.unsubscribe", topic, recipients, tenant, count, actor)
    return count


def _record(
    action: str, topic: str, recipients: Sequence[str], tenant: str | None, count: int, actor: str | None
) -> Operation[None]:
    detail = {"tenant": tenant, "recipients": list(recipients[:MOST_RECORDED]), "count": count}
    yield from record_audit(action, f"topic {topic}", detail, actor=actor)
