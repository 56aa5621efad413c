"""`/metrics` and `/autoscale`: for Prometheus and KEDA, with a viewer's token or `metrics_token`."""

import hmac
from collections.abc import Awaitable, Callable

import msgspec
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from sereno.errors import InvalidArguments
from sereno.jobs.queries.autoscale import autoscale, queue_demands
from sereno.monitoring.gauges.queries import database_gauges, with_standby
from sereno.server.shared.busy import BUSY
from sereno.server.shared.cache import Cache
from sereno.server.shared.context import ServerContext
from sereno.server.shared.http_error import HTTPError
from sereno.telemetry.database_gauges import DatabaseGauges
from sereno.telemetry.exposition import database_exposition
from sereno.version import __version__
from sereno.worker.autoscale import FRESH_SECONDS, parse_query

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Timeout of one statement, in seconds.
READ_TIMEOUT = 5.0
# Seconds after which a number of wanted workers is too old to follow.
OLDEST_DEMAND = 60.0
AWAY = "the database does not respond\n"

Handler = Callable[[Request], Awaitable[Response]]


class _Gauges:
    """The gauges, read at most once in `gauge_interval` seconds for all scrapes together."""

    def __init__(self, context: ServerContext, cache: Cache) -> None:
        self._settings = context.settings
        self._cache = cache
        self._read: DatabaseGauges | None = None
        self._shown: DatabaseGauges | None = None

    async def get(self) -> DatabaseGauges | None:
        """Return the gauges; None if they are turned off, or could not be read for several intervals."""
        interval = self._settings.gauge_interval
        if not interval:
            return None
        read = await self._cache.get(
            "gauges", lambda: database_gauges(self._settings), fresh=interval, seconds=READ_TIMEOUT
        )
        if read.value is None or not read.value.is_current(interval):
            return None
        if read.value is not self._read:
            self._read, self._shown = read.value, await with_standby(read.value, self._settings)
        return self._shown


def routes(context: ServerContext) -> list[Route]:
    """Return `/metrics` and `/autoscale`. Like the API they are open to this machine while no token exists."""
    cache = Cache(context)
    gauges = _Gauges(context, cache)

    async def metrics(_: Request) -> Response:
        return Response(database_exposition(await gauges.get(), __version__), media_type=MEDIA_TYPE)

    async def wanted(request: Request) -> Response:
        query = parse_query(request.url.query)
        demands = await cache.get("autoscale", queue_demands, fresh=FRESH_SECONDS, seconds=READ_TIMEOUT)
        if demands.value is None or demands.age > OLDEST_DEMAND:
            return PlainTextResponse(AWAY, 503)
        found = autoscale(demands.value, query, context.settings)
        return Response(msgspec.json.encode(found), media_type="application/json")

    return [Route(path, _protected(context, each)) for path, each in (("/metrics", metrics), ("/autoscale", wanted))]


def _protected(context: ServerContext, inside: Handler) -> Handler:
    async def handler(request: Request) -> Response:
        try:
            await _check(context, request)
            return await inside(request)
        except HTTPError as no:
            return PlainTextResponse(f"{no.detail}\n", no.status, headers=dict(no.headers or {}))
        except InvalidArguments as error:
            return PlainTextResponse(f"{error}\n", 400)
        except BUSY:
            return PlainTextResponse(AWAY, 503)

    return handler


async def _check(context: ServerContext, request: Request) -> None:
    """Raise HTTPError unless the request has the token of a viewer of all tenants, or `metrics_token`."""
    token = context.settings.metrics_token
    given = request.headers.get("authorization", "")
    if token is None or not hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
        await context.authenticator.check(request, "viewer", of_tenants=False)
