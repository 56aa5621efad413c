"""The doorkeeper: who asks, what they may do, and whose things they see."""

import ipaddress
import re
import secrets
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import ContextVar
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from fastapi import Request
from starlette.requests import HTTPConnection

from sereno.access import tokens
from sereno.access.identity import Principal, Role, SignIn, make_cookie, read_cookie, token_hash
from sereno.database.database import Database
from sereno.server.shared.busy import BUSY
from sereno.server.shared.http_error import HTTPError
from sereno.server.shared.proxies import is_by_trusted_proxy, is_forwarded
from sereno.settings import Settings

COOKIE = "sereno"
# Over TLS. Browsers take a cookie with this prefix from this very host alone, with Secure and for the path /: neither
# another host of the same domain nor a page without TLS can plant one.
SECURE_COOKIE = "__Host-sereno"
# Who signed in stays so for so many seconds.
SIGNED_IN_SECONDS = 12 * 3600
# A token that was found is not looked up again for so many seconds: also how long a revoked one still opens.
FRESH_SECONDS = 5.0
# Unless the database is away: then for so long, and only to look.
AWAY_SECONDS = 600.0
MOST_REMEMBERED = 1000
# Sign-ins that were ended at this server, of a hundred bytes each.
MOST_SIGNED_OUT = 10_000
# Whose share of the database reads a request uses: one user's, or one tenant's with all its tokens. None: the server's.
Share = str | tuple[str, str]
ASKING: ContextVar[Share | None] = ContextVar("asking", default=None)
LOCAL = ("localhost", "127.0.0.1", "::1")
SAFE = ("GET", "HEAD", "OPTIONS")
ELSEWHERE = "this was sent by a page of another origin"
_BEARER = re.compile(r"[Bb]earer +(\S+)")

# Somebody else's sign-in, where the server is part of another application: who is it, if anybody?
Authenticate = Callable[[HTTPConnection], Awaitable[Principal | None]]


class Authenticator:
    """Knows who asks. `is_open`: nobody has to say who they are, from this machine alone."""

    def __init__(self, database: Database, *, authenticate: Authenticate | None = None, is_open: bool = False) -> None:
        self._database = database
        self._authenticate = authenticate
        self._is_open = is_open
        self._remembered: dict[bytes | SignIn, tuple[float, Principal]] = {}
        # Those that were ended here, oldest first: they hold at once, also where nothing can be written.
        self._signed_out: dict[SignIn, None] = {}
        self._own_secret = secrets.token_bytes(32)
        self._looked_at = time.monotonic()

    @property
    def settings(self) -> Settings:
        return self._database.settings

    @property
    def is_elsewhere(self) -> bool:
        """Whether people sign in to the application around us, and not here."""
        return self._authenticate is not None

    async def who(self, request: HTTPConnection) -> Principal | None:
        """Whoever asks, by the sign-in of the application around us, a trusted proxy, a token or a cookie."""
        found = _BEARER.fullmatch(request.headers.get("authorization", ""))
        if self._authenticate is not None:
            # It may know people by a cookie, which their browser sends along with what another page asks.
            if found is None and not self._is_from_here(request):
                raise HTTPError(HTTPStatus.FORBIDDEN, ELSEWHERE)
            return await self._authenticate(request)
        if self._is_open and await self._is_still_open():
            is_local = _is_local(request) and self._is_from_here(request)
            return Principal("local", "admin") if is_local else None
        if found is not None:
            return await self.of_token(found[1], is_safe=request.scope.get("method") in SAFE)
        sign_in = self._sign_in(request)
        if sign_in is not None and sign_in not in self._signed_out and self._is_from_here(request):
            return await self._find(sign_in, is_safe=request.scope.get("method") in SAFE)
        return self._by_proxy(request)

    async def of_token(self, token: str, *, is_safe: bool = False) -> Principal | None:
        """Whose it is, if it is one and has not ended."""
        hashed = token_hash(token)
        return None if hashed is None else await self._find(hashed, is_safe=is_safe)

    def check_origin(self, request: HTTPConnection) -> None:
        """403 for what a page of another origin has sent."""
        if not self._is_same_origin(request):
            raise HTTPError(HTTPStatus.FORBIDDEN, ELSEWHERE)

    def is_encrypted(self, request: HTTPConnection) -> bool:
        """Return whether the browser speaks TLS, also where a proxy speaks to the server in the clear."""
        return request.scope.get("scheme") == "https" or (self.settings.public_url or "").startswith("https:")

    def cookie_name(self, request: HTTPConnection) -> str:
        """Return the one name under which a cookie counts for this request."""
        return SECURE_COOKIE if self.is_encrypted(request) else COOKIE

    def cookie(self, principal: Principal) -> str | None:
        """For whoever has shown a token."""
        if principal.token is None:
            return None
        return make_cookie(self._secret, principal.token, int(time.time()) + SIGNED_IN_SECONDS)

    def _sign_in(self, request: HTTPConnection) -> SignIn | None:
        return read_cookie(self._secret, request.cookies.get(self.cookie_name(request), ""), time.time())

    async def sign_out(self, request: HTTPConnection) -> None:
        """End the sign-in of this request's cookie: whoever has a copy of the cookie is signed out, too.

        On a read-only server this is kept in memory, so that it holds there until a restart.
        """
        sign_in = self._sign_in(request)
        if sign_in is None:
            return
        self._signed_out[sign_in] = None
        self._remembered.pop(sign_in, None)
        if len(self._signed_out) > MOST_SIGNED_OUT:
            del self._signed_out[next(iter(self._signed_out))]
        if not self.settings.read_only:
            await self._database.arun_one(tokens.sign_out(sign_in))

    async def check(self, request: Request, role: Role, *, of_tenants: bool) -> Principal:
        """Whoever asks, if they may. 401 without a name, 403 without the right."""
        principal = await self.who(request)
        if principal is None:
            raise HTTPError(
                HTTPStatus.UNAUTHORIZED,
                "show a token: Authorization: Bearer srn_…; sereno token create makes one",
                {"WWW-Authenticate": "Bearer"},
            )
        if self.settings.read_only and role != "viewer" and request.method not in SAFE:
            raise HTTPError(HTTPStatus.FORBIDDEN, "this server is read-only: SERENO_READ_ONLY is set")
        if not principal.may(role):
            raise HTTPError(HTTPStatus.FORBIDDEN, f"{principal.name} is {principal.role}; this needs {role}")
        if principal.tenant is not None and not of_tenants:
            raise HTTPError(HTTPStatus.FORBIDDEN, f"{principal.name} sees the tenant {principal.tenant} alone")
        ASKING.set(principal.actor if principal.tenant is None else tenant_share(principal.tenant))
        return principal

    async def _is_still_open(self) -> bool:
        """Until the first token is created. It never opens again: also not when that token is revoked or expires."""
        if self._looked_at + FRESH_SECONDS < time.monotonic():
            with suppress(*BUSY):
                self._is_open = not (await self._database.arun_one(tokens.token_status())).was_created
            self._looked_at = time.monotonic()
        return self._is_open

    @property
    def _secret(self) -> bytes:
        """Without a setting, everybody signs in again after a restart."""
        return self.settings.secret.encode() if self.settings.secret is not None else self._own_secret

    async def _find(self, key: bytes | SignIn, *, is_safe: bool) -> Principal | None:
        """While the database is away, who was known looks on: at what was seen before, and changes nothing."""
        until, principal = self._remembered.get(key, (0.0, None))
        if principal is not None and until > time.monotonic():
            return principal
        try:
            found = await self._database.arun_one(tokens.find(key, is_noted=not self.settings.read_only))
        except BUSY:
            if principal is None or not is_safe or until + AWAY_SECONDS < time.monotonic():
                raise
            return principal
        if found is None:
            self._remembered.pop(key, None)
            return None
        if len(self._remembered) >= MOST_REMEMBERED:
            self._remembered.clear()
        if key in self._signed_out:
            return None
        self._remembered[key] = (time.monotonic() + FRESH_SECONDS, found)
        return found

    def _by_proxy(self, request: HTTPConnection) -> Principal | None:
        """A trusted proxy in front of the server has authenticated the user, and names them in a header."""
        header = self.settings.proxy_user_header
        name = request.headers.get(header, "") if header and is_by_trusted_proxy(request) else ""
        # The proxy may know people by a cookie, which their browser sends along with what another page asks.
        if not name.strip() or not self._is_from_here(request):
            return None
        return Principal(name[:200], self.settings.proxy_user_role)

    def _is_from_here(self, request: HTTPConnection) -> bool:
        """It only looks, or no page of another origin has sent it."""
        return request.scope.get("method") in SAFE or self._is_same_origin(request)

    def _is_same_origin(self, request: HTTPConnection) -> bool:
        """A page of another origin cannot make somebody's browser change things here."""
        site = request.headers.get("sec-fetch-site")
        if site is not None:
            return site in ("same-origin", "none")
        origin = request.headers.get("origin")
        return origin is None or origin == self._own_origin(request)

    def _own_origin(self, request: HTTPConnection) -> str:
        """As a browser writes it: with the scheme, so that a page without TLS is another origin than one with it."""
        host = request.headers.get("host", "")
        scheme, _, rest = (self.settings.public_url or "").partition("://")
        is_public = rest.partition("/")[0] == host
        return f"{scheme if is_public else request.scope.get('scheme', 'http')}://{host}"


def tenant_share(tenant: str) -> Share:
    """Return the share of a tenant. It is no text, so that no name of a user can equal it."""
    return ("the tenant", tenant)


def _is_local(request: HTTPConnection) -> bool:
    """Asked from this machine, by a name of it: a page elsewhere that resolves its own name to us is not let in."""
    try:
        named = urlsplit(f"//{request.headers.get('host', '')}").hostname
        comes_from_here = request.client is not None and ipaddress.ip_address(request.client.host).is_loopback
    except ValueError:
        return False
    return comes_from_here and not is_forwarded(request) and named in LOCAL


def current(request: Request) -> Principal:
    """Whom the doorkeeper has let in."""
    found: Any = request.state.principal
    assert isinstance(found, Principal)
    return found
