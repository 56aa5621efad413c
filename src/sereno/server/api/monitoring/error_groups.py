"""Error groups: failures by kind, since when, how often, and for which tenants; mute known ones."""

from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import Depends, Path, Query
from pydantic import AwareDatetime, BaseModel, Field

from sereno.jobs.queries.error_groups import MOST_GROUPS, ErrorGroup
from sereno.monitoring import error_operations
from sereno.monitoring.error_operations import LONGEST_NOTE, ErrorDetail, Sort, span
from sereno.monitoring.search_fields import ERROR_FIELDS
from sereno.search.syntax import LONGEST
from sereno.server.api.paging import Page, Paging, paging
from sereno.server.api.router import Router, Who
from sereno.server.shared.context import ServerContext
from sereno.server.shared.http_error import not_found
from sereno.server.shared.search_access import searched

Fingerprint = Annotated[str, Path(pattern="^[0-9a-f]{12}$", description="As in the list of errors.")]
Since = Annotated[str, Query(max_length=50, description="Age of the oldest failures, at most 30 days: 1h, 24h, 7d.")]


class MuteBody(BaseModel):
    """Until a time, or for a duration; without either the error is unmuted."""

    until: AwareDatetime | None = None
    length: str | None = Field(None, alias="for", max_length=50, description='Such as "8h", at most 30 days.')
    note: str | None = Field(None, max_length=LONGEST_NOTE, description="The reason; an empty one removes the note.")

    def moment(self) -> datetime | None:
        return self.until if self.length is None else datetime.now(UTC) + timedelta(seconds=span(self.length))


def routes(context: ServerContext) -> Router:
    """`/errors`. Messages are of any tenant, so no operation here is for users of one tenant."""
    router = Router(context, "errors")

    @router.operation("GET", "/errors", role="viewer")
    async def list_errors(
        who: Who,
        page: Annotated[Paging, Depends(paging)],
        since: Since = "24h",
        task: str | None = None,
        tenant: Annotated[str | None, Query(description="Count failures of this tenant only.")] = None,
        sort: Annotated[Sort, Query(description="The latest first, or the most frequent.")] = "last",
        muted: Annotated[bool, Query(description="Also those that are muted.")] = False,
        q: Annotated[
            str | None, Query(max_length=LONGEST, description="A search: task:menu type:OSError count:>10 reset")
        ] = None,
    ) -> Page[ErrorGroup]:
        """Error groups with recent failures. `next`: how many groups came before the next page."""
        skip = page.skip + min(page.before or 0, MOST_GROUPS)
        found = await context.read(
            error_operations.list_groups(
                since=since,
                task=task,
                tenant=tenant,
                sort=sort,
                muted=muted,
                search_params=searched(q, ERROR_FIELDS, who),
                limit=page.limit + 1,
                skip=skip,
            )
        )
        return Page(found[: page.limit], skip + page.limit if len(found) > page.limit else None)

    @router.operation("GET", "/errors/{fingerprint}", role="viewer")
    async def show(fingerprint: Fingerprint, since: Since = "24h") -> ErrorDetail:
        """One error group: its hours, affected tenants, dead letters, and the newest failure with its traceback."""
        found = await context.read(error_operations.show(fingerprint, since=since))
        if found is None:
            raise not_found(f"error {fingerprint}")
        return found

    @router.operation("POST", "/errors/{fingerprint}/mute", role="operator")
    async def mute(fingerprint: Fingerprint, body: MuteBody, who: Who) -> ErrorGroup:
        """Leave the group out of lists until then; its failures are still counted."""
        changed = error_operations.mute(fingerprint, body.moment(), note=body.note, actor=who.actor)
        found = await context.change(changed)
        if found is None:
            raise not_found(f"error {fingerprint}")
        return found

    return router
