"""The API as one ASGI application under `/api/v1`, with its OpenAPI document."""

from collections.abc import Sequence

from fastapi import FastAPI

from sereno.server.api import problems, stream
from sereno.server.api.access import tokens
from sereno.server.api.archive import archive
from sereno.server.api.archive import jobs as archive_work
from sereno.server.api.archive import query as archive_query
from sereno.server.api.jobs import (
    bulk,
    carried,
    groups,
    job_stream,
    jobs,
    limits,
    queues,
    signals,
    workers,
)
from sereno.server.api.jobs import (
    result as job_result,
)
from sereno.server.api.jobs import (
    reveal as job_reveal,
)
from sereno.server.api.monitoring import (
    alerts,
    error_groups,
    figures,
    logs,
    migrations,
    searches,
    system,
    task_parameters,
    tenants,
    traces,
)
from sereno.server.api.notifications import (
    callbacks,
    channels,
    deliveries,
    events,
    inbox,
    inbox_stream,
    preference_centre,
    recipients,
    templates,
    topics,
)
from sereno.server.api.notifications import (
    reveal as notification_reveal,
)
from sereno.server.api.problems import Problem
from sereno.server.api.procedures import procedures
from sereno.server.api.procedures import runs as procedure_runs
from sereno.server.api.router import DeferredRoute, Router
from sereno.server.api.schedules import schedules
from sereno.server.shared.context import ServerContext
from sereno.version import __version__

SECTIONS = (
    jobs,
    job_stream,
    job_reveal,
    job_result,
    alerts,
    error_groups,
    bulk,
    carried,
    groups,
    schedules,
    limits,
    queues,
    signals,
    system,
    task_parameters,
    searches,
    tokens,
    workers,
    logs,
    events,
    deliveries,
    notification_reveal,
    recipients,
    inbox,
    inbox_stream,
    preference_centre,
    channels,
    templates,
    topics,
    callbacks,
    stream,
    figures,
    traces,
    tenants,
    archive,
    archive_work,
    archive_query,
    migrations,
    procedures,
    procedure_runs,
)


DESCRIPTION = "Schedules, jobs and notifications. Errors are problems as RFC 9457 describes them."


def build(context: ServerContext) -> FastAPI:
    """Return the application with the routes of all sections."""
    return with_routes([section.routes(context) for section in SECTIONS], DESCRIPTION)


def with_routes(routers: Sequence[Router], description: str) -> FastAPI:
    """Return an application with these routes, which renders errors as problem documents."""
    app = FastAPI(
        title="sereno",
        version=__version__,
        description=description,
        openapi_url="/openapi.json",
        docs_url=None,
        redirect_slashes=False,
        redoc_url=None,
    )
    problems.install(app)
    for router in routers:
        # include_router would build each route a second time, all of them while the first request waits.
        app.router.routes.extend(router.routes)
    _describe(app)
    return app


def _describe(app: FastAPI) -> None:
    """Add what all operations have in common to the OpenAPI document."""
    original = app.openapi

    def openapi() -> dict[str, object]:
        routes = app.router.routes
        routes[:] = [each.whole if isinstance(each, DeferredRoute) else each for each in routes]
        document = original()
        parts = document.setdefault("components", {})
        parts.setdefault("schemas", {})["Problem"] = Problem.model_json_schema()
        parts["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        return document

    app.openapi = openapi  # type: ignore[method-assign]  # how FastAPI is extended
