"""Access tokens of Google for a service account (RFC 7523): cached until they expire, requested once for many.

A request for a token sends no message, so each of its failures is Retryable, or Down if the account is refused.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import msgspec

from sereno.channels.contract import Exchange
from sereno.channels.http import HTTPResponse, call, refused
from sereno.channels.jwt import rs256
from sereno.channels.outcome import Down, Outcome, Retryable, Unknown
from sereno.channels.single_message import (
    ChannelSettings,
    Token,
    Url,
    fields,
    number,
    provider_text,
    without_secrets,
)

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
# Seconds for which a signed request is valid: the longest that Google allows.
REQUEST_LIFE = 3600
# Seconds before its end when a token is replaced: a request that waits must still find it valid.
EARLY = 300
# Service accounts whose tokens are cached.
MOST_ACCOUNTS = 1000


class ServiceAccount(ChannelSettings, frozen=True, kw_only=True):
    """The fields of a service account's file that are needed to obtain a token."""

    token_uri: Url = "https://oauth2.googleapis.com/token"  # noqa: S105 - a URL
    client_email: Token = ""
    private_key: str = ""
    private_key_id: str = ""

    def lacks(self) -> str:
        if not self.client_email:
            return "client_email"
        return "" if self.private_key else "private_key"


class AccessToken(msgspec.Struct, frozen=True):
    value: str
    # Seconds since the epoch.
    until: float

    def __repr__(self) -> str:
        return "AccessToken(…)"


class _Account(msgspec.Struct):
    """What is known of a service account. `has_succeeded`: a message was accepted with it."""

    token: AccessToken | None = None
    request: "asyncio.Task[AccessToken | Outcome] | None" = None
    has_succeeded: bool = False


class GoogleTokens:
    """The access tokens of service accounts for one scope."""

    def __init__(self, scope: str, now: Callable[[], float]) -> None:
        self._scope = scope
        self._now = now
        self._accounts: OrderedDict[tuple[str, ...], _Account] = OrderedDict()

    async def get(self, settings: ServiceAccount, exchange: Exchange) -> AccessToken | Outcome:
        """Return a token. All who need one at the same time wait for the same request."""
        account = self._account(settings)
        if account.token is not None and self._now() < account.token.until:
            return account.token
        request = account.request
        # One of another event loop cannot be awaited here.
        if request is None or request.done() or request.get_loop() is not asyncio.get_running_loop():
            request = account.request = asyncio.create_task(self._request(settings, exchange, account))
        # One who no longer waits must not cancel it for the others.
        return await asyncio.shield(request)

    def drop(self, settings: ServiceAccount, token: AccessToken) -> None:
        """Forget a refused token, unless it was replaced already."""
        account = self._account(settings)
        if account.token is token:
            account.token = None

    def mark_success(self, settings: ServiceAccount) -> None:
        self._account(settings).has_succeeded = True

    def has_succeeded(self, settings: ServiceAccount) -> bool:
        return self._account(settings).has_succeeded

    def _account(self, settings: ServiceAccount) -> _Account:
        key = tuple(str(getattr(settings, name)) for name in settings.__struct_fields__)
        account = self._accounts.setdefault(key, _Account())
        self._accounts.move_to_end(key)
        if len(self._accounts) > MOST_ACCOUNTS:
            self._accounts.popitem(last=False)
        return account

    async def _request(self, settings: ServiceAccount, exchange: Exchange, account: _Account) -> AccessToken | Outcome:
        now = self._now()
        claims = {
            "iss": settings.client_email,
            "scope": self._scope,
            "aud": settings.token_uri,
            "iat": int(now),
            "exp": int(now) + REQUEST_LIFE,
        }
        try:
            assertion = rs256(rsa_key(settings.private_key), claims, {"kid": settings.private_key_id})
        except ValueError as error:
            return Down("bad_settings", str(error))
        form = urlencode({"grant_type": GRANT, "assertion": assertion}).encode()
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        response = await call(exchange, "POST", settings.token_uri, data=form, headers=headers)
        outcome = _token(response, now) if isinstance(response, HTTPResponse) else response
        if isinstance(outcome, AccessToken):
            account.token = outcome
            return outcome
        if isinstance(outcome, Unknown):
            outcome = Retryable(outcome.code, outcome.message)
        return without_secrets(outcome, (assertion,))


def _token(response: HTTPResponse, now: float) -> AccessToken | Retryable | Down:
    """Return the token in a response, or why there is none."""
    body = fields(response.json())
    if response.is_ok:
        value, seconds = body.get("access_token"), number(body.get("expires_in"))
        if seconds is None or not isinstance(value, str) or not value.isascii() or not value.isprintable() or not value:
            return Retryable("no_access_token", "the response of the token server has no token")
        return AccessToken(value, now + max(seconds - EARLY, seconds / 2))
    outcome, error = refused(response), provider_text(body.get("error"))
    if isinstance(outcome, Retryable):
        return outcome
    text = provider_text(body.get("error_description")) or f"the token server responds with {response.status}"
    return Down(error or f"http_{response.status}", text)


def rsa_key(pem: str) -> "RSAPrivateKey":
    """Load the key of a service account; ValueError without its text for anything else."""
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415 - an extra, needed only to sign
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey  # noqa: PLC0415 - the same
    from cryptography.hazmat.primitives.serialization import load_pem_private_key  # noqa: PLC0415 - the same

    try:
        key = load_pem_private_key(pem.encode(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, RSAPrivateKey):
        raise ValueError("private_key must be the RSA key of a service account, as PEM")  # noqa: TRY004 - one refusal
    return key
