"""The owner of a presented token or cookie, sign-outs, and whether a token is valid at all."""

from typing import NamedTuple

from sereno.access.identity import Principal, SignIn
from sereno.database.statement import Operation, Statement, queries
from sereno.database.vacuum import PAGE

_sql = queries("access/authentication")


def find_principal(shown: bytes | SignIn, *, is_noted: bool = True) -> Operation[Principal | None]:
    """Return the principal of a token hash or of a sign-in; None if it is not valid.

    `is_noted`: store when the token was last used.
    """
    by_hash = {"hash": shown, "id": None, "sign_in": None}
    values = {"hash": None, "id": shown.token, "sign_in": shown.id} if isinstance(shown, SignIn) else by_hash
    rows = yield Statement(_sql["find_principal" if is_noted else "find_principal_unnoted"], values)
    if not rows:
        return None
    number, name, role, tenant = rows[0]
    return Principal(name, role, tenant, number)


def sign_out(sign_in: SignIn) -> Operation[None]:
    """End a sign-in: its cookie is no longer valid."""
    yield Statement(_sql["sign_out"], {"sign_in": sign_in.id, "until": sign_in.until})


def forget_sign_outs() -> Operation[bool]:
    """Delete a page of sign-outs whose cookies have expired; return whether there may be more."""
    return len((yield Statement(_sql["forget_sign_outs"], {"most": PAGE}))) >= PAGE


class TokenStatus(NamedTuple):
    """Whether a token was ever created, and whether one is valid now."""

    was_created: bool
    is_valid: bool


def token_status() -> Operation[TokenStatus]:
    """Return whether the server needs a sign-in, and whether anyone could sign in."""
    return TokenStatus(*(yield Statement(_sql["token_status"]))[0])
