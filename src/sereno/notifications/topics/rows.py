"""Row types of topics and their subscribers."""

from datetime import datetime

import msgspec


class TopicLine(msgspec.Struct, kw_only=True):
    """A topic. `subscribers`: counted up to SUBSCRIBERS_BOUND; None where they are not counted."""

    topic: str
    tenant: str | None
    subscribers: int | None


class SubscriberLine(msgspec.Struct, kw_only=True):
    """A recipient that is subscribed to a topic. `id`: of the recipient."""

    id: int
    recipient: str
    subscribed_at: datetime
