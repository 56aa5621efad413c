"""The parameters of tasks, from which forms and clients in other languages are made."""

from fastapi import Response

from sereno.jobs.task_rows import DeclaredTask
from sereno.server.api.paging import Page
from sereno.server.api.responses import json_response, page_model
from sereno.server.api.router import Router, Who
from sereno.server.shared.context import ServerContext
from sereno.server.shared.known_tasks import known_tasks


def routes(context: ServerContext) -> Router:
    """`/tasks/parameters`."""
    router = Router(context, "system")

    @router.operation(
        "GET", "/tasks/parameters", role="viewer", of_tenants=True, response_model=page_model(DeclaredTask)
    )
    async def list_parameters(who: Who) -> Response:
        """Tasks that can be enqueued here, with the names, types and defaults of their parameters.

        Of the application of this server, and of those whose workers have run on this database.
        """
        return json_response(Page(await known_tasks(context, who)))

    return router
