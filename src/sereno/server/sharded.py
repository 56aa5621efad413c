"""One server that shows several databases, read-only: `sereno server --shard a=… --shard b=…`.

The first page lists the shards; the pages and the API of each are under `/shards/NAME/`. Users sign in with a token of
the first shard that is not a tenant's, and are viewers of every shard. Tokens of tenants and of the other shards are
not accepted, and neither are the tokens of inboxes and jobs: no one but an operator of the first shard reads anything.
"""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import replace
from http import HTTPStatus

from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route

from sereno.access.identity import Principal
from sereno.app import Sereno
from sereno.errors import ConfigurationError
from sereno.server.api.problems import problem_response
from sereno.server.api.shards import build
from sereno.server.application import Asgi, Receive, Scope, Send, Server, all_routes, routed
from sereno.server.shared.authenticator import SAFE, Authenticator
from sereno.server.shared.busy import BUSY
from sereno.server.shared.context import ServerContext
from sereno.server.shared.http_error import HTTPError
from sereno.server.shared.shard_list import ShardList
from sereno.server.web.error_pages import ErrorPages
from sereno.server.web.page_request import SHARD, SHARD_SECTIONS
from sereno.server.web.shards_page import routes as pages

_PURPOSE = b"sereno shards\x00"
SIGN_IN_FIRST = (
    "a token of the first shard is required, and not one of a tenant: Authorization: Bearer srn_…; "
    "create one with sereno token create"
)


class ShardAuthenticator(Authenticator):
    """Accepts tokens of the first shard that are not a tenant's, and makes their owners viewers. It is never open."""

    def __init__(self, name: str, app: Sereno) -> None:
        super().__init__(app.database)
        self._name = name

    async def who(self, request: HTTPConnection) -> Principal | None:
        return _viewer(await super().who(request))

    async def of_token(self, token: str, *, is_safe: bool = False) -> Principal | None:
        return _viewer(await super().of_token(token, is_safe=is_safe))

    async def for_shard(self, request: HTTPConnection) -> Principal | None:
        """Return the user for the pages of a shard: without a token, which has another owner in that database."""
        found = await self.who(request)
        return None if found is None else replace(found, token=None)

    @property
    def _secret(self) -> bytes:
        """Return a key of its own: a cookie holds the id of a token, which has another owner in each database."""
        return hmac.new(super()._secret, _PURPOSE + self._name.encode(), hashlib.sha256).digest()


def _viewer(found: Principal | None) -> Principal | None:
    return None if found is None or found.tenant is not None else replace(found, role="viewer")


def sharded(shards: Mapping[str, Sereno]) -> Server:
    """Return the ASGI application. The applications are read-only; the first one has the tokens."""
    for name, app in shards.items():
        if not app.settings.read_only:
            raise ConfigurationError(f"shard {name}: its application must have read_only=True")
    first = next(iter(shards))
    authenticator = ShardAuthenticator(first, shards[first])
    # The shards know users as an application does in which they are mounted.
    contexts = {
        name: ServerContext(app, Authenticator(app.database, authenticate=authenticator.for_shard))
        for name, app in shards.items()
    }
    context = ServerContext(shards[first], authenticator)
    context.endings.extend(each.end for each in contexts.values())
    found = ShardList(contexts)

    async def live(_: Request) -> PlainTextResponse:
        return PlainTextResponse("ok\n")

    async def ready(_: Request) -> PlainTextResponse:
        is_ready = any(each.is_reachable for each in await found.read())
        return PlainTextResponse("ok\n" if is_ready else "no shard responds\n", 200 if is_ready else 503)

    inside = [
        *(
            Mount(f"/shards/{name}", ReadOnlyShard(name, all_routes(each), authenticator))
            for name, each in contexts.items()
        ),
        Mount("/api/v1", build(context, found)),
        Route("/livez", live),
        Route("/readyz", ready),
        *pages(context, found),
    ]
    return Server(routed(inside, ErrorPages(context, SHARD_SECTIONS)), context)


class ReadOnlyShard:
    """The pages and the API of one shard, for users of the first one: what reads passes, what changes is refused."""

    def __init__(self, name: str, inside: Asgi, authenticator: ShardAuthenticator) -> None:
        self._name = name
        self._inside = inside
        self._authenticator = authenticator

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        refusal = await self._refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        await self._inside({**scope, SHARD: self._name}, receive, send)

    async def _refusal(self, scope: Scope) -> Response | None:
        """Return why the request is refused, before any route sees it: some have an authentication of their own."""
        try:
            who = await self._authenticator.who(HTTPConnection(scope))
        except HTTPError as no:
            return problem_response(no.status, no.detail, headers=no.headers)
        except BUSY:
            return problem_response(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "the first shard, which has the tokens, does not respond: try again later",
                headers={"Retry-After": "5"},
            )
        if who is None:
            return _sign_in(scope)
        if scope["method"] not in SAFE:
            detail = (
                f"this server shows the shard {self._name} read-only: make the change through that shard's own server, "
                f"`sereno server` with the database of {self._name}"
            )
            return problem_response(HTTPStatus.FORBIDDEN, detail)
        return None


def _sign_in(scope: Scope) -> Response:
    """Return 401 to a program, and lead a browser to the sign-in."""
    inside = scope["path"].removeprefix(scope.get("root_path", ""))
    is_page = scope["method"] in SAFE and not inside.startswith("/api/")
    if not is_page:
        return problem_response(HTTPStatus.UNAUTHORIZED, SIGN_IN_FIRST, headers={"WWW-Authenticate": "Bearer"})
    return RedirectResponse("../" * (inside.count("/") + 1) + "sign-in", HTTPStatus.SEE_OTHER)
