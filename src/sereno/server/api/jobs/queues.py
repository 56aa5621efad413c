"""Queues and their state; pause and resume queues, tasks and tenants."""

from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated

from fastapi import Path
from pydantic import BaseModel, Field

from sereno.access.identity import Principal
from sereno.database.statement import Operation
from sereno.jobs import pauses
from sereno.jobs.queries import queues
from sereno.jobs.queries.queues import QueueLine
from sereno.jobs.queries.rows import PauseRow
from sereno.jobs.rows import PauseKind
from sereno.server.api.paging import Page
from sereno.server.api.router import Router, Who
from sereno.server.shared.context import ServerContext
from sereno.server.shared.http_error import HTTPError
from sereno.server.shared.tenant_scope import check_theirs
from sereno.text import NAME_LIMIT, check_text

# Names may contain slashes: the suffix of a path is matched from the end.
Name = Annotated[str, Path(min_length=1, max_length=NAME_LIMIT)]
# A name with a line break matches no path.
NO_SUCH = [HTTPStatus.NOT_FOUND]


class PauseBody(BaseModel):
    """`note`: the reason, which the dashboard and the command line show."""

    note: str | None = Field(None, max_length=500)


@dataclass
class PauseResponse:
    """The state now. `changed`: false if it was already so."""

    kind: PauseKind
    name: str
    paused: bool
    changed: bool


def routes(context: ServerContext) -> Router:
    """`/queues`, `/pauses`, and pausing by name."""
    router = Router(context, "queues")

    @router.operation("GET", "/queues", role="viewer")
    async def list_queues() -> Page[QueueLine]:
        """Queues that have jobs, a worker, a pause or a carrier."""
        return Page(await context.read(queues.list_queues()))

    @router.operation("GET", "/pauses", role="viewer", of_tenants=True)
    async def list_pauses(who: Who) -> Page[PauseRow]:
        """All pauses: queues, tasks, tenants. A user of one tenant sees that tenant's own."""
        names = None if who.tenant is None else [who.tenant]
        return Page([row for row in await context.read(queues.list_pauses(names)) if _is_theirs(row, who)])

    _stop_queues(context, router)
    _stop_tasks(context, router)
    _stop_tenants(context, router)
    return router


def _stop_queues(context: ServerContext, router: Router) -> None:
    @router.operation("POST", "/queues/{name:path}/pause", role="operator", also=NO_SUCH)
    async def pause_queue(name: Name, who: Who, body: PauseBody | None = None) -> PauseResponse:
        """Start no more jobs of this queue. Running jobs continue; new jobs are accepted and wait."""
        return await _pause(context, "queue", name, who, body)

    @router.operation("POST", "/queues/{name:path}/resume", role="operator", also=NO_SUCH)
    async def resume_queue(name: Name, who: Who) -> PauseResponse:
        """Start jobs of this queue again."""
        return await _resume(context, "queue", name, who)


def _stop_tasks(context: ServerContext, router: Router) -> None:
    @router.operation("POST", "/tasks/{name:path}/pause", role="operator", also=NO_SUCH)
    async def pause_task(name: Name, who: Who, body: PauseBody | None = None) -> PauseResponse:
        """Start no more jobs of this task. Running jobs continue; new jobs are accepted and wait."""
        return await _pause(context, "task", name, who, body)

    @router.operation("POST", "/tasks/{name:path}/resume", role="operator", also=NO_SUCH)
    async def resume_task(name: Name, who: Who) -> PauseResponse:
        """Start jobs of this task again."""
        return await _resume(context, "task", name, who)


def _stop_tenants(context: ServerContext, router: Router) -> None:
    @router.operation("POST", "/tenants/{name:path}/pause", role="operator", of_tenants=True, also=NO_SUCH)
    async def pause_tenant(name: Name, who: Who, body: PauseBody | None = None) -> PauseResponse:
        """Start no more jobs of this tenant. Running jobs continue; new jobs are accepted and wait."""
        check_theirs(who, name, f"tenant {name!r:.60}")
        return await _pause(context, "tenant", name, who, body)

    @router.operation("POST", "/tenants/{name:path}/resume", role="operator", of_tenants=True, also=NO_SUCH)
    async def resume_tenant(name: Name, who: Who) -> PauseResponse:
        """Start jobs of this tenant again. Its own users can end only a pause that they set themselves."""
        check_theirs(who, name, f"tenant {name!r:.60}")
        return await _resume(context, "tenant", name, who)


async def _pause(
    context: ServerContext, kind: PauseKind, name: str, who: Principal, body: PauseBody | None
) -> PauseResponse:
    check_text(kind, name)
    note = None if body is None else body.note
    pausing = pauses.pause(kind, name, note=note, actor=who.actor, by_tenant=who.tenant is not None)
    return PauseResponse(kind, name, True, await context.change(pausing))


async def _resume(context: ServerContext, kind: PauseKind, name: str, who: Principal) -> PauseResponse:
    check_text(kind, name)

    def operation() -> Operation[bool]:
        for pause in (yield from queues.list_pauses([name])) if who.tenant is not None else ():
            if (pause.kind, pause.name) == (kind, name):
                _check_resumable(pause, who)
        return (yield from pauses.resume(kind, name, actor=who.actor, by_tenant=who.tenant is not None))

    return PauseResponse(kind, name, False, await context.change(operation()))


def _check_resumable(pause: PauseRow, who: Principal) -> None:
    """403 for a pause that an operator of the server has set; users of other tenants cannot set one."""
    if not pause.by_tenant:
        reason = f"no user of {who.tenant} set this pause: ask an operator of this server to resume it"
        raise HTTPError(HTTPStatus.FORBIDDEN, reason)


def _is_theirs(row: PauseRow, who: Principal) -> bool:
    return who.tenant is None or (row.kind == "tenant" and row.name == who.tenant)
