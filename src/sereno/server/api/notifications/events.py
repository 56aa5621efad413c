"""Events: list, show and publish them."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import Depends, Path, Query, Response
from pydantic import AwareDatetime, BaseModel, Field

from sereno.access.identity import Principal
from sereno.database.json_values import encoder
from sereno.database.statement import Operation
from sereno.duration import seconds
from sereno.errors import UnknownEvent
from sereno.notifications import event_types
from sereno.notifications import operations as notifications
from sereno.notifications.event import EventDefinition
from sereno.notifications.event_handle import checked_rate
from sereno.notifications.event_operations import EventCancellation, cancel_and_record
from sereno.notifications.rows import EventLine, EventRow
from sereno.notifications.search_fields import EVENT_FIELDS
from sereno.search.syntax import LONGEST
from sereno.server.api.bounds import Name
from sereno.server.api.notifications.masking import payload_shown
from sereno.server.api.paging import Paging, page_of, paging
from sereno.server.api.responses import (
    TransactionScope,
    check_storable,
    json_response,
    one_transaction,
    or_not_found,
    page_model,
    response_model,
)
from sereno.server.api.router import Router, Who
from sereno.server.shared.caller_trace import CallerTrace, continued
from sereno.server.shared.context import ServerContext
from sereno.server.shared.search_access import searched
from sereno.server.shared.tenant_scope import check_theirs, their_tenant

EventId = Annotated[int, Path(ge=0, lt=2**63)]


class NewEventBody(BaseModel):
    """An event. `to`: keys of recipients, or one topic, `["topic:NAME"]`; without it, all who want it are notified.

    One event per subject and key. `at`: not before then. `ttl`: what is not sent by then expires. `rate`: how many
    deliveries become due, such as "500/s".
    """

    type: Name
    payload: dict[str, Any]
    to: list[Name] | None = Field(None, max_length=10_000)
    subject: Name | None = None
    key: Name | None = None
    tenant: Name | None = None
    at: AwareDatetime | None = None
    ttl: Annotated[str, Field(max_length=50)] | float | None = None
    rate: Annotated[str, Field(max_length=50)] | float | None = None


@dataclass
class NotifyResponse:
    """`created`: false if an event with this subject and key existed."""

    id: int
    created: bool
    event: EventRow


def routes(context: ServerContext) -> Router:
    """`/events`."""
    router = Router(context, "events")

    @router.operation("GET", "/events", role="viewer", of_tenants=True, response_model=page_model(EventLine))
    async def list_events(
        who: Who,
        page: Annotated[Paging, Depends(paging)],
        kind: Annotated[str | None, Query(alias="type")] = None,
        tenant: str | None = None,
        since: AwareDatetime | None = None,
        q: Annotated[
            str | None, Query(max_length=LONGEST, description="A search: type:tender.* subject:T-1 payload.code:42")
        ] = None,
    ) -> Response:
        """Events, newest first. A filter searches the newest hundred thousand."""
        theirs, search_params = their_tenant(who, tenant), searched(q, EVENT_FIELDS, who)

        def query(most: int, before: int | None) -> Operation[list[EventLine]]:
            return notifications.list_events(
                kind=kind, tenant=theirs, since=since, search_params=search_params, limit=most, before=before
            )

        return json_response(await context.read(page_of(page, query, lambda line: line.id)))

    @router.operation(
        "GET",
        "/events/{event_id}",
        role="viewer",
        of_tenants=True,
        also=[HTTPStatus.NOT_FOUND],
        response_model=response_model(notifications.EventDetail),
    )
    async def show_event(event_id: EventId, who: Who) -> Response:
        """One event: its payload, its recipients and the outcome of its deliveries.

        Likely secrets and addresses in its payload are masked for viewers.
        """
        found = await context.read(_theirs(event_id, who))
        found.event.payload = payload_shown(found.event.payload, who)
        return json_response(found)

    _changes(context, router)
    return router


def _changes(context: ServerContext, router: Router) -> None:
    @router.operation(
        "POST",
        "/events",
        role="operator",
        of_tenants=True,
        status_code=201,
        also=[HTTPStatus.NOT_FOUND],
        response_model=response_model(NotifyResponse),
    )
    async def notify(body: NewEventBody, who: Who, caller: CallerTrace) -> Response:
        """Publish an event that the application of this server, or a worker, declares."""
        with continued(caller) as trace:
            return json_response(await _notify(context, body, who, trace), HTTPStatus.CREATED)

    @router.operation(
        "POST",
        "/events/{event_id}/cancel",
        role="operator",
        of_tenants=True,
        also=[HTTPStatus.NOT_FOUND],
        response_model=response_model(EventCancellation),
    )
    async def cancel(event_id: EventId, who: Who) -> Response:
        """Send nothing more of an event: unsent deliveries are skipped. What was sent stays sent."""
        return json_response(await context.change(_cancel(context, event_id, who)))


def _cancel(context: ServerContext, number: int, who: Principal) -> Operation[EventCancellation]:
    yield from _theirs(number, who)
    return (yield from cancel_and_record(number, context.app.events.jobs, actor=who.actor))


async def _notify(context: ServerContext, body: NewEventBody, who: Principal, trace: str | None) -> NotifyResponse:
    notify = await _notifier(context, body, their_tenant(who, body.tenant), trace)
    async with one_transaction(context) as transaction:
        newest = await transaction.run(notifications.list_events(limit=1))
        number = await notify(transaction)
        is_new = not newest or number > newest[0].id
        detail = {"type": body.type, "created": is_new}
        await transaction.run(notifications.record_audit("event.notify", f"event {number}", detail, actor=who.actor))
        made = await transaction.run(notifications.show_event(number))
    return NotifyResponse(number, is_new, made.event)


async def _notifier(
    context: ServerContext, body: NewEventBody, tenant: str | None, trace: str | None
) -> Callable[[TransactionScope], Awaitable[int]]:
    """Return what creates the event: by its declaration here, or by the one that a worker has stored."""
    definitions = context.app.notifications.definitions
    given: dict[str, Any] = body.model_dump(include={"to", "subject", "key", "at"})
    given |= {"tenant": tenant, "trace": trace}
    if body.type in definitions:
        payload = await asyncio.to_thread(_decoded, definitions[body.type], body.payload)
        notify = partial(context.event(body.type).anotify, payload, **given, ttl=body.ttl, rate=body.rate)
        return lambda transaction: notify(conn=transaction.conn)
    if body.type not in await context.read(event_types.declared_types()):
        raise UnknownEvent(notifications.unknown_type(body.type, definitions))
    check_storable("payload", body.payload)
    ttl = None if body.ttl is None else seconds(body.ttl)
    rate = None if body.rate is None else checked_rate(body.rate)
    made = event_types.notify_declared(body.type, body.payload, **given, ttl=ttl, rate=rate)
    return lambda transaction: transaction.run(made)


def _decoded(definition: EventDefinition, payload: dict[str, Any]) -> Any:
    check_storable("payload", payload)
    return definition.decode(encoder.encode(payload))


def _theirs(number: int, who: Principal) -> Operation[notifications.EventDetail]:
    found = yield from or_not_found(notifications.show_event(number), f"event {number}")
    check_theirs(who, found.event.tenant, f"event {number}")
    return found
