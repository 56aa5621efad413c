"""Row types of topics and their subscribers."""

from datetime import datetime

import msgspec


class TopicLine(msgspec.Struct, kw_only=True):
    """A topic. `subscribers`: counted up to SUBSCRIBERS_BOUND."""

    topic: str
    tenant: str | None
    subscribers: int


class SubscriberLine(msgspec.Struct, kw_only=True):
    """A recipient that is subscribed to a topic. `id`: of the recipient."""

    id: int
    recipient: str
    subscribed_at: datetime
