"""`app.topics`: subscribes recipients to topics, for events such as `notify(…, to="topic:tender:r42")`.

Every method has an async twin with the prefix `a`. `conn`: the caller's connection, to commit with the caller's rows.
"""

from collections.abc import Sequence
from typing import Any

from sereno.database.client import DatabaseClient
from sereno.notifications.topics import queries, store
from sereno.notifications.topics.queries import PAGE
from sereno.notifications.topics.rows import SubscriberLine, TopicLine


class Topics(DatabaseClient):
    """Topics and their subscribers. A topic exists while it has a subscriber."""

    def subscribe(
        self, topic: str, recipients: str | Sequence[str], *, tenant: str | None = None, conn: Any = None
    ) -> int:
        """Subscribe recipients, up to 10,000 at once: `subscribe("tender:r42", "ada")`. Return how many are new.

        The recipients must exist: for a key without a recipient, InvalidArguments is raised and nothing changes.
        """
        return self._run(store.subscribe(topic, recipients, tenant=tenant), conn)

    async def asubscribe(
        self, topic: str, recipients: str | Sequence[str], *, tenant: str | None = None, conn: Any = None
    ) -> int:
        return await self._arun(store.subscribe(topic, recipients, tenant=tenant), conn)

    def unsubscribe(
        self, topic: str, recipients: str | Sequence[str], *, tenant: str | None = None, conn: Any = None
    ) -> int:
        """End subscriptions, also for messages that wait to be sent. Return how many there were."""
        return self._run(store.unsubscribe(topic, recipients, tenant=tenant), conn)

    async def aunsubscribe(
        self, topic: str, recipients: str | Sequence[str], *, tenant: str | None = None, conn: Any = None
    ) -> int:
        return await self._arun(store.unsubscribe(topic, recipients, tenant=tenant), conn)

    def subscribers(
        self, topic: str, *, tenant: str | None = None, before: int | None = None, most: int = PAGE
    ) -> Sequence[SubscriberLine]:
        """Return subscribers, the newest recipient first; `before`: the last id of the previous page."""
        return self._run(queries.subscribers(topic, tenant=tenant, before=before, limit=most), None)

    async def asubscribers(
        self, topic: str, *, tenant: str | None = None, before: int | None = None, most: int = PAGE
    ) -> Sequence[SubscriberLine]:
        return await self._arun(queries.subscribers(topic, tenant=tenant, before=before, limit=most), None)

    def of(self, recipient: str, *, tenant: str | None = None, after: str = "", most: int = PAGE) -> Sequence[str]:
        """Return the topics of a recipient by name; `after`: the last topic of the previous page."""
        return self._run(queries.topics_of(recipient, tenant=tenant, after=after, limit=most), None)

    async def aof(
        self, recipient: str, *, tenant: str | None = None, after: str = "", most: int = PAGE
    ) -> Sequence[str]:
        return await self._arun(queries.topics_of(recipient, tenant=tenant, after=after, limit=most), None)

    def list(
        self, pattern: str | None = None, *, tenant: str | None = None, after: str = "", most: int = PAGE
    ) -> Sequence[TopicLine]:
        """Return topics by name, such as those of "tender:*"; `after`: the last topic of the previous page."""
        return self._run(queries.topics(pattern, tenant=tenant, after=after, limit=most), None)

    async def alist(
        self, pattern: str | None = None, *, tenant: str | None = None, after: str = "", most: int = PAGE
    ) -> Sequence[TopicLine]:
        return await self._arun(queries.topics(pattern, tenant=tenant, after=after, limit=most), None)
