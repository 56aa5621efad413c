"""Recipients: their addresses and preferences, and why they were notified."""

import asyncio
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any, Literal

from fastapi import Depends, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from sereno.access.identity import Principal
from sereno.database.statement import Operation
from sereno.errors import InvalidArguments
from sereno.notifications import operations as notifications
from sereno.notifications import queries as notification_queries
from sereno.notifications.recipients.client import RecipientData
from sereno.notifications.recipients.preference import ASPECTS
from sereno.notifications.recipients.quiet_hours import QuietHours
from sereno.notifications.rows import PreferenceRow, RecipientLine
from sereno.notifications.search_fields import RECIPIENT_FIELDS
from sereno.notifications.topics.queries import topics_of
from sereno.notifications.why import why_notification
from sereno.search.syntax import LONGEST
from sereno.server.api.bounds import Name, at_most
from sereno.server.api.notifications.masking import recipient_shown
from sereno.server.api.paging import MOST, Paging, page_of, paging
from sereno.server.api.responses import (
    check_storable,
    json_response,
    one_transaction,
    or_not_found,
    page_model,
    response_model,
)
from sereno.server.api.router import Router, Who
from sereno.server.shared.context import ServerContext
from sereno.server.shared.event_types import known_kinds
from sereno.server.shared.http_error import not_found
from sereno.server.shared.search_access import searched
from sereno.server.shared.tenant_scope import their_tenant
from sereno.text import NAME_LIMIT, check_text

NOT_FOUND = (HTTPStatus.NOT_FOUND,)
DETAIL = response_model(notifications.RecipientDetail)
# A key may contain slashes.
ONE = "/recipients/{key:path}"

Tenant = Annotated[str | None, Query(description="Tenant of the recipient; without it, a recipient of no tenant.")]


Address = Annotated[str, Field(max_length=2000)]


class AddressBody(BaseModel):
    """An address with its further fields: keys of a push subscription, secrets of a webhook."""

    model_config = ConfigDict(extra="allow")

    address: Address
    state: Literal["active", "unverified"] = "active"


class RecipientBody(BaseModel):
    """Given fields change, others stay. An address that is given again is active again, unless unsubscribed."""

    addresses: Annotated[dict[Name, Annotated[list[Address | AddressBody], Field(max_length=50)]], at_most(50)] = {}
    zone: str | None = Field(None, max_length=100)
    locale: str | None = Field(None, max_length=100)
    data: dict[str, Any] | None = None


class QuietBody(BaseModel):
    """Quiet hours in the recipient's time zone, such as 22:00 to 08:00. `days`: the days on which they start."""

    start: str = Field(max_length=10)
    end: str = Field(max_length=10)
    days: list[Annotated[str, Field(max_length=20)]] | None = Field(None, max_length=7)


class PreferenceBody(BaseModel):
    """The preference for exactly this event, category and channel; without one of them, for any.

    Of `wanted`, `condition`, `quiet` and `digest`, given fields change, others stay, and null removes a value.
    `digest`: for how long messages of event types with a digest are collected, in seconds or text such as "1h"; 0: each
    is sent at once.
    """

    event: Name | None = None
    category: Name | None = None
    channel: Name | None = None
    wanted: bool | None = None
    condition: dict[str, Any] | None = None
    quiet: list[QuietBody] | None = Field(None, max_length=50)
    digest: float | Annotated[str, Field(max_length=50)] | None = None

    def wish(self, tenant: str | None) -> dict[str, Any]:
        given = self.model_fields_set & {*ASPECTS}
        if not given:
            raise InvalidArguments("no preference given: give wanted, condition, quiet or digest")
        check_storable("condition", self.condition)
        spans = None if self.quiet is None else [QuietHours(each.start, each.end, each.days) for each in self.quiet]
        values = {"wanted": self.wanted, "condition": self.condition, "quiet": spans, "digest": self.digest}
        names = {"event": self.event, "category": self.category, "channel": self.channel, "tenant": tenant}
        return names | {aspect: values[aspect] for aspect in ASPECTS if aspect in given}


class UnsubscribeBody(BaseModel):
    """Unsubscribes this address for good. `reason`: stored with it."""

    channel: Name
    address: Address
    reason: Name | None = None


@dataclass
class WhyNotified:
    """Sentences, event by event and channel by channel."""

    sentences: list[str]


@dataclass
class RecipientTopics:
    """Topics by name. `next`: pass it as `after` to get the next page; null at the end."""

    items: list[str]
    next: str | None


def routes(context: ServerContext) -> Router:
    """`/recipients`, `/preferences`."""
    router = Router(context, "recipients")

    @router.operation("GET", "/recipients", role="viewer", of_tenants=True, response_model=page_model(RecipientLine))
    async def list_recipients(
        who: Who,
        page: Annotated[Paging, Depends(paging)],
        pattern: Annotated[str | None, Query(description="A key; * stands for anything.")] = None,
        tenant: str | None = None,
        q: Annotated[
            str | None, Query(max_length=LONGEST, description="A search: key:user:* channel:email zone:Europe/Riga")
        ] = None,
    ) -> Response:
        """Recipients, newest first. A pattern or a search searches the newest hundred thousand."""
        theirs, search_params = their_tenant(who, tenant), searched(q, RECIPIENT_FIELDS, who)

        def query(most: int, before: int | None) -> Operation[list[RecipientLine]]:
            return notifications.list_recipients(
                pattern, tenant=theirs, search_params=search_params, limit=most, before=before
            )

        return json_response(await context.read(page_of(page, query, lambda line: line.id)))

    @router.operation("GET", f"{ONE}/why", role="viewer", of_tenants=True, also=NOT_FOUND)
    async def why_notified(key: str, event: str, who: Who, tenant: Tenant = None) -> WhyNotified:
        """Why a recipient was notified of an event type, or was not, in words."""
        theirs = their_tenant(who, tenant)
        return WhyNotified(await context.read(why_notification(key, event, tenant=theirs, known=known_kinds(context))))

    @router.operation("GET", f"{ONE}/topics", role="viewer", of_tenants=True, also=NOT_FOUND)
    async def list_topics(
        key: str,
        who: Who,
        tenant: Tenant = None,
        limit: Annotated[int, Query(ge=1, le=MOST, description="Maximum number of items.")] = 50,
        after: Annotated[str, Query(max_length=NAME_LIMIT, description="The `next` of the previous page.")] = "",
    ) -> RecipientTopics:
        """Topics to which a recipient is subscribed, by name."""
        theirs = their_tenant(who, tenant)
        await context.read(or_not_found(notifications.find_recipient(key, tenant=theirs), f"recipient {key!r:.80}"))
        found = await context.read(topics_of(key, tenant=theirs, after=after, limit=limit + 1))
        return RecipientTopics(found[:limit], found[limit - 1] if len(found) > limit else None)

    _preferences(context, router)
    _addresses(context, router)
    _one(context, router)
    return router


def _one(context: ServerContext, router: Router) -> None:
    """Registered after the routes whose path continues after the key."""

    @router.operation("GET", ONE, role="viewer", of_tenants=True, also=NOT_FOUND, response_model=DETAIL)
    async def show_recipient(key: str, who: Who, tenant: Tenant = None) -> Response:
        """One recipient: addresses, preferences, and the defaults that apply.

        `POST /recipients/{key}/reveal` returns unmasked addresses. Likely secrets in `data` are masked for viewers.
        """
        return json_response(recipient_shown(await context.read(_theirs(key, their_tenant(who, tenant))), who))

    @router.operation("PUT", ONE, role="admin", of_tenants=True, also=NOT_FOUND, response_model=DETAIL)
    async def set_recipient(key: str, body: RecipientBody, who: Who, tenant: Tenant = None) -> Response:
        """Create a recipient, or change the given fields."""
        return json_response(recipient_shown(await _set(context, key, body, who, their_tenant(who, tenant)), who))

    @router.operation("DELETE", ONE, role="admin", of_tenants=True, also=NOT_FOUND, status_code=204)
    async def delete_recipient(key: str, who: Who, tenant: Tenant = None) -> None:
        """Delete a recipient for good, with addresses, preferences and inbox. Deliveries stay, as history."""
        theirs = their_tenant(who, tenant)
        check_text("recipient", key)
        check_text("tenant", theirs)
        async with one_transaction(context) as transaction:
            if not await context.app.recipients.adelete(key, tenant=theirs, conn=transaction.conn):
                raise not_found(f"recipient {key!r:.80}")
            detail = {"tenant": theirs}
            await transaction.run(
                notifications.record_audit("recipient.delete", f"recipient {key}", detail, actor=who.actor)
            )


def _addresses(context: ServerContext, router: Router) -> None:
    @router.operation(
        "POST", f"{ONE}/unsubscribe", role="admin", of_tenants=True, also=NOT_FOUND, response_model=DETAIL
    )
    async def unsubscribe(key: str, body: UnsubscribeBody, who: Who, tenant: Tenant = None) -> Response:
        """Unsubscribe an address for good, whatever the preferences are."""
        theirs = their_tenant(who, tenant)
        detail = {
            "tenant": theirs,
            "channel": body.channel,
            "address": notifications.masked(body.address),
            "reason": body.reason,
        }
        async with one_transaction(context) as transaction:
            await transaction.run(_theirs(key, theirs))
            is_known = await context.app.recipients.aunsubscribe(
                key, body.channel, body.address, tenant=theirs, reason=body.reason, conn=transaction.conn
            )
            if not is_known:
                raise not_found(f"such address of {key!r:.80}")
            await transaction.run(
                notifications.record_audit("recipient.unsubscribe", f"recipient {key}", detail, actor=who.actor)
            )
            found = await transaction.run(notifications.show_recipient(key, tenant=theirs))
        return json_response(recipient_shown(found, who))


def _preferences(context: ServerContext, router: Router) -> None:
    @router.operation("PUT", f"{ONE}/preferences", role="admin", of_tenants=True, also=NOT_FOUND, response_model=DETAIL)
    async def prefer(key: str, body: PreferenceBody, who: Who, tenant: Tenant = None) -> Response:
        """Set a preference; it applies to all that is not sent yet."""
        theirs = their_tenant(who, tenant)
        wish = body.wish(theirs)
        async with one_transaction(context) as transaction:
            await transaction.run(
                or_not_found(notifications.find_recipient(key, tenant=theirs), f"recipient {key!r:.80}")
            )
            await context.app.recipients.aprefer(key, conn=transaction.conn, **wish)
            await transaction.run(
                notifications.record_audit("recipient.prefer", f"recipient {key}", wish, actor=who.actor)
            )
            found = await transaction.run(notifications.show_recipient(key, tenant=theirs))
        return json_response(recipient_shown(found, who))

    defaults = response_model(PreferenceRow)

    options: Any = {"of_tenants": True, "also": NOT_FOUND, "response_model": list[defaults]}  # type: ignore[valid-type]  # a value

    @router.operation("GET", "/preferences", role="viewer", **options)
    async def list_defaults(who: Who, tenant: Tenant = None) -> Response:
        """The default preferences of a tenant; without one, those of recipients without a tenant."""
        return json_response(await context.read(_defaults(their_tenant(who, tenant))))

    @router.operation("PUT", "/preferences", role="admin", **options)
    async def prefer_by_default(body: PreferenceBody, who: Who, tenant: Tenant = None) -> Response:
        """Set a default preference; it applies to all that is not sent yet."""
        theirs = their_tenant(who, tenant)
        wish = body.wish(theirs)
        async with one_transaction(context) as transaction:
            await context.app.recipients.aprefer(None, conn=transaction.conn, **wish)
            await transaction.run(notifications.record_audit("recipient.prefer", "the default", wish, actor=who.actor))
            found = await transaction.run(_defaults(theirs))
        return json_response(found)


async def _set(
    context: ServerContext, key: str, body: RecipientBody, who: Principal, tenant: str | None
) -> notifications.RecipientDetail:
    addresses: dict[str, list[Any]] = {}
    for channel, given in body.addresses.items():
        check_text("channel", channel)
        addresses[channel] = [each if isinstance(each, str) else each.model_dump() for each in given]
    await asyncio.to_thread(check_storable, "addresses", addresses)
    await asyncio.to_thread(check_storable, "data", body.data)
    texts = {
        channel: [notifications.masked(each if isinstance(each, str) else each.address) for each in given]
        for channel, given in body.addresses.items()
    }
    detail = {"tenant": tenant, "zone": body.zone, "locale": body.locale, "addresses": texts}
    person: RecipientData = {"zone": body.zone, "locale": body.locale, "data": body.data, "tenant": tenant}
    async with one_transaction(context) as transaction:
        await context.app.recipients.aupsert(key, addresses, conn=transaction.conn, **person)
        await transaction.run(notifications.record_audit("recipient.set", f"recipient {key}", detail, actor=who.actor))
        return await transaction.run(notifications.show_recipient(key, tenant=tenant))


def _theirs(key: str, tenant: str | None) -> Operation[notifications.RecipientDetail]:
    return or_not_found(notifications.show_recipient(key, tenant=tenant), f"recipient {key!r:.80}")


def _defaults(tenant: str | None) -> Operation[list[PreferenceRow]]:
    check_text("tenant", tenant)
    return notification_queries.preferences(None, tenant=tenant)
