"""API tokens: create, list, revoke. An admin of a tenant does so for that tenant alone."""

from http import HTTPStatus
from typing import Annotated

from fastapi import Path
from pydantic import BaseModel, Field

from sereno.access import operations as tokens
from sereno.access.identity import Principal, Role
from sereno.access.operations import CreatedToken
from sereno.access.rows import TokenRow
from sereno.database.statement import Operation
from sereno.server.api.jobs.limits import Length
from sereno.server.api.paging import Page
from sereno.server.api.router import Router, Who
from sereno.server.shared.context import ServerContext
from sereno.server.shared.http_error import HTTPError, not_found
from sereno.server.shared.tenant_scope import their_tenant
from sereno.text import NAME_LIMIT

# Tokens in a list; active ones come first.
MOST = 1000
# Tokens among which those of one tenant, or one by its id, are searched.
EVERY = 1_000_000

TokenId = Annotated[int, Path(ge=0, lt=2**63)]
GONE = [HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT]


class NewTokenBody(BaseModel):
    """`tenant`: the token gives access to this tenant only. `expires_in`: such as "90d"; without it, never."""

    # A name of digits alone would be taken for the id of another token.
    name: str = Field(min_length=1, max_length=200, pattern=r"[^0-9]")
    role: Role = "viewer"
    tenant: str | None = Field(None, min_length=1, max_length=NAME_LIMIT)
    expires_in: Length | None = None


def routes(context: ServerContext) -> Router:
    """`/tokens`."""
    # Responses hold a secret and are not stored; a second request fails because the name exists.
    router = Router(context, "tokens", remembers=False)

    @router.operation("GET", "/tokens", role="admin", of_tenants=True)
    async def list_tokens(who: Who) -> Page[TokenRow]:
        """Tokens, active ones first; without their secrets."""
        return Page((await context.read(_theirs(who)))[:MOST])

    @router.operation("POST", "/tokens", role="admin", of_tenants=True, status_code=201, also=[HTTPStatus.NOT_FOUND])
    async def create(body: NewTokenBody, who: Who) -> CreatedToken:
        """Create a token. Its secret is in this response only; a repeated Idempotency-Key does not return it again."""
        tenant = their_tenant(who, body.tenant)
        if not who.may(body.role):
            raise HTTPError(HTTPStatus.FORBIDDEN, f"{who.name} is {who.role}, and cannot create a token of {body.role}")
        return await context.change(
            tokens.create(body.name, body.role, tenant=tenant, expires_in=body.expires_in, actor=who.actor)
        )

    @router.operation("DELETE", "/tokens/{token_id}", role="admin", of_tenants=True, also=GONE, status_code=204)
    async def revoke(token_id: TokenId, who: Who) -> None:
        """Revoke a token: it stops working within seconds. Users who signed in with it are signed out."""
        await context.change(_revoke(token_id, who))

    return router


def _theirs(who: Principal) -> Operation[list[TokenRow]]:
    found = yield from tokens.list_tokens(MOST if who.tenant is None else EVERY)
    return [row for row in found if who.tenant is None or row.tenant == who.tenant]


def _revoke(token_id: int, who: Principal) -> Operation[None]:
    active = [row for row in (yield from tokens.list_tokens(EVERY)) if row.revoked_at is None]
    wanted = str(token_id)
    row = next((row for row in active if row.id == token_id), None)
    if row is None or who.tenant not in (None, row.tenant):
        raise not_found(f"token {token_id}")
    # Revoking by this text would revoke both.
    if any(other.name == wanted for other in active if other.id != token_id):
        raise HTTPError(HTTPStatus.CONFLICT, f"another token is named {wanted}: revoke that one by its id first")
    yield from tokens.revoke(wanted, actor=who.actor)
