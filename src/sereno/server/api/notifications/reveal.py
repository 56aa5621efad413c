"""Unmasked addresses, for operators; every access is recorded in the audit."""

from http import HTTPStatus
from typing import Annotated, TypeVar

from fastapi import Path, Query, Response

from sereno.access.identity import Principal
from sereno.database.statement import Operation
from sereno.notifications import operations as notifications
from sereno.notifications.reveal import reveal_delivery, reveal_recipient
from sereno.server.api.responses import json_response, or_not_found, response_model
from sereno.server.api.router import Router, Who
from sereno.server.shared.context import ServerContext
from sereno.server.shared.http_error import HTTPError
from sereno.server.shared.tenant_scope import check_theirs, their_tenant

T = TypeVar("T")

DeliveryId = Annotated[int, Path(ge=0, lt=2**63)]
Tenant = Annotated[str | None, Query(description="Tenant of the recipient; without it, a recipient of no tenant.")]


def routes(context: ServerContext) -> Router:
    """`/recipients/{key}/reveal`, `/deliveries/{delivery_id}/reveal`."""
    router = Router(context, "recipients", remembers=False)

    @router.operation(
        "POST",
        "/recipients/{key:path}/reveal",
        role="operator",
        of_tenants=True,
        response_model=response_model(notifications.RecipientDetail),
    )
    async def reveal_one(key: str, who: Who, tenant: Tenant = None) -> Response:
        """A recipient with unmasked addresses. Elsewhere they are masked; the audit records each call."""
        return json_response(await _audited(context, _whole_recipient(key, who, tenant)))

    @router.operation(
        "POST",
        "/deliveries/{delivery_id}/reveal",
        role="operator",
        of_tenants=True,
        response_model=response_model(notifications.DeliveryDetail),
    )
    async def reveal_its_address(delivery_id: DeliveryId, who: Who) -> Response:
        """A delivery with its unmasked address; the audit records each call."""
        return json_response(await _audited(context, _whole_delivery(delivery_id, who)))

    return router


async def _audited(context: ServerContext, operation: Operation[T]) -> T:
    """Run the operation, which writes an audit entry; 403 on a read-only server, which cannot write one."""
    if context.settings.read_only:
        raise HTTPError(
            HTTPStatus.FORBIDDEN, "this server is read-only, and cannot record the access to an unmasked address"
        )
    return await context.change(operation)


def _whole_recipient(key: str, who: Principal, tenant: str | None) -> Operation[notifications.RecipientDetail]:
    theirs = their_tenant(who, tenant)
    found = yield from or_not_found(notifications.show_recipient(key, tenant=theirs), f"recipient {key!r:.80}")
    return (yield from reveal_recipient(found, actor=who.actor))


def _whole_delivery(number: int, who: Principal) -> Operation[notifications.DeliveryDetail]:
    found = yield from or_not_found(notifications.show_delivery(number), f"delivery {number}")
    check_theirs(who, found.delivery.tenant, f"delivery {number}")
    return (yield from reveal_delivery(found, actor=who.actor))
