"""Topics: list them and their subscribers; subscribe and unsubscribe recipients."""

from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated

from fastapi import Depends, Query, Response
from pydantic import BaseModel, Field

from sereno.notifications.topics import operations, queries
from sereno.notifications.topics.rows import SubscriberLine, TopicLine
from sereno.server.api.bounds import Name
from sereno.server.api.paging import MOST, Paging, page_of, paging
from sereno.server.api.responses import json_response, page_model, response_model
from sereno.server.api.router import Router, Who
from sereno.server.shared.context import ServerContext
from sereno.server.shared.tenant_scope import their_tenant
from sereno.text import NAME_LIMIT

NOT_FOUND = (HTTPStatus.NOT_FOUND,)
# A topic may contain slashes.
ONE = "/topics/{topic:path}"

Tenant = Annotated[str | None, Query(description="Tenant of the topic; without it, a topic of no tenant.")]
After = Annotated[str, Query(max_length=NAME_LIMIT, description="The `next` of the previous page.")]


class SubscriptionBody(BaseModel):
    """Keys of the recipients to subscribe or unsubscribe."""

    recipients: list[Name] = Field(min_length=1, max_length=10_000)


@dataclass
class TopicPage:
    """Topics by name. `next`: pass it as `after` to get the next page; null at the end."""

    items: list[TopicLine]
    next: str | None


@dataclass
class SubscriptionsChanged:
    """`count`: how many subscriptions were created or ended."""

    count: int


def routes(context: ServerContext) -> Router:
    """`/topics`."""
    router = Router(context, "topics")

    @router.operation(
        "GET", "/topics", role="viewer", of_tenants=True, also=NOT_FOUND, response_model=response_model(TopicPage)
    )
    async def list_topics(
        who: Who,
        pattern: Annotated[str | None, Query(description="A topic; * stands for anything.")] = None,
        tenant: Tenant = None,
        limit: Annotated[int, Query(ge=1, le=MOST, description="Maximum number of items.")] = 50,
        after: After = "",
    ) -> Response:
        """Topics with subscribers, by name; the subscribers of each are counted up to ten thousand."""
        theirs = their_tenant(who, tenant)
        found = await context.read(queries.topics(pattern, tenant=theirs, after=after, limit=limit + 1))
        more = len(found) > limit
        return json_response(TopicPage(found[:limit], found[limit - 1].topic if more else None))

    @router.operation(
        "GET",
        f"{ONE}/subscribers",
        role="viewer",
        of_tenants=True,
        also=NOT_FOUND,
        response_model=page_model(SubscriberLine),
    )
    async def list_subscribers(
        topic: str, who: Who, page: Annotated[Paging, Depends(paging)], tenant: Tenant = None
    ) -> Response:
        """Subscribers of a topic, the newest recipient first."""
        theirs = their_tenant(who, tenant)
        query = page_of(
            page,
            lambda most, before: queries.subscribers(topic, tenant=theirs, before=before, limit=most),
            lambda line: line.id,
        )
        return json_response(await context.read(query))

    @router.operation("POST", f"{ONE}/subscribe", role="admin", of_tenants=True, also=NOT_FOUND)
    async def subscribe(topic: str, body: SubscriptionBody, who: Who, tenant: Tenant = None) -> SubscriptionsChanged:
        """Subscribe recipients to a topic: all of them, or none if one does not exist."""
        theirs = their_tenant(who, tenant)
        change = operations.subscribe(topic, body.recipients, tenant=theirs, actor=who.actor)
        return SubscriptionsChanged(await context.change(change))

    @router.operation("POST", f"{ONE}/unsubscribe", role="admin", of_tenants=True, also=NOT_FOUND)
    async def unsubscribe(topic: str, body: SubscriptionBody, who: Who, tenant: Tenant = None) -> SubscriptionsChanged:
        """End subscriptions of recipients to a topic, also for messages that wait to be sent."""
        theirs = their_tenant(who, tenant)
        change = operations.unsubscribe(topic, body.recipients, tenant=theirs, actor=who.actor)
        return SubscriptionsChanged(await context.change(change))

    return router
