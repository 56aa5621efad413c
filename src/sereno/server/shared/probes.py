"""For whoever keeps the server alive: the only answers that anybody gets, and they say nothing but yes or no."""

from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from sereno.jobs import queries as job_queries
from sereno.server.shared.cache import Cache
from sereno.server.shared.context import ServerContext


def routes(context: ServerContext) -> list[Route]:
    """`/livez`: the process turns. `/readyz`: the database answers; looked up once a second, however often one asks."""
    cache = Cache(context)

    async def live(_: Request) -> PlainTextResponse:
        return PlainTextResponse("ok\n")

    async def ready(_: Request) -> PlainTextResponse:
        seen = await cache.get("ready", job_queries.schema_version)
        is_ready = not seen.is_missing and not seen.is_old
        return PlainTextResponse("ok\n" if is_ready else "the database does not answer\n", 200 if is_ready else 503)

    return [Route("/livez", live), Route("/readyz", ready)]
