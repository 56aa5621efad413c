"""Health probes: the only routes without authentication; they say nothing but yes or no."""

from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from sereno.jobs.queries import jobs as job_queries
from sereno.server.shared.cache import Cache
from sereno.server.shared.context import ServerContext


def routes(context: ServerContext) -> list[Route]:
    """Return `/livez`: the process runs, and `/readyz`: the database responds, checked at most once a second."""
    cache = Cache(context)

    async def live(_: Request) -> PlainTextResponse:
        return PlainTextResponse("ok\n")

    async def ready(_: Request) -> PlainTextResponse:
        result = await cache.get("ready", job_queries.schema_version)
        is_ready = not result.is_missing and not result.is_old
        return PlainTextResponse("ok\n" if is_ready else "the database does not respond\n", 200 if is_ready else 503)

    return [Route("/livez", live), Route("/readyz", ready)]
