"""The central log: lines of handlers and of the engine."""

from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from typing import Annotated

from fastapi import Depends, Path, Query

from sereno.access.identity import Principal
from sereno.database.statement import Operation
from sereno.errors import ConfigurationError
from sereno.search.syntax import LONGEST
from sereno.server.api.paging import Page, Paging, page_of, paging
from sereno.server.api.router import Router, Who
from sereno.server.shared.context import ServerContext
from sereno.server.shared.http_error import not_found
from sereno.server.shared.tenant_scope import check_theirs, their_tenant
from sereno.telemetry import log_search
from sereno.telemetry.log_queries import LogDetail, LogLine, list_lines
from sereno.telemetry.log_search import lines_wanted

LineId = Annotated[int, Path(ge=0, lt=2**63)]
SearchText = Annotated[
    str | None, Query(max_length=LONGEST, description="A search: level:error event:job.* tenant:r42 at:2h.. reset")
]


def routes(context: ServerContext) -> Router:
    """`/logs`."""
    router = Router(context, "logs")

    @router.operation("GET", "/logs", role="viewer", of_tenants=True, also=[HTTPStatus.NOT_FOUND])
    async def list_log(who: Who, page: Annotated[Paging, Depends(paging)], q: SearchText = None) -> Page[LogLine]:
        """Log lines, newest first. Days of a search are days of UTC."""
        wanted = lines_wanted(q or "", datetime.now(UTC))
        theirs = replace(wanted, tenant=their_tenant(who, wanted.tenant))
        return await context.read(page_of(page, partial(list_lines, theirs), lambda line: line.id))

    @router.operation("GET", "/logs/{line_id}", role="viewer", of_tenants=True)
    async def show_line(line_id: LineId, who: Who) -> LogDetail:
        """One line with its traceback."""
        return await context.read(_theirs(line_id, who))

    return router


def _theirs(line_id: int, who: Principal) -> Operation[LogDetail]:
    what = f"line {line_id} in the log"
    try:
        found = yield from log_search.show(line_id)
    except ConfigurationError:
        # The same text as for a line of another tenant.
        raise not_found(what) from None
    check_theirs(who, found.tenant, what)
    return found
