"""Groups of jobs: list, show, cancel."""

from http import HTTPStatus
from typing import Annotated

from fastapi import Depends, Path
from pydantic import BaseModel, Field

from sereno.access.identity import Principal
from sereno.database.statement import Operation
from sereno.errors import GroupNotFound
from sereno.jobs.group_operations import cancel_group
from sereno.jobs.group_store import GroupRow, list_groups
from sereno.jobs.operations import ChangedJobs
from sereno.jobs.queries.links import GroupDetail, group_detail
from sereno.server.api.paging import Page, Paging, page_of, paging
from sereno.server.api.router import Router, Who
from sereno.server.shared.context import ServerContext
from sereno.server.shared.http_error import not_found
from sereno.server.shared.tenant_scope import their_tenant

GroupId = Annotated[int, Path(ge=0, lt=2**63)]


class CancelBody(BaseModel):
    """`reason`: stored with the jobs."""

    reason: str | None = Field(None, max_length=500)


def routes(context: ServerContext) -> Router:
    """`/groups`."""
    router = Router(context, "groups")

    @router.operation("GET", "/groups", role="viewer", of_tenants=True, also=[HTTPStatus.NOT_FOUND])
    async def list_all(who: Who, page: Annotated[Paging, Depends(paging)], tenant: str | None = None) -> Page[GroupRow]:
        """Groups, newest first."""
        theirs = their_tenant(who, tenant)

        def query(limit: int, before: int | None) -> Operation[list[GroupRow]]:
            return list_groups(limit=limit, before=before, tenant=theirs)

        return await context.read(page_of(page, query, lambda line: line.id))

    @router.operation("GET", "/groups/{group_id}", role="viewer", of_tenants=True)
    async def show(group_id: GroupId, who: Who) -> GroupDetail:
        """One group: its progress, its jobs by state, the job that follows, and the newest dead jobs."""
        return await context.read(_theirs(group_id, who))

    @router.operation("POST", "/groups/{group_id}/cancel", role="operator", of_tenants=True)
    async def cancel(group_id: GroupId, who: Who, body: CancelBody | None = None) -> ChangedJobs:
        """Cancel the jobs of a group that have not ended, and the job that follows them."""
        await context.read(_theirs(group_id, who))
        reason = None if body is None else body.reason
        return await context.carry_out(cancel_group(group_id, tenant=who.tenant, reason=reason, actor=who.actor))

    return router


def _theirs(group_id: int, who: Principal) -> Operation[GroupDetail]:
    try:
        return (yield from group_detail(group_id, tenant=who.tenant))
    except GroupNotFound:
        # The same text for a group of another tenant.
        raise not_found(f"group {group_id}") from None
