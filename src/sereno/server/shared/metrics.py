"""`/metrics`: the gauges of the database for Prometheus, for viewers and for the bearer of `metrics_token`."""

import hmac

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from sereno.monitoring.gauges.queries import database_gauges, with_standby
from sereno.server.shared.busy import BUSY
from sereno.server.shared.cache import Cache
from sereno.server.shared.context import ServerContext
from sereno.server.shared.http_error import HTTPError
from sereno.telemetry.database_gauges import DatabaseGauges
from sereno.telemetry.exposition import database_exposition
from sereno.version import __version__

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Timeout of one statement, in seconds.
READ_TIMEOUT = 5.0


class _Gauges:
    """The gauges, read at most once in `gauge_interval` seconds for all scrapes together."""

    def __init__(self, context: ServerContext) -> None:
        self._settings = context.settings
        self._cache = Cache(context)
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
    """Return `/metrics`. Like the API it is open to this machine while no token exists."""
    gauges = _Gauges(context)

    async def metrics(request: Request) -> Response:
        try:
            await check_scraper(context, request)
        except HTTPError as no:
            return PlainTextResponse(f"{no.detail}\n", no.status, headers=dict(no.headers or {}))
        except BUSY:
            return PlainTextResponse("the database does not respond\n", 503)
        return Response(database_exposition(await gauges.get(), __version__), media_type=MEDIA_TYPE)

    return [Route("/metrics", metrics)]


async def check_scraper(context: ServerContext, request: Request) -> None:
    """Raise HTTPError unless the request has the token of a viewer of all tenants, or `metrics_token`."""
    token = context.settings.metrics_token
    given = request.headers.get("authorization", "")
    if token is None or not hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
        await context.authenticator.check(request, "viewer", of_tenants=False)
