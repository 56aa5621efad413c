"""The progress of a group above the list of its jobs, for a search such as `group:12`."""

from functools import partial

from sereno.errors import GroupNotFound
from sereno.jobs.filters import JobFilter
from sereno.jobs.queries.links import GroupDetail, group_detail
from sereno.server.web.page_request import PageRequest


async def group_panel(page: PageRequest, wanted: JobFilter | None) -> GroupDetail | None:
    """Return the group that the search names; None without one, or for a group that this user may not see."""
    if wanted is None or wanted.group is None:
        return None
    tenant = page.who.tenant
    try:
        found = await page.load(("group", wanted.group, tenant), partial(group_detail, wanted.group, tenant=tenant))
    except GroupNotFound:
        return None
    return found.value
