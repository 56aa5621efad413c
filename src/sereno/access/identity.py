"""The principal of a request, and its role.

    viewer     reads
    operator   also changes jobs and schedules: retry, cancel, pause, requeue, run
    admin      also changes configuration: tokens, limits, templates, recipients, deletes

A principal of a tenant reads and changes the rows of that tenant only.
"""

import base64
import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from typing import Literal, get_args

from sereno.errors import InvalidArguments

Role = Literal["viewer", "operator", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)

PREFIX = "srn_"
_TOKEN_BYTES = 24
_TOKEN = re.compile(PREFIX + r"[A-Za-z0-9_-]{32}")
# A sign-in cookie: token id, expiry, id of the sign-in, signature.
_COOKIE = re.compile(r"v2\.(\d{1,18})\.(\d{1,12})\.([A-Za-z0-9_-]{16})\.([A-Za-z0-9_-]{43})")
_SIGN_IN_BYTES = 12
_PURPOSE = b"sereno sign-in\x00"


@dataclass(frozen=True, slots=True)
class Principal:
    """The author of a request. `tenant`: the tenant whose rows it may see, None for all. `token`: its token's id."""

    name: str
    role: Role
    tenant: str | None = None
    token: int | None = None

    @property
    def actor(self) -> str:
        """The name in the audit. It includes the tenant, so that a tenant's user cannot pose as an administrator."""
        return self.name if self.tenant is None else f"{self.name} of {self.tenant}"

    def may(self, role: Role) -> bool:
        return ROLES.index(self.role) >= ROLES.index(role)


@dataclass(frozen=True, slots=True)
class SignIn:
    """The content of a sign-in cookie: the id of the token, when the sign-in ends, and its own random id."""

    token: int
    until: int
    id: str


def check_role(role: str) -> Role:
    for known in ROLES:
        if role == known:
            return known
    raise InvalidArguments(f"there is no role {role!r:.40}: use one of {', '.join(ROLES)}")


def new_token() -> str:
    """Return a new random token. It is shown once; only its hash is stored."""
    return PREFIX + secrets.token_urlsafe(_TOKEN_BYTES)


def token_hash(token: str) -> bytes | None:
    """Return the hash that is stored; None if the text is no token. With 192 random bits a plain hash is enough."""
    return hashlib.sha256(token.encode()).digest() if _TOKEN.fullmatch(token) else None


def make_cookie(secret: bytes, token: int, until: int) -> str:
    """Return a sign-in cookie for a token. Each cookie is unique, so that each can be signed out."""
    content = f"v2.{token}.{until}.{secrets.token_urlsafe(_SIGN_IN_BYTES)}"
    return f"{content}.{_signature(secret, content)}"


def read_cookie(secret: bytes, cookie: str, now: float) -> SignIn | None:
    """Return the content of a cookie; None if its signature is wrong or it has expired."""
    found = _COOKIE.fullmatch(cookie)
    if found is None:
        return None
    token, until, number, signature = found.groups()
    is_ours = hmac.compare_digest(signature, _signature(secret, f"v2.{token}.{until}.{number}"))
    return SignIn(int(token), int(until), number) if is_ours and int(until) > now else None


def _signature(secret: bytes, content: str) -> str:
    digest = hmac.new(secret, _PURPOSE + content.encode(), hashlib.sha256).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")
