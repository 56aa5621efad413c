"""Who asks, and what they may do.

    viewer     sees
    operator   and changes what is under way: retry, cancel, pause, requeue, run
    admin      and changes how things are: tokens, limits, templates, recipients, deletes

Somebody of a tenant sees and changes what is that tenant's, and nothing else.
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
# A cookie of somebody who signed in: token id, end, the id of this sign-in and signature.
_COOKIE = re.compile(r"v2\.(\d{1,18})\.(\d{1,12})\.([A-Za-z0-9_-]{16})\.([A-Za-z0-9_-]{43})")
_SIGN_IN_BYTES = 12
_PURPOSE = b"sereno sign-in\x00"


@dataclass(frozen=True, slots=True)
class Principal:
    """Whoever asks. `tenant`: whose things they see; None for all. `token`: the id of what they showed."""

    name: str
    role: Role
    tenant: str | None = None
    token: int | None = None

    @property
    def actor(self) -> str:
        """As the audit names them: a tenant's people choose names for themselves, and not those of the house."""
        return self.name if self.tenant is None else f"{self.name} of {self.tenant}"

    def may(self, role: Role) -> bool:
        return ROLES.index(self.role) >= ROLES.index(role)


@dataclass(frozen=True, slots=True)
class SignIn:
    """What a cookie says: the id of the token that was shown, when the sign-in ends, and its own random id."""

    token: int
    until: int
    id: str


def check_role(role: str) -> Role:
    for known in ROLES:
        if role == known:
            return known
    raise InvalidArguments(f"there is no role {role!r:.40}: {', '.join(ROLES)}")


def new_token() -> str:
    """Shown once; only its hash is kept."""
    return PREFIX + secrets.token_urlsafe(_TOKEN_BYTES)


def token_hash(token: str) -> bytes | None:
    """What is stored of it; None for a text that is no token. It has 192 random bits, so a plain hash is enough."""
    return hashlib.sha256(token.encode()).digest() if _TOKEN.fullmatch(token) else None


def make_cookie(secret: bytes, token: int, until: int) -> str:
    """For somebody who has shown a token: names it, and ends. No two are the same, so that each can be signed out."""
    said = f"v2.{token}.{until}.{secrets.token_urlsafe(_SIGN_IN_BYTES)}"
    return f"{said}.{_signature(secret, said)}"


def read_cookie(secret: bytes, cookie: str, now: float) -> SignIn | None:
    """Return what it says; None for one that is not ours, or has ended."""
    found = _COOKIE.fullmatch(cookie)
    if found is None:
        return None
    token, until, number, signature = found.groups()
    is_ours = hmac.compare_digest(signature, _signature(secret, f"v2.{token}.{until}.{number}"))
    return SignIn(int(token), int(until), number) if is_ours and int(until) > now else None


def _signature(secret: bytes, said: str) -> str:
    digest = hmac.new(secret, _PURPOSE + said.encode(), hashlib.sha256).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")
