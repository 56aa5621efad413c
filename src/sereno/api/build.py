"""The API as one ASGI application: `/api/v1`, its OpenAPI document, and the doorkeeper before every room."""

from fastapi import FastAPI

from sereno.api import (
    alerts,
    archive,
    archive_query,
    archive_work,
    bulk,
    callbacks,
    channels,
    deliveries,
    error_groups,
    events,
    figures,
    inbox,
    inbox_stream,
    job_reveal,
    jobs,
    limits,
    logs,
    migrations,
    post_reveal,
    problems,
    procedure_runs,
    procedures,
    queues,
    recipients,
    schedules,
    stream,
    system,
    templates,
    tenants,
    tokens,
    traces,
    workers,
)
from sereno.api.door import Later
from sereno.api.problems import Problem
from sereno.reception.house import House
from sereno.version import __version__

ROOMS = (
    jobs,
    job_reveal,
    alerts,
    error_groups,
    bulk,
    schedules,
    limits,
    queues,
    system,
    tokens,
    workers,
    logs,
    events,
    deliveries,
    post_reveal,
    recipients,
    inbox,
    inbox_stream,
    channels,
    templates,
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


def build(house: House) -> FastAPI:
    """All rooms of the house."""
    app = FastAPI(
        title="sereno",
        version=__version__,
        description="Schedules, jobs and notifications. Errors are problems as RFC 9457 describes them.",
        openapi_url="/openapi.json",
        docs_url=None,
        redirect_slashes=False,
        redoc_url=None,
    )
    problems.install(app)
    for room in ROOMS:
        # Included, each route would be worked out a second time, and all of them while the first request waits.
        app.router.routes.extend(room.rooms(house).routes)
    _describe(app)
    return app


def _describe(app: FastAPI) -> None:
    """What every operation has in common, in the document."""
    original = app.openapi

    def openapi() -> dict[str, object]:
        routes = app.router.routes
        routes[:] = [each.whole if isinstance(each, Later) else each for each in routes]
        document = original()
        parts = document.setdefault("components", {})
        parts.setdefault("schemas", {})["Problem"] = Problem.model_json_schema()
        parts["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        return document

    app.openapi = openapi  # type: ignore[method-assign]  # how FastAPI is extended
