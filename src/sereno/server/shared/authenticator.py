"""Authentication and authorization: who sends a request, what they may do, and whose data they see."""

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

from sereno.access import authentication
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
# Seconds that a sign-in lasts.
SIGNED_IN_SECONDS = 12 * 3600
# Seconds for which a token that was found is cached: a revoked one works for that long.
FRESH_SECONDS = 5.0
# While the database is unavailable, seconds for which a cached token may still read.
AWAY_SECONDS = 600.0
MOST_REMEMBERED = 1000
# Sign-outs that this server remembers, of about a hundred bytes each.
MOST_SIGNED_OUT = 10_000
# Whose share of the database reads a request uses: one user's, or one tenant's with all its tokens. None: the server's.
Share = str | tuple[str, str]
CURRENT_SHARE: ContextVar[Share | None] = ContextVar("share", default=None)
LOCAL = ("localhost", "127.0.0.1", "::1")
SAFE = ("GET", "HEAD", "OPTIONS")
ELSEWHERE = "this was sent by a page of another origin"
_BEARER = re.compile(r"[Bb]earer +(\S+)")

# The sign-in of the application in which the server is mounted; it returns None for an unknown user.
Authenticate = Callable[[HTTPConnection], Awaitable[Principal | None]]


class Authenticator:
    """Finds out who sends a request. `is_open`: requests from this machine need no token."""

    def __init__(self, database: Database, *, authenticate: Authenticate | None = None, is_open: bool = False) -> None:
        self._database = database
        self._authenticate = authenticate
        self._is_open = is_open
        self._remembered: dict[bytes | SignIn, tuple[float, Principal]] = {}
        # Sign-ins that ended at this server, oldest first: this takes effect at once, also on a read-only server.
        self._signed_out: dict[SignIn, None] = {}
        self._own_secret = secrets.token_bytes(32)
        self._checked_at = time.monotonic()

    @property
    def settings(self) -> Settings:
        return self._database.settings

    @property
    def is_elsewhere(self) -> bool:
        """Return whether people sign in to the surrounding application, and not here."""
        return self._authenticate is not None

    async def who(self, request: HTTPConnection) -> Principal | None:
        """Return who sends a request, by the surrounding application, a trusted proxy, a token or a cookie."""
        found = _BEARER.fullmatch(request.headers.get("authorization", ""))
        if self._authenticate is not None:
            # The application may know people by a cookie, which their browser also sends with requests of other pages.
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
        """Return whose token it is, or None when it is not valid."""
        hashed = token_hash(token)
        return None if hashed is None else await self._find(hashed, is_safe=is_safe)

    def check_origin(self, request: HTTPConnection) -> None:
        """403 for a request that a page of another origin has sent."""
        if not self._is_same_origin(request):
            raise HTTPError(HTTPStatus.FORBIDDEN, ELSEWHERE)

    def is_encrypted(self, request: HTTPConnection) -> bool:
        """Return whether the browser speaks TLS, also where a proxy speaks to the server in the clear."""
        return request.scope.get("scheme") == "https" or (self.settings.public_url or "").startswith("https:")

    def cookie_name(self, request: HTTPConnection) -> str:
        """Return the one name under which a cookie counts for this request."""
        return SECURE_COOKIE if self.is_encrypted(request) else COOKIE

    def cookie(self, principal: Principal) -> str | None:
        """Return a cookie for a user who has presented a token."""
        if principal.token is None:
            return None
        return make_cookie(self._secret, principal.token, int(time.time()) + SIGNED_IN_SECONDS)

    def _sign_in(self, request: HTTPConnection) -> SignIn | None:
        return read_cookie(self._secret, request.cookies.get(self.cookie_name(request), ""), time.time())

    async def sign_out(self, request: HTTPConnection) -> None:
        """End the sign-in of this request's cookie: every copy of the cookie stops working, too.

        A read-only server holds this in memory, so it lasts there until a restart.
        """
        sign_in = self._sign_in(request)
        if sign_in is None:
            return
        self._signed_out[sign_in] = None
        self._remembered.pop(sign_in, None)
        if len(self._signed_out) > MOST_SIGNED_OUT:
            del self._signed_out[next(iter(self._signed_out))]
        if not self.settings.read_only:
            await self._database.arun_one(authentication.sign_out(sign_in))

    async def check(self, request: Request, role: Role, *, of_tenants: bool) -> Principal:
        """Return who sends the request, if they have the role. 401 when unknown, 403 without the role."""
        principal = await self.who(request)
        if principal is None:
            raise HTTPError(
                HTTPStatus.UNAUTHORIZED,
                "a token is required: Authorization: Bearer srn_…; "
                "create one with `sereno token create me --role operator`",
                {"WWW-Authenticate": "Bearer"},
            )
        if self.settings.read_only and role != "viewer" and request.method not in SAFE:
            raise HTTPError(HTTPStatus.FORBIDDEN, "this server is read-only: SERENO_READ_ONLY is set")
        if not principal.may(role):
            raise HTTPError(HTTPStatus.FORBIDDEN, f"{principal.name} is {principal.role}; this needs {role}")
        if principal.tenant is not None and not of_tenants:
            raise HTTPError(HTTPStatus.FORBIDDEN, f"{principal.name} can access only the tenant {principal.tenant}")
        CURRENT_SHARE.set(principal.actor if principal.tenant is None else tenant_share(principal.tenant))
        return principal

    async def _is_still_open(self) -> bool:
        """Return whether no token was ever created. Once closed it stays closed, even when that token is revoked."""
        if self._checked_at + FRESH_SECONDS < time.monotonic():
            with suppress(*BUSY):
                self._is_open = not (await self._database.arun_one(authentication.token_status())).was_created
            self._checked_at = time.monotonic()
        return self._is_open

    @property
    def _secret(self) -> bytes:
        """Return the key of cookies. Without the setting, everyone has to sign in again after a restart."""
        return self.settings.secret.encode() if self.settings.secret is not None else self._own_secret

    async def _find(self, key: bytes | SignIn, *, is_safe: bool) -> Principal | None:
        """Return the owner. While the database is unavailable, a cached user may still read, from caches."""
        until, principal = self._remembered.get(key, (0.0, None))
        if principal is not None and until > time.monotonic():
            return principal
        try:
            found = await self._database.arun_one(
                authentication.find_principal(key, is_noted=not self.settings.read_only)
            )
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
        """Return the user whom a trusted proxy in front of the server has authenticated and names in a header."""
        header = self.settings.proxy_user_header
        name = request.headers.get(header, "") if header and is_by_trusted_proxy(request) else ""
        # The proxy may know people by a cookie, which their browser also sends with requests of other pages.
        if not name.strip() or not self._is_from_here(request):
            return None
        return Principal(name[:200], self.settings.proxy_user_role)

    def _is_from_here(self, request: HTTPConnection) -> bool:
        """Return whether the request only reads, or was not sent by a page of another origin."""
        return request.scope.get("method") in SAFE or self._is_same_origin(request)

    def _is_same_origin(self, request: HTTPConnection) -> bool:
        """Return whether a page of this server sent the request: other pages must not make a browser change data."""
        site = request.headers.get("sec-fetch-site")
        if site is not None:
            return site in ("same-origin", "none")
        origin = request.headers.get("origin")
        return origin is None or origin == self._own_origin(request)

    def _own_origin(self, request: HTTPConnection) -> str:
        """Return the origin as a browser writes it: with the scheme, so pages with and without TLS differ."""
        host = request.headers.get("host", "")
        scheme, _, rest = (self.settings.public_url or "").partition("://")
        is_public = rest.partition("/")[0] == host
        return f"{scheme if is_public else request.scope.get('scheme', 'http')}://{host}"


def tenant_share(tenant: str) -> Share:
    """Return the share of a tenant: a tuple, so that no user name can equal it."""
    return ("the tenant", tenant)


def _is_local(request: HTTPConnection) -> bool:
    """Return whether the request comes from this machine, by a local host name (against DNS rebinding)."""
    try:
        named = urlsplit(f"//{request.headers.get('host', '')}").hostname
        comes_from_here = request.client is not None and ipaddress.ip_address(request.client.host).is_loopback
    except ValueError:
        return False
    return comes_from_here and not is_forwarded(request) and named in LOCAL


def current(request: Request) -> Principal:
    """Return the principal that `Authenticator.check` has accepted."""
    found: Any = request.state.principal
    assert isinstance(found, Principal)
    return found
