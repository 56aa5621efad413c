"""Operations on API tokens: create, list, revoke. The secret of a token is shown once, when it is created."""

from dataclasses import dataclass

import msgspec

from sereno.access import audit
from sereno.access.actor import default_actor
from sereno.access.identity import check_role, new_token, token_hash
from sereno.access.rows import TokenRow
from sereno.database.statement import Operation, Statement, queries
from sereno.duration import Duration, seconds
from sereno.errors import InvalidArguments, Refused
from sereno.text import check_text

_sql = queries("access/operations")

# Seconds that a token may last at most: ten years.
LONGEST = 10 * 366 * 86400.0

_token = msgspec.json.Decoder(TokenRow)


@dataclass(frozen=True, slots=True)
class CreatedToken:
    """A new token. `secret`: what the client sends; it is not stored."""

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
    """Create a token. Raises Refused if an active token of the same tenant has this name."""
    for field, value in (("name", name), ("tenant", tenant)):
        check_text(field, value)
    secret, author = new_token(), actor or default_actor()
    hashed = token_hash(secret)
    assert hashed is not None
    lasts = None if expires_in is None else seconds(expires_in)
    if lasts is not None and lasts > LONGEST:
        raise InvalidArguments("a token lasts ten years at most; leave expires_in out for one that never expires")
    values = {"name": name, "hash": hashed, "role": check_role(role), "tenant": tenant}
    rows = yield Statement(_sql["create"], values | {"expires_in": lasts, "actor": author})
    if not rows:
        raise Refused(f"a token named {name!r} already exists: revoke it first, or choose another name")
    row = _token.decode(rows[0][0])
    detail = {"role": row.role, "tenant": tenant, "expires_at": row.expires_at}
    yield from audit.audit(author, "token.create", f"token {name}", detail)
    return CreatedToken(secret, row)


def list_tokens(most: int = 1000) -> Operation[list[TokenRow]]:
    """Return tokens, active ones first."""
    return [_token.decode(row[0]) for row in (yield Statement(_sql["list"], {"most": most}))]


def revoke(name: str, *, actor: str | None = None) -> Operation[str]:
    """Revoke a token by name or id, and return its name. Users who signed in with it are signed out."""
    rows = yield Statement(_sql["revoke"], {"name": name})
    same_name, number, revoked, tenant = rows[0]
    if revoked is None and same_name > 1:
        raise Refused(f"{same_name} tokens are named {name!r:.60}: give the id of one, see sereno token list")
    if revoked is None:
        raise Refused(f"no active token is named {name!r:.60}: see sereno token list")
    detail = {"id": number, "tenant": tenant}
    yield from audit.audit(actor or default_actor(), "token.revoke", f"token {revoked}", detail)
    return str(revoked)
