"""The access token of our application at the partner: one for all jobs of a worker, renewed before it expires.

The partner allows twenty token requests a minute, so jobs share the token, and one of them renews it for all.
"""

import asyncio
from http import HTTPStatus
from time import monotonic

import aiohttp
import msgspec

from reconciliation import settings
from reconciliation.download import read_body
from reconciliation.errors import BadCredentials, PartnerError
from sereno import RetryAfter

# The limit of all calls to the partner; a 429 closes it.
LIMIT = "reconciliation.partner"
PATH = "/authentication/v1.0/oauth/token"
REFUSED = (HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
# Seconds before its end at which a token is renewed; a tenth of a short life.
MARGIN = 300.0
# Seconds in which refused credentials are not tried again.
REFUSED_FOR = 60.0
LONGEST_RESPONSE = 64 * 1024


class AccessToken(msgspec.Struct, rename="camel"):
    access_token: str
    expires_in: float


class TokenSource:
    """Holds the token and renews it. `session`: of the worker."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self._lock = asyncio.Lock()
        self._token = ""
        self._renew_at = 0.0
        self._refused_until = 0.0

    async def token(self, refused: str = "") -> str:
        """Return a valid token, and not the one that the partner has just refused."""
        async with self._lock:
            if self._token in {"", refused} or monotonic() >= self._renew_at:
                await self._renew()
            return self._token

    async def _renew(self) -> None:
        if monotonic() < self._refused_until:
            raise BadCredentials(_complaint("some seconds ago"))
        self._token = ""
        form = {
            "grantType": "client_credentials",
            "clientId": settings.CLIENT_ID,
            "clientSecret": settings.CLIENT_SECRET,
        }
        try:
            async with self._session.post(settings.PARTNER_URL + PATH, data=form, allow_redirects=False) as response:
                status, header = response.status, response.headers.get("Retry-After", "")
                body = await read_body("authentication", response, LONGEST_RESPONSE)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise PartnerError(f"authentication: {type(error).__name__}") from None
        if status in REFUSED:
            self._refused_until = monotonic() + REFUSED_FOR
            raise BadCredentials(_complaint(f"HTTP {status}"))
        if status == HTTPStatus.TOO_MANY_REQUESTS:
            raise RetryAfter.from_header(header, limit=LIMIT)
        self._read(status, body)

    def _read(self, status: int, body: bytes) -> None:
        try:
            read = msgspec.json.decode(body, type=AccessToken)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise PartnerError(f"authentication: HTTP {status} without a token") from None
        self._token = read.access_token
        self._renew_at = monotonic() + read.expires_in - min(MARGIN, read.expires_in / 10)


def _complaint(why: str) -> str:
    return (
        f"authentication: the partner refuses our credentials ({why}): "
        "check RECONCILIATION_CLIENT_ID and RECONCILIATION_CLIENT_SECRET, then retry the job"
    )
