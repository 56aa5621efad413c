"""Inboxes: for their owners, with a token that the application created, and for admins."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Query, Request, Response
from pydantic import BaseModel, Field

from sereno.access.identity import Role
from sereno.database.statement import Operation
from sereno.errors import InvalidArguments
from sereno.notifications.operations import mark_inbox
from sereno.notifications.recipients import inbox_queries
from sereno.notifications.recipients.inbox_token import PREFIX, read_token
from sereno.notifications.recipients.rows import InboxRow, Mark
from sereno.server.api.paging import LARGEST_PAGE, Page, Paging, paging
from sereno.server.api.problems import responses
from sereno.server.api.responses import json_response, page_model
from sereno.server.api.router import ALWAYS, Router
from sereno.server.shared.authenticator import CURRENT_SHARE, tenant_share
from sereno.server.shared.context import ServerContext
from sereno.server.shared.http_error import HTTPError
from sereno.server.shared.tenant_scope import their_tenant
from sereno.text import check_text

F = TypeVar("F", bound=Callable[..., Any])
_BEARER = "bearer "
# The share of database reads of all recipients without a tenant.
INBOXES = ("all", "inboxes")


@dataclass(frozen=True)
class InboxOwner:
    """Whose inbox. `by`: the admin who reads it; None for the owner. `until`: when the owner's token expires."""

    key: str
    tenant: str | None
    by: str | None = None
    until: int | None = None


class MarkBody(BaseModel):
    """Mark as seen, read or archived: these, or without `ids` all."""

    what: Mark
    ids: list[Annotated[int, Field(ge=0, lt=2**63)]] | None = Field(None, max_length=10_000)


@dataclass
class MarkResponse:
    """How many were marked."""

    count: int


@dataclass
class UnreadCount:
    """Counted up to 1,000."""

    count: int


def routes(context: ServerContext) -> Router:
    """`/inbox`."""
    router = Router(context, "inbox")
    reader, writer = (Depends(owner_of(context, is_change=is_change)) for is_change in (False, True))
    router.checks["/inbox/mark"] = _writer(context)

    @at(router, "GET", "/inbox", response_model=page_model(InboxRow))
    async def list_inbox(
        owner: Annotated[InboxOwner, reader], page: Annotated[Paging, Depends(paging)], archived: bool = False
    ) -> Response:
        """The in-app messages of a recipient, newest first; or the archived ones."""
        return json_response(await context.read(_page(owner, page, archived=archived)))

    @at(router, "GET", "/inbox/unread")
    async def unread(owner: Annotated[InboxOwner, reader]) -> UnreadCount:
        """How many are unread."""
        return UnreadCount(await context.read(inbox_queries.unread(owner.key, tenant=owner.tenant)))

    @at(router, "POST", "/inbox/mark")
    async def mark(body: MarkBody, owner: Annotated[InboxOwner, writer]) -> MarkResponse:
        """Mark messages as seen, read or archived. The first time of each is stored."""
        marked = mark_inbox(owner.key, body.what, body.ids, tenant=owner.tenant, actor=owner.by)
        return MarkResponse(await context.change(marked))

    return router


def at(
    router: Router, method: str, path: str, *, shown: dict[int | str, dict[str, Any]] | None = None, **more: Any
) -> Callable[[F], F]:
    """Return the decorator of an operation for admins and for inbox tokens. `shown`: further documented responses."""
    also = (HTTPStatus.NOT_FOUND, *((HTTPStatus.CONFLICT,) if method == "POST" else ()))
    # These operations authenticate requests themselves.
    extra = {"x-role": "admin", "x-of-tenants": True, "x-own-authentication": True, "security": [{"token": []}]}
    documented = responses(*ALWAYS, *also) | (shown or {})
    return router.api_route(path, methods=[method], responses=documented, openapi_extra=extra, **more)


def owner_of(context: ServerContext, *, is_change: bool) -> Callable[..., Any]:
    """Return the dependency that authenticates a request and finds the owner of the inbox."""
    role: Role = "admin" if is_change else "viewer"

    async def owner(
        request: Request,
        recipient: Annotated[str | None, Query(description="Key of the recipient; for admins.")] = None,
        tenant: Annotated[str | None, Query(description="Tenant of the recipient; for admins.")] = None,
    ) -> InboxOwner:
        shown = request.headers.get("authorization", "")
        if shown[: len(_BEARER)].lower() == _BEARER and shown[len(_BEARER) :].strip().startswith(PREFIX):
            return _by_token(context, shown[len(_BEARER) :].strip(), is_change=is_change)
        who = await context.authenticator.check(request, role, of_tenants=True)
        if not who.may("admin"):
            raise HTTPError(HTTPStatus.FORBIDDEN, f"{who.name} is {who.role}; the inbox of others needs admin")
        if recipient is None:
            raise InvalidArguments("the parameter recipient is missing: the key of the inbox's owner")
        theirs = their_tenant(who, tenant)
        check_text("recipient", recipient)
        check_text("tenant", theirs)
        return InboxOwner(recipient, theirs, who.actor)

    return owner


def _writer(context: ServerContext) -> Callable[[Request], Awaitable[InboxOwner]]:
    """Return the same check, for use before the body of a request is read."""
    owner = owner_of(context, is_change=True)

    async def check(request: Request) -> InboxOwner:
        named = request.query_params
        found: InboxOwner = await owner(request, named.get("recipient"), named.get("tenant"))
        return found

    return check


def _by_token(context: ServerContext, token: str, *, is_change: bool) -> InboxOwner:
    """Return the inbox that the token names, whatever the parameters of the request."""
    secret = context.settings.secret
    reader = None if secret is None else read_token(secret, token, time.time())
    if reader is None:
        detail = "this inbox token is invalid or has expired: request a new one from the application"
        raise HTTPError(HTTPStatus.UNAUTHORIZED, detail, {"WWW-Authenticate": "Bearer"})
    if is_change and context.settings.read_only:
        raise HTTPError(HTTPStatus.FORBIDDEN, "this server is read-only: SERENO_READ_ONLY is set")
    CURRENT_SHARE.set(INBOXES if reader.tenant is None else tenant_share(reader.tenant))
    return InboxOwner(reader.recipient, reader.tenant, until=reader.until)


def _page(owner: InboxOwner, page: Paging, *, archived: bool) -> Operation[Page[InboxRow]]:
    found, has_more = yield from inbox_queries.inbox_page(
        owner.key,
        tenant=owner.tenant,
        before=page.before,
        most=page.limit,
        archived=archived,
        skip=page.skip,
        most_bytes=LARGEST_PAGE,
    )
    return Page(found, found[-1].id if has_more else None)
