"""The server as an ASGI application: alone (`sereno server`), or mounted in yours under any path.

    from sereno.server import asgi

    web.mount("/sereno", asgi(app))

Needs the extra `server`. A request is authenticated by a token, or by `authenticate`: the sign-in of your application.
"""

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from contextlib import suppress
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute, Mount

from sereno.app import Sereno
from sereno.server.api.build import build
from sereno.server.api.cors import CrossOrigin
from sereno.server.api.problems import problem_response
from sereno.server.shared.authenticator import SAFE, Authenticate, Authenticator
from sereno.server.shared.context import ServerContext
from sereno.server.shared.metrics import routes as metrics
from sereno.server.shared.probes import routes as probes
from sereno.server.shared.proxies import resolve_client
from sereno.server.shared.standby import MAY_USE_STANDBY, changed_cookie, may_use_standby
from sereno.server.web.build import routes as pages
from sereno.server.web.element_scripts import routes as element_scripts
from sereno.server.web.error_pages import ErrorPages
from sereno.server.web.notifications.confirm_page import routes as confirm_page
from sereno.server.web.notifications.preference_page import routes as preference_page
from sereno.server.web.notifications.unsubscribe_page import routes as unsubscribe_page

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Scope]]
Send = Callable[[Scope], Awaitable[None]]
Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]

# The largest request body, in bytes. A job's arguments may have a megabyte.
LARGEST_BODY = 4 * 1024 * 1024
HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)


def asgi(app: Sereno, *, authenticate: Authenticate | None = None, is_open: bool = False) -> "Server":
    """Return the ASGI application: the dashboard, the API under `/api/v1`, and the pages behind the links of messages.

    `is_open`: requests from this machine need no token.
    """
    context = ServerContext(app, Authenticator(app.database, authenticate=authenticate, is_open=is_open))
    return Server(CrossOrigin(all_routes(context), context), context)


def all_routes(context: ServerContext) -> Starlette:
    """Return the API and the pages of one database."""
    # Write the counted outcomes that are not stored yet, and close the connections to providers.
    context.endings.append(context.app.notifications.close)
    return routed(
        [
            Mount("/api/v1", build(context)),
            *probes(context),
            *metrics(context),
            *element_scripts(),
            *preference_page(context),
            *confirm_page(context),
            *unsubscribe_page(context),
            *pages(context),
        ],
        ErrorPages(context),
    )


def routed(routes: Sequence[BaseRoute], errors: ErrorPages) -> Starlette:
    """Return an application with these routes."""
    made = Starlette(routes=routes, exception_handlers={HTTPException: errors.unrouted, Exception: errors.failed})
    # A redirect would lead to whatever host the request names.
    made.router.redirect_slashes = False
    return made


class Server:
    """Wraps all routes: limits the size of request bodies, and adds the same headers to every response."""

    def __init__(self, inside: Asgi, context: ServerContext) -> None:
        self._inside = inside
        self._context = context

    async def end(self) -> None:
        """End open streams, so that the process can stop."""
        await self._context.end()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inside(scope, receive, send)
            return
        if _is_ambiguous(scope):
            # Close the connection: where the next request on it begins is unknown.
            detail = "a request has either Content-Length or Transfer-Encoding, and the latter in HTTP/1.1 alone"
            await problem_response(400, detail, headers={"Connection": "close"})(scope, receive, send)
            return
        scope = resolve_client(scope, self._context.settings.trusted_proxies)
        more = self._prepare_reads(scope)
        size = 0

        async def limited() -> Scope:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > LARGEST_BODY:
                raise HTTPException(413, f"a request has at most {LARGEST_BODY:,} bytes")
            return message

        async def send_with_headers(message: Scope) -> None:
            if message["type"] == "http.response.start":
                present = {name.lower() for name, _ in message.get("headers", ())}
                missing = [pair for pair in HEADERS if pair[0] not in present]
                message = {**message, "headers": [*message.get("headers", ()), *missing, *more]}
            await send(message)

        # A client that disconnects before its request is complete is not an error of the server.
        with suppress(ClientDisconnect):
            await self._inside(scope, limited, send_with_headers)

    def _prepare_reads(self, scope: Scope) -> list[tuple[bytes, bytes]]:
        """Decide whether the request may read from the standby; return the headers that its response gets for that."""
        standby = self._context.standby
        if standby is None:
            return []
        MAY_USE_STANDBY.set(may_use_standby(scope))
        if scope["method"] in SAFE:
            return []
        return [(b"set-cookie", changed_cookie(standby.keep_away, scope.get("root_path", "")))]


def _is_ambiguous(scope: Scope) -> bool:
    """Return whether a proxy in front of the server may see the end of this request elsewhere (request smuggling)."""
    names = {name.lower() for name, _ in scope["headers"]}
    if b"transfer-encoding" not in names:
        return False
    return b"content-length" in names or scope.get("http_version") == "1.0"
