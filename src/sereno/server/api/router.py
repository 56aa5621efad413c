"""A router whose operations each declare the role they need, and whether a tenant's users may call them."""

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import cache, cached_property
from http import HTTPStatus
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Header, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Receive, Scope, Send

from sereno.access import idempotency
from sereno.access.identity import Principal, Role
from sereno.server.api.problems import responses
from sereno.server.shared.authenticator import SAFE, current
from sereno.server.shared.context import ServerContext
from sereno.server.shared.error_masking import hidden, sees_all
from sereno.server.shared.http_error import HTTPError

F = TypeVar("F", bound=Callable[..., Any])

# Who sends the request, as authenticated.
Who = Annotated[Principal, Depends(current)]

LONGEST_KEY = 200
# Bytes from which on a body is parsed in a thread: to parse them takes a millisecond or two.
LARGE_BODY = 64 * 1024
ALWAYS = (
    HTTPStatus.UNAUTHORIZED,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.NOT_FOUND,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNPROCESSABLE_ENTITY,
    HTTPStatus.SERVICE_UNAVAILABLE,
)


class DeferredRoute(BaseRoute):
    """A route that is built on its first request: to build all of them takes half a second, at the start."""

    def __init__(self, path: str, methods: Collection[str], build: Callable[[], BaseRoute]) -> None:
        self._pattern = _pattern(path, frozenset(methods))
        self._build = build

    @cached_property
    def whole(self) -> BaseRoute:
        return self._build()

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        found, _ = self._pattern.matches(scope)
        return (found, {}) if found is Match.NONE else self.whole.matches(scope)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.whole.handle(scope, receive, send)


@cache
def _pattern(path: str, methods: frozenset[str]) -> Route:
    """Compile a path once for all servers of a process."""
    return Route(path, lambda _: None, methods=methods)


class Router(APIRouter):
    """`router.operation("GET", "/jobs", role="viewer", of_tenants=True)`.

    `of_tenants`: also for users of one tenant; the operation then shows nothing of other tenants.
    """

    def __init__(self, context: ServerContext, name: str, *, remembers: bool = True) -> None:
        """`remembers`: False where a response that is stored for its Idempotency-Key would hold a secret."""
        # For paths that authenticate requests themselves: what to call before the body is read.
        self.checks: dict[str, Callable[[Request], Awaitable[object]]] = {}
        super().__init__(tags=[name], route_class=_replay_repeated(context, remembers, self.checks))
        self._context = context

    def operation(
        self,
        method: str,
        path: str,
        *,
        role: Role,
        of_tenants: bool = False,
        also: Sequence[HTTPStatus] = (),
        **more: Any,
    ) -> Callable[[F], F]:
        """Return the decorator of an operation that needs this role."""

        async def authenticate(request: Request) -> None:
            request.state.principal = await self._context.authenticator.check(request, role, of_tenants=of_tenants)

        depends = [Depends(authenticate)]
        if method == "POST":
            depends.append(Depends(_idempotency_key))
            also = (*also, HTTPStatus.CONFLICT)
        return self.api_route(
            path,
            methods=[method],
            dependencies=depends,
            responses=responses(*ALWAYS, *also) | more.pop("responses", {}),
            openapi_extra={"x-role": role, "x-of-tenants": of_tenants, "security": [{"token": []}]},
            **more,
        )

    def add_api_route(self, path: str, endpoint: Callable[..., Any], **more: Any) -> None:
        def build() -> BaseRoute:
            super(Router, self).add_api_route(path, endpoint, **more)
            return self.routes.pop()

        self.routes.append(DeferredRoute(path, more["methods"], build))


def _idempotency_key(
    idempotency_key: Annotated[
        str | None,
        Header(max_length=LONGEST_KEY, description="Within a day, the same request and key are executed once."),
    ] = None,
) -> None:
    """Declares the header in the OpenAPI document."""


def _replay_repeated(
    context: ServerContext, remembers: bool, checks: Mapping[str, Callable[[Request], Awaitable[object]]]
) -> type[APIRoute]:
    """Return a route class that executes a POST with an Idempotency-Key once, and repeats its response later."""

    class RepeatableRoute(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Any]:
            original = super().get_route_handler()
            declared = self.openapi_extra or {}

            async def handler(request: Request) -> Response:
                if (
                    request.method not in SAFE
                    and declared.get("x-role") is not None
                    and "x-own-authentication" not in declared
                ):
                    # Check the role before any of the body is read, which may be malicious.
                    await context.authenticator.check(request, declared["x-role"], of_tenants=declared["x-of-tenants"])
                elif self.path in checks:
                    await checks[self.path](request)
                await _parse_in_thread(request, self.body_field)
                key = request.headers.get("idempotency-key")
                # A viewer changes nothing, so no response is stored for one either.
                is_stored = remembers and declared.get("x-role") != "viewer"
                if request.method in SAFE or not is_stored or not key or len(key) > LONGEST_KEY:
                    return _masked(request, await original(request))
                return await _once(context, request, key, original)

            return handler

    return RepeatableRoute


def _masked(request: Request, response: Response) -> Response:
    """Return the response with errors masked, unless the user may see them."""
    who = getattr(request.state, "principal", None)
    raw = bytes(getattr(response, "body", b""))
    if not raw or not isinstance(who, Principal) or sees_all(who) or response.media_type != "application/json":
        return response
    content = json.loads(raw)
    shown = hidden(content)
    if shown == content:
        return response
    response.body = json.dumps(shown, ensure_ascii=False, separators=(",", ":")).encode()
    response.headers["content-length"] = str(len(response.body))
    return response


async def _parse_in_thread(request: Request, field: Any) -> None:
    """Parse and check a large body in a thread, while the server handles other requests. FastAPI checks small ones.

    `field`: FastAPI's description of the body; its class is private.
    """
    if field is None:
        return
    raw = await request.body()
    if len(raw) > LARGE_BODY and "json" in request.headers.get("content-type", ""):
        await asyncio.to_thread(_parse, request, raw, field)


def _parse(request: Request, raw: bytes, field: Any) -> None:
    try:
        # Starlette caches the parsed body in this attribute, so that it is not parsed twice.
        request._json = json.loads(raw)  # noqa: SLF001
    except (ValueError, RecursionError):
        # FastAPI parses it again, fails as well, and has the error message.
        return
    _, errors = field.validate(request._json, loc=("body",))  # noqa: SLF001
    if errors:
        raise RequestValidationError(errors)


def _named(principal: Principal) -> str:
    """Return a name that no other principal has: a stored response is never given to another user or tenant."""
    if principal.token is not None:
        return f"token {principal.token}"
    return f"{principal.role} of {principal.tenant!r} {principal.name}"


async def _once(context: ServerContext, request: Request, key: str, original: Callable[[Request], Any]) -> Response:
    principal = await context.authenticator.who(request)
    if principal is None:
        response: Response = await original(request)
        return response
    who = _named(principal)
    digest = hashlib.sha256(b"\x00".join([request.method.encode(), str(request.url).encode(), await request.body()]))
    found = await context.change(idempotency.begin_request(who, key, digest.digest()))
    if not found.is_ours:
        if not found.is_same:
            raise HTTPError(HTTPStatus.UNPROCESSABLE_ENTITY, "this Idempotency-Key was used for another request")
        if found.status is None:
            raise HTTPError(HTTPStatus.CONFLICT, "the same request is being processed right now", {"Retry-After": "1"})
        return Response(found.body, found.status, media_type="application/json", headers={"Idempotent-Replay": "true"})
    try:
        response = await original(request)
    except BaseException:
        await context.change(idempotency.drop_request(who, key))
        raise
    await context.change(idempotency.store_response(who, key, response.status_code, bytes(response.body)))
    return response
