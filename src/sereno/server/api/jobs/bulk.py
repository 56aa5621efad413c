"""Bulk changes in the background: how far they are, and how to stop them."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated, Any

import psycopg
from fastapi import Depends, Path, Response
from pydantic import Field

from sereno.access.identity import Principal
from sereno.bounded_count import BoundedCount
from sereno.bulk import operations as bulk
from sereno.database.statement import Operation
from sereno.errors import InvalidArguments
from sereno.jobs.rows import BulkOperation
from sereno.server.api.paging import Page, Paging, page_of, paging
from sereno.server.api.responses import json_response
from sereno.server.api.router import Router, Who
from sereno.server.shared.context import ServerContext
from sereno.server.shared.http_error import not_found
from sereno.server.shared.tenant_scope import check_theirs

OperationId = Annotated[int, Path(ge=0, lt=2**63)]
InBackground = Annotated[bool, Field(description="A worker does it; the response is 202, with the operation.")]
PerSecond = Annotated[float, Field(ge=0.1, le=100_000)]

# The other response of operations that may continue in the background.
ACCEPTED: dict[int | str, dict[str, Any]] = {
    int(HTTPStatus.ACCEPTED): {
        "model": BulkOperation,
        "description": "With `in_background`: the operation that does it.",
    }
}


def routes(context: ServerContext) -> Router:
    """`/operations`."""
    router = Router(context, "operations")

    @router.operation("GET", "/operations", role="viewer", of_tenants=True)
    async def list_operations(who: Who, page: Annotated[Paging, Depends(paging)]) -> Page[BulkOperation]:
        """Bulk changes in the background, newest first."""

        def query(most: int, before: int | None) -> Operation[list[BulkOperation]]:
            return bulk.list_operations(most, before, tenant=who.tenant)

        return await context.read(page_of(page, query, lambda line: line.id))

    @router.operation("GET", "/operations/{operation_id}", role="viewer", of_tenants=True)
    async def show_operation(operation_id: OperationId, who: Who) -> BulkOperation:
        """The progress of one. `waits_for`: what it waits for."""
        return await context.read(_theirs(operation_id, who))

    @router.operation("POST", "/operations/{operation_id}/stop", role="operator", of_tenants=True)
    async def stop_operation(operation_id: OperationId, who: Who) -> BulkOperation:
        """Stop it within a second. What was done stays done. 409 when it is over."""

        def operation() -> Operation[BulkOperation]:
            yield from _theirs(operation_id, who)
            return (yield from bulk.stop(operation_id, actor=who.actor))

        return await context.change(operation())

    return router


def check_rate(rate: float | None, *, in_background: bool) -> None:
    """Refuse a rate for a change that runs at once."""
    if rate is not None and not in_background:
        raise InvalidArguments('"rate" needs "in_background": without it, everything is done at once')


async def begun(
    context: ServerContext,
    count: Operation[BoundedCount],
    begin: Callable[[BoundedCount | None], Operation[BulkOperation]],
) -> Response:
    """Start the operation; return 202. A count that takes too long is left out."""
    try:
        total = await context.read(count)
    except psycopg.errors.QueryCanceled:
        total = None
    return json_response(await context.change(begin(total)), HTTPStatus.ACCEPTED)


def _theirs(number: int, who: Principal) -> Operation[BulkOperation]:
    found = yield from bulk.show(number)
    if found is None:
        raise not_found(f"operation {number}")
    check_theirs(who, found.tenant, f"operation {number}")
    return found
