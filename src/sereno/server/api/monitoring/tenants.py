"""Tenants: how much work each had, its share of the total, and which are paused."""

from dataclasses import replace
from typing import Annotated

from fastapi import Depends, Query

from sereno.monitoring import tenants
from sereno.monitoring.search_fields import TENANT_FIELDS
from sereno.monitoring.tenant_queries import SCHEDULE_BOUND, Sort, TenantLine
from sereno.search.syntax import LONGEST
from sereno.server.api.paging import Page, Paging, paging
from sereno.server.api.router import Router, Who
from sereno.server.shared.context import ServerContext
from sereno.server.shared.search_access import searched
from sereno.text import NAME_LIMIT


def routes(context: ServerContext) -> Router:
    """`/tenants`."""
    router = Router(context, "tenants")

    @router.operation("GET", "/tenants", role="viewer")
    async def list_tenants(
        who: Who,
        page: Annotated[Paging, Depends(paging)],
        since: Annotated[
            float, Query(gt=0, le=tenants.LONGEST, allow_inf_nan=False, description="Range in seconds, until now.")
        ] = tenants.DAY,
        name: Annotated[str | None, Query(min_length=1, max_length=NAME_LIMIT, description="Part of a name.")] = None,
        sort: Annotated[Sort, Query(description="The largest first.")] = "seconds",
        q: Annotated[
            str | None, Query(max_length=LONGEST, description="A search: tenant:r* failed:>10 paused:no")
        ] = None,
    ) -> Page[TenantLine]:
        """Tenants with recent work, and paused ones. `next`: how many tenants came before the next page."""
        skip = min(page.skip + (page.before or 0), tenants.DEEPEST)
        search_params = searched(q, TENANT_FIELDS, who)
        found = await context.read(
            tenants.list_tenants(
                since=since, part=name, search_params=search_params, sort=sort, limit=page.limit + 1, skip=skip
            )
        )
        lines = [replace(line, schedules=min(line.schedules, SCHEDULE_BOUND)) for line in found[: page.limit]]
        return Page(lines, skip + page.limit if len(found) > page.limit else None)

    return router
