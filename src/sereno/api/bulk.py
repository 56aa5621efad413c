"""Bulk changes in the background: how far they are, and how to stop them."""

from http import HTTPStatus
from typing import Annotated, Any

import psycopg
from fastapi import Depends, Path, Response
from fastapi.routing import APIRoute

from sereno.api.door import Door, Who
from sereno.api.pages import Page, Paging, page_of, paging
from sereno.api.post import told
from sereno.domain.access import Principal
from sereno.operations import bulk, jobs
from sereno.reception.declined import not_found
from sereno.reception.house import House
from sereno.reception.tenancy import check_theirs
from sereno.store.bulk import Action, BulkOperation
from sereno.store.filters import JobFilter
from sereno.store.sights import Count
from sereno.store.statement import Operation

OperationId = Annotated[int, Path(ge=0, lt=2**63)]

_counts = {"job.retry": jobs.count_retry, "job.cancel": jobs.count_cancel, "job.delete": jobs.count_delete}


def rooms(house: House) -> Door:
    """`/operations`."""
    door = Door(house, "operations")

    @door.at("GET", "/operations", role="viewer", of_tenants=True)
    async def list_operations(who: Who, page: Annotated[Paging, Depends(paging)]) -> Page[BulkOperation]:
        """Bulk changes in the background, newest first."""

        def look(most: int, before: int | None) -> Operation[list[BulkOperation]]:
            return bulk.list_operations(most, before, tenant=who.tenant)

        return await house.read(page_of(page, look, lambda line: line.id))

    @door.at("GET", "/operations/{operation_id}", role="viewer", of_tenants=True)
    async def show_operation(operation_id: OperationId, who: Who) -> BulkOperation:
        """How far one is. `waits_for`: what is missing for it to go on."""
        return await house.read(_theirs(operation_id, who))

    @door.at("POST", "/operations/{operation_id}/stop", role="operator", of_tenants=True)
    async def stop_operation(operation_id: OperationId, who: Who) -> BulkOperation:
        """It ends within a second. What was done stays done. 409 when it is over."""

        def operation() -> Operation[BulkOperation]:
            yield from _theirs(operation_id, who)
            return (yield from bulk.stop(operation_id, actor=who.name))

        return await house.change(operation())

    return door


def may_be_accepted(door: Door) -> None:
    """The operation that was declared last may also answer 202, with what goes on in the background."""
    route = door.routes[-1]
    assert isinstance(route, APIRoute)
    schema = {"$ref": f"#/components/schemas/{BulkOperation.__name__}"}
    said: dict[str, Any] = {
        "description": "With `in_background`: it goes on as this operation.",
        "content": {"application/json": {"schema": schema}},
    }
    route.responses = {**route.responses, int(HTTPStatus.ACCEPTED): said}


async def begun(
    house: House,
    who: Principal,
    action: Action,
    wanted: JobFilter,
    *,
    rate: float | None,
    reason: str | None,
    confirmed: bool,
) -> Response:
    """202, with the operation."""
    total = await _counted(house, action, wanted)
    operation = bulk.begin(action, wanted, rate=rate, reason=reason, yes=confirmed, total=total, actor=who.name)
    return told(await house.change(operation), HTTPStatus.ACCEPTED)


async def _counted(house: House, action: Action, wanted: JobFilter) -> Count | None:
    """As in a dry run; what takes too long to count can still be done in the background."""
    try:
        return (await house.read(_counts[action](wanted))).total
    except psycopg.errors.QueryCanceled:
        return None


def _theirs(number: int, who: Principal) -> Operation[BulkOperation]:
    found = yield from bulk.show(number)
    if found is None:
        raise not_found(f"operation {number}")
    check_theirs(who, found.tenant, f"operation {number}")
    return found
