"""Deliveries: list, show, and send again."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import Depends, Path, Query, Response
from pydantic import AwareDatetime, BaseModel, Field

from sereno.access.identity import Principal
from sereno.bounded_count import BoundedCount
from sereno.bulk import operations as bulk
from sereno.database.statement import Operation
from sereno.errors import ConfigurationError, InvalidArguments, Refused
from sereno.jobs.filters import DeliveryFilter
from sereno.jobs.rows import BulkOperation
from sereno.notifications import operations
from sereno.notifications import queries as notification_queries
from sereno.notifications.deliveries.delivery import State
from sereno.notifications.rows import DeliveryLine
from sereno.notifications.search_fields import DELIVERY_FIELDS
from sereno.search.syntax import LONGEST
from sereno.server.api.bounds import Name
from sereno.server.api.jobs.bulk import ACCEPTED, InBackground, PerSecond, begun, check_rate
from sereno.server.api.notifications.masking import delivery_shown, line_shown
from sereno.server.api.paging import Page, Paging, page_of, paging
from sereno.server.api.responses import json_response, one_transaction, or_not_found, page_model, response_model
from sereno.server.api.router import Router, Who
from sereno.server.shared.archived import gone
from sereno.server.shared.context import ServerContext
from sereno.server.shared.search_access import searched
from sereno.server.shared.tenant_scope import check_theirs, their_tenant

# The states that a requeue selects by default: an operator has to decide about them.
FAILED: tuple[State, ...] = ("failed", "dead")
# By id, each delivery is queried on its own.
MOST_IDS = 1000
# Deliveries that are requeued in one transaction.
BATCH = 1000
# Deliveries that an error message lists.
NAMED = 20

DeliveryId = Annotated[int, Path(ge=0, lt=2**63)]
Number = Annotated[int, Field(ge=1, lt=2**63)]


class RequeueBody(BaseModel):
    """Which deliveries: by id, or by a filter, of which all given fields must match.

    `q`: a search, as in a list. `any_ended`: also skipped, expired, bounced and unknown ones.
    `dry_run`: only count. `rate`: deliveries per second, in the background.
    """

    ids: list[Number] | None = Field(None, min_length=1, max_length=MOST_IDS)
    q: str | None = Field(None, max_length=LONGEST)
    states: list[State] | None = Field(None, min_length=1, max_length=20)
    channel: Name | None = None
    recipient: Name | None = None
    event: Number | None = None
    tenant: Name | None = None
    since: AwareDatetime | None = None
    type: str | None = Field(None, max_length=500)
    subject: str | None = Field(None, max_length=500)
    any_ended: bool = False
    dry_run: bool = False
    all: bool = Field(False, description="Confirms all deliveries that match.")
    in_background: InBackground = False
    rate: PerSecond | None = None

    def filter(self, who: Principal) -> DeliveryFilter:
        return DeliveryFilter(
            self.states,
            self.channel,
            self.recipient,
            self.event,
            self.tenant,
            self.since,
            self.type,
            self.subject,
            searched(self.q, DELIVERY_FIELDS, who),
        )

    @property
    def allowed(self) -> Sequence[str]:
        return operations.REQUEUEABLE if self.any_ended else FAILED


@dataclass
class RequeueResponse:
    """What was done; with `dry_run`, what would be. `left`: do not exist, or changed state meanwhile."""

    dry_run: bool
    total: int
    by_channel: dict[str, int]
    by_state: dict[str, int]
    by_event: dict[str, int]
    done: list[int]
    left: list[int]


def filter_params(
    who: Who,
    q: Annotated[
        str | None,
        Query(max_length=LONGEST, description="A search: state:failed channel:email event:tender.* created:2d.."),
    ] = None,
    state: Annotated[list[State] | None, Query(description="One of these states, repeatable.")] = None,
    channel: str | None = None,
    recipient: Annotated[str | None, Query(description="A key; with `tenant`, of that tenant's recipient.")] = None,
    event: Annotated[int | None, Query(ge=1, lt=2**63, description="The id of an event.")] = None,
    tenant: str | None = None,
    since: AwareDatetime | None = None,
    type: Annotated[str | None, Query(max_length=500, description="Event type.")] = None,  # noqa: A002 - its name
    subject: Annotated[str | None, Query(max_length=500, description="Subject of the event.")] = None,
) -> DeliveryFilter:
    """The filter of a list."""
    found = searched(q, DELIVERY_FIELDS, who)
    return DeliveryFilter(state, channel, recipient, event, tenant, since, type, subject, found)


def routes(context: ServerContext) -> Router:
    """`/deliveries`."""
    router = Router(context, "deliveries")

    @router.operation(
        "GET",
        "/deliveries",
        role="viewer",
        of_tenants=True,
        also=[HTTPStatus.NOT_FOUND],
        response_model=page_model(DeliveryLine),
    )
    async def list_deliveries(
        who: Who, page: Annotated[Paging, Depends(paging)], wanted: Annotated[DeliveryFilter, Depends(filter_params)]
    ) -> Response:
        """Deliveries, newest first.

        Those that failed (bounced, failed, invalid, expired, dead, unknown) and those of a subject, event or recipient
        are found however old they are. Other filters search the newest hundred thousand.
        """
        found = await context.read(_page(page, replace(wanted, tenant=their_tenant(who, wanted.tenant))))
        for line in found.items:
            line_shown(line, who)
        return json_response(found)

    @router.operation(
        "GET",
        "/deliveries/{delivery_id}",
        role="viewer",
        of_tenants=True,
        also=[HTTPStatus.NOT_FOUND],
        response_model=response_model(operations.DeliveryDetail),
    )
    async def show_delivery(delivery_id: DeliveryId, who: Who) -> Response:
        """One delivery: its event, its address, its outcome, and the receipts of its provider.

        `POST /deliveries/{delivery_id}/reveal` returns the unmasked address.
        """
        return json_response(delivery_shown(await context.read(_theirs(delivery_id, who)), who))

    _again(context, router)
    return router


def _again(context: ServerContext, router: Router) -> None:
    options: dict[str, Any] = {"also": [HTTPStatus.NOT_FOUND], "response_model": RequeueResponse, "responses": ACCEPTED}

    @router.operation("POST", "/deliveries/requeue", role="operator", of_tenants=True, **options)
    async def requeue(body: RequeueBody, who: Who) -> RequeueResponse | Response:
        """Send failed and dead deliveries again, with fresh attempts. 409 for others, with their state."""
        if (body.ids is None) == body.filter(who).is_empty:
            raise InvalidArguments("no deliveries selected: give their ids or a filter such as states, not both")
        check_rate(body.rate, in_background=body.in_background)
        if body.in_background and not body.dry_run:
            return await _begun(context, body, who)
        wanted = _by_id(body, who) if body.ids is not None else _by_filter(body, who)
        found = await context.read(wanted)
        done = [] if body.dry_run else await _requeue(context, [line.id for line in found], who)
        counts = operations.tally(found)
        chosen = {*(body.ids or ()), *(line.id for line in found)}
        left = [] if body.dry_run else sorted(chosen - {*done})
        return RequeueResponse(
            body.dry_run,
            len(found) if body.dry_run else len(done),
            counts["channel"],
            counts["state"],
            counts["event"],
            done,
            left,
        )


def _page(page: Paging, wanted: DeliveryFilter) -> Operation[Page[DeliveryLine]]:
    def query(most: int, before: int | None) -> Operation[list[DeliveryLine]]:
        return or_not_found(operations.list_deliveries(wanted, limit=most, before=before), "such recipient")

    return page_of(page, query, lambda line: line.id)


def _theirs(number: int, who: Principal) -> Operation[operations.DeliveryDetail]:
    try:
        found = yield from operations.show_delivery(number)
    except ConfigurationError:
        raise (yield from gone("delivery", number, who)) from None
    check_theirs(who, found.delivery.tenant, f"delivery {number}")
    return found


def _by_id(body: RequeueBody, who: Principal) -> Operation[Sequence[DeliveryLine]]:
    """Return those of the user's tenant; Refused if one of them is in another state."""
    found: list[DeliveryLine] = []
    for number in dict.fromkeys(body.ids or ()):
        row = yield from notification_queries.delivery(number)
        if row is not None and who.tenant in (None, row.tenant):
            found.append(row)
    others = [line for line in found if line.state not in body.allowed]
    if others:
        more = ", …" if len(others) > NAMED else ""
        states = ", ".join(f"{line.id} is {line.state}" for line in others[:NAMED])
        raise Refused(f"{_rule(body)}, and {states}{more}")
    return found


def _by_filter(body: RequeueBody, who: Principal) -> Operation[Sequence[DeliveryLine]]:
    """Return those that match; Refused without a confirmation, or for another state."""
    found = yield from or_not_found(operations.requeueable(_allowed(body, who)), "such recipient")
    if found and not body.dry_run and not body.all:
        raise Refused(f"this would requeue {len(found):,}: check with dry_run, confirm with all")
    return found


def _allowed(body: RequeueBody, who: Principal) -> DeliveryFilter:
    """Return the filter; Refused for a state that cannot be requeued."""
    others = [state for state in body.states or () if state not in body.allowed]
    if others:
        raise Refused(f"{_rule(body)}, not {' or '.join(others)} ones")
    return replace(body.filter(who), states=body.states or body.allowed, tenant=their_tenant(who, body.tenant))


async def _begun(context: ServerContext, body: RequeueBody, who: Principal) -> Response:
    """Start the operation in the background, for those of the given ids that are of the user's tenant."""
    ids = None if body.ids is None else [line.id for line in await context.read(_by_id(body, who))]
    wanted = _allowed(body, who)

    def begin(total: BoundedCount | None) -> Operation[BulkOperation]:
        operation = bulk.begin_requeue(wanted, ids=ids, rate=body.rate, yes=body.all, total=total, actor=who.actor)
        return or_not_found(operation, "such recipient")

    return await begun(context, or_not_found(bulk.count_requeue(wanted, ids), "such recipient"), begin)


def _rule(body: RequeueBody) -> str:
    if body.any_ended:
        return "only deliveries that ended undelivered can be requeued"
    return "only failed and dead deliveries can be requeued (with any_ended, all that ended undelivered)"


async def _requeue(context: ServerContext, chosen: Sequence[int], who: Principal) -> list[int]:
    done: list[int] = []
    notifications = context.app.notifications
    for start in range(0, len(chosen), BATCH):
        async with one_transaction(context) as transaction:
            requeued: list[int] = await notifications.arequeue(chosen[start : start + BATCH], conn=transaction.conn)
            if requeued:
                subject = f"delivery {requeued[0]}" if len(requeued) == 1 else f"{len(requeued)} deliveries"
                detail = {"count": len(requeued), "ids": requeued}
                await transaction.run(operations.record_audit("delivery.requeue", subject, detail, actor=who.actor))
        done += requeued
    return done
