"""Tokens: made, listed, revoked. What a token opens with is shown once, to whoever made it."""

from dataclasses import dataclass

from sereno.access import audit
from sereno.access import tokens as store
from sereno.access.actor import default_actor
from sereno.access.identity import check_role, new_token, token_hash
from sereno.access.tokens import TokenRow
from sereno.database.statement import Operation
from sereno.duration import Duration, seconds
from sereno.errors import InvalidArguments, Refused
from sereno.text import check_text

# Ten years.
LONGEST = 10 * 366 * 86400.0


@dataclass(frozen=True, slots=True)
class CreatedToken:
    """`secret`: what to show at the door. It is kept nowhere."""

    secret: str
    token: TokenRow


def create(
    name: str,
    role: str,
    *,
    tenant: str | None = None,
    expires_in: Duration | None = None,
    actor: str | None = None,
) -> Operation[CreatedToken]:
    """One more who may ask. Refused where a living one of the same tenant has this name."""
    for what, value in (("name", name), ("tenant", tenant)):
        check_text(what, value)
    secret, who = new_token(), actor or default_actor()
    hashed = token_hash(secret)
    assert hashed is not None
    lasts = None if expires_in is None else seconds(expires_in)
    if lasts is not None and lasts > LONGEST:
        raise InvalidArguments("a token lasts ten years at most; leave expires_in out for one that does not end")
    row = yield from store.create(name, hashed, check_role(role), tenant=tenant, expires_in=lasts, actor=who)
    if row is None:
        raise Refused(f"there is a token named {name!r} already: revoke it first, or choose another name")
    detail = {"role": row.role, "tenant": tenant, "expires_at": row.expires_at}
    yield from audit.audit(who, "token.create", f"token {name}", detail)
    return CreatedToken(secret, row)


def list_tokens() -> Operation[list[TokenRow]]:
    return store.list_tokens()


def revoke(name: str, *, actor: str | None = None) -> Operation[str]:
    """By name or number. Who signed in with it is signed out."""
    found = yield from store.revoke(name)
    if found.name is None and found.named > 1:
        raise Refused(f"{found.named} tokens are called {name!r:.60}: name one by its number, sereno token list")
    if found.name is None:
        raise Refused(f"no living token is called {name!r:.60}: sereno token list")
    detail = {"id": found.id, "tenant": found.tenant}
    yield from audit.audit(actor or default_actor(), "token.revoke", f"token {found.name}", detail)
    return found.name
