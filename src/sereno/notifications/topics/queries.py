"""Read queries for topics and their subscribers."""

import msgspec

from sereno.database.statement import Operation, Statement, queries
from sereno.notifications.topics.rows import SubscriberLine, TopicLine
from sereno.search.sql_terms import like_exactly
from sereno.text import check_text

_sql = queries("notifications/topics/queries")

# Topics that a list with a pattern examines.
WINDOW = 10_000
# Subscribers of one topic that are counted.
SUBSCRIBERS_BOUND = 10_000
# Rows of one page.
PAGE = 50


def topics(
    pattern: str | None = None, *, tenant: str | None, after: str = "", limit: int = PAGE
) -> Operation[list[TopicLine]]:
    """Return topics by name; `pattern` such as "tender:*". `after`: the last topic of the previous page."""
    for name, value in (("pattern", pattern), ("tenant", tenant), ("after", after or None)):
        check_text(name, value)
    like = None if pattern is None else like_exactly(pattern).replace("*", "%")
    rows = yield Statement(
        _sql["topics"],
        {
            "tenant": tenant or "",
            "pattern": like,
            "prefix": "" if pattern is None else pattern.partition("*")[0],
            "after": after,
            "limit": limit,
            "window": WINDOW,
            "bound": SUBSCRIBERS_BOUND,
        },
    )
    return [msgspec.json.decode(row[0], type=TopicLine) for row in rows]


def subscribers(
    topic: str, *, tenant: str | None, before: int | None = None, limit: int = PAGE
) -> Operation[list[SubscriberLine]]:
    """Return the subscribers of a topic, the newest recipient first. `before`: the last id of the previous page."""
    check_text("topic", topic)
    check_text("tenant", tenant)
    values = {"tenant": tenant or "", "topic": topic, "before": before, "limit": limit}
    rows = yield Statement(_sql["subscribers"], values)
    return [msgspec.json.decode(row[0], type=SubscriberLine) for row in rows]


def topics_of(recipient: str, *, tenant: str | None, after: str = "", limit: int = PAGE) -> Operation[list[str]]:
    """Return the topics of a recipient by name. `after`: the last topic of the previous page."""
    for name, value in (("recipient", recipient), ("tenant", tenant), ("after", after or None)):
        check_text(name, value)
    values = {"tenant": tenant or "", "recipient": recipient, "after": after, "limit": limit}
    rows = yield Statement(_sql["topics_of"], values)
    return [row[0] for row in rows]


def is_subscribed(recipient: int, topic: str, tenant: str | None) -> Operation[bool]:
    values = {"recipient": recipient, "topic": topic, "tenant": tenant or ""}
    rows = yield Statement(_sql["is_subscribed"], values)
    return bool(rows[0][0])
