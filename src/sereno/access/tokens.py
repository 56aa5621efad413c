"""Storage of API tokens, sign-outs, responses to idempotent requests, and the audit."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from sereno.access.identity import Principal, Role, SignIn
from sereno.database.statement import Operation, Statement, queries
from sereno.database.vacuum import PAGE
from sereno.search.sql_terms import SearchParams

_sql = queries("access/tokens")

# Newest audit lines that are checked for conditions without an index.
AUDIT_WINDOW = 20_000


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A token in a list, without its secret."""

    id: int
    name: str
    role: Role
    tenant: str | None
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    revoked_at: datetime | None
    used_at: datetime | None


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One line of the audit."""

    id: int
    at: datetime
    actor: str
    action: str
    subject: str
    detail: Mapping[str, Any]
    login: str


class StoredAnswer(NamedTuple):
    """The state of a request with an idempotency key.

    `is_ours`: this request is to be processed now. `status` None: another request with the key is in progress.
    """

    is_ours: bool
    is_same: bool
    status: int | None
    body: bytes | None


_token = msgspec.json.Decoder(TokenRow)
_audit = msgspec.json.Decoder(AuditRow)


def create(
    name: str, hash_: bytes, role: Role, *, tenant: str | None, expires_in: float | None, actor: str
) -> Operation[TokenRow | None]:
    """Create a token; return None if an active token of the same tenant has this name."""
    values = {"name": name, "hash": hash_, "role": role, "tenant": tenant, "expires_in": expires_in, "actor": actor}
    rows = yield Statement(_sql["create"], values)
    return _token.decode(rows[0][0]) if rows else None


def find(shown: bytes | SignIn, *, is_noted: bool = True) -> Operation[Principal | None]:
    """Return the principal of a token hash or of a sign-in; None if it is not valid.

    `is_noted`: store when the token was last used.
    """
    by_hash = {"hash": shown, "id": None, "sign_in": None}
    values = {"hash": None, "id": shown.token, "sign_in": shown.id} if isinstance(shown, SignIn) else by_hash
    rows = yield Statement(_sql["find" if is_noted else "look"], values)
    if not rows:
        return None
    number, name, role, tenant = rows[0]
    return Principal(name, role, tenant, number)


def sign_out(sign_in: SignIn) -> Operation[None]:
    """End a sign-in: its cookie is no longer valid."""
    yield Statement(_sql["sign_out"], {"sign_in": sign_in.id, "until": sign_in.until})


def list_tokens(most: int = 1000) -> Operation[list[TokenRow]]:
    return [_token.decode(row[0]) for row in (yield Statement(_sql["list"], {"most": most}))]


class RevokedToken(NamedTuple):
    """A revoked token; without id if no active token, or several, have the name. `named`: the number of those."""

    named: int
    id: int | None
    name: str | None
    tenant: str | None


def revoke(name: str) -> Operation[RevokedToken]:
    """Revoke a token by name or id. A name that several tenants use revokes nothing."""
    rows = yield Statement(_sql["revoke"], {"name": name})
    return RevokedToken(*rows[0])


class TokenStatus(NamedTuple):
    """Whether a token was ever created, and whether one is valid now."""

    was_created: bool
    is_valid: bool


def token_status() -> Operation[TokenStatus]:
    """Return whether the server needs a sign-in, and whether anyone could sign in."""
    return TokenStatus(*(yield Statement(_sql["status"]))[0])


def begin_answer(who: str, key: str, request: bytes) -> Operation[StoredAnswer]:
    rows = yield Statement(_sql["begin_answer"], {"who": who, "key": key, "request": request})
    is_ours, is_same, status, body = rows[0]
    return StoredAnswer(is_ours, is_ours or bool(is_same), status, body)


def end_answer(who: str, key: str, status: int, body: bytes) -> Operation[None]:
    yield Statement(_sql["end_answer"], {"who": who, "key": key, "status": status, "body": body})


def drop_answer(who: str, key: str) -> Operation[None]:
    yield Statement(_sql["drop_answer"], {"who": who, "key": key})


def forget_answers() -> Operation[bool]:
    """Delete a page of old responses; return whether there may be more."""
    return len((yield Statement(_sql["forget_answers"], {"most": PAGE}))) >= PAGE


def forget_sign_outs() -> Operation[bool]:
    """Delete a page of sign-outs whose cookies have expired; return whether there may be more."""
    return len((yield Statement(_sql["forget_sign_outs"], {"most": PAGE}))) >= PAGE


def audit_lines(
    *,
    before: int | None = None,
    subject: str | None = None,
    actor: str | None = None,
    action: str | None = None,
    search_params: SearchParams | None = None,
    most: int = 50,
) -> Operation[list[AuditRow]]:
    """Return audit lines, newest first. Action "queue" also matches every "queue.…".

    `actor`, `action` and `search_params` are checked among the newest AUDIT_WINDOW lines only; a whole subject is
    found by its index.
    """
    found, _ = yield from audit_page(
        before=before, subject=subject, actor=actor, action=action, search_params=search_params, most=most
    )
    return found


def audit_page(
    *,
    before: int | None = None,
    subject: str | None = None,
    actor: str | None = None,
    action: str | None = None,
    search_params: SearchParams | None = None,
    most: int = 50,
    skip: int = 0,
    most_bytes: int | None = None,
) -> Operation[tuple[list[AuditRow], bool]]:
    """Return a page of `audit_lines`, and whether there are more. It ends with the line that passes `most_bytes`."""
    window = skip + most + 1 if actor is None and action is None and search_params is None else AUDIT_WINDOW
    given = {"before": before, "subject": subject, "actor": actor, "action": action, "most": most, "window": window}
    given |= {"skip": skip, "bytes": most_bytes, "terms": None if search_params is None else search_params.terms}
    if search_params is not None and subject is None:
        given["subject"] = search_params.one("subject")
    rows = yield Statement(_sql["audit"], given)
    found = [_audit.decode(row[0]) for row in rows if row[0] is not None]
    return found, len(found) < len(rows)
