"""Workers: those that run, and those that ended lately."""

from sereno.jobs.queries.rows import SessionRow
from sereno.server.api.paging import Page
from sereno.server.api.router import Router
from sereno.server.shared.context import ServerContext
from sereno.worker import operations as workers


def routes(context: ServerContext) -> Router:
    """`/workers`."""
    router = Router(context, "workers")

    @router.operation("GET", "/workers", role="viewer")
    async def list_workers() -> Page[SessionRow]:
        """Workers that run, then those that ended within a day."""
        return Page(await context.read(workers.list_workers()))

    return router
