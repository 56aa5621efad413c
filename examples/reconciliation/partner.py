"""The client of the partner's API, and what each kind of error means for a job.

429: all jobs wait for Retry-After. 403, 404, 410: the merchant has left, permanent. Other errors: retried.
"""

from collections.abc import Mapping
from decimal import Decimal
from http import HTTPStatus
from types import TracebackType
from typing import Any, Literal, Self, TypeVar
from urllib.parse import quote

import aiohttp
import msgspec

from reconciliation import settings
from sereno import RetryAfter, Snooze

LIMIT = "reconciliation.partner"
GONE = (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND, HTTPStatus.GONE)
PATIENCE = aiohttp.ClientTimeout(total=60, connect=10)
# The largest JSON response and the largest file accepted from the partner, in bytes.
MOST_JSON = 1_000_000
MOST_PACKED = 8_000_000

T = TypeVar("T")


class PartnerError(Exception):
    """A retryable error of the partner."""


class Refused(Exception):  # noqa: N818 - named for what happened
    """The merchant is gone, or has revoked our access."""


class Report(msgspec.Struct):
    report: str


class State(msgspec.Struct):
    state: Literal["preparing", "ready", "failed"]


class Sale(msgspec.Struct):
    order: str
    amount: Decimal


class Partner:
    """A client session for one merchant: `async with Partner("m-7") as partner`."""

    def __init__(self, merchant: str) -> None:
        self._home = f"{settings.PARTNER_URL}/merchants/{_in_a_path(merchant)}"
        self._session = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {settings.PARTNER_TOKEN}"}, timeout=PATIENCE
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def request_report(self, month: str, key: str) -> str:
        """Return the report's id. For the same key the partner returns the report that it has already begun."""
        headers = {"Idempotency-Key": key}
        body = await self._call("request", "POST", "/reports", json={"month": month}, headers=headers)
        return _read("request", body, Report).report

    async def wait_for(self, report: str) -> None:
        """Return when the report is ready. Until then the job is snoozed and holds no slot."""
        state = _read("poll", await self._call("poll", "GET", f"/reports/{_in_a_path(report)}"), State).state
        if state == "preparing":
            raise Snooze(settings.POLL_EVERY, reason="the partner is preparing the report")
        if state == "failed":
            raise Refused("poll: the partner could not make this report")

    async def download(self, report: str) -> bytes:
        return await self._call("download", "GET", f"/reports/{_in_a_path(report)}/file", most=MOST_PACKED)

    async def sales(self, day: str) -> list[Sale]:
        return _read("sales", await self._call("sales", "GET", "/sales", params={"day": day}), list[Sale])

    async def _call(self, stage: str, method: str, path: str, *, most: int = MOST_JSON, **sent: Any) -> bytes:
        """Return the body of a successful response. Redirects are not followed."""
        async with self._session.request(method, self._home + path, allow_redirects=False, **sent) as response:
            _check(stage, response.status, response.headers)
            body = bytearray()
            async for chunk in response.content.iter_chunked(65536):
                body += chunk
                if len(body) > most:
                    raise PartnerError(f"{stage}: a response of more than {most:,} bytes")
            return bytes(body)


def _check(stage: str, status: int, headers: Mapping[str, str]) -> None:
    """Raise for an error status. The response body is untrusted and not part of the message."""
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        raise RetryAfter.from_header(headers.get("Retry-After", ""), limit=LIMIT)
    if status in GONE:
        raise Refused(f"{stage}: HTTP {status}")
    if not 200 <= status < 300:
        raise PartnerError(f"{stage}: HTTP {status}")


def _read(stage: str, body: bytes, wanted: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=wanted)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise PartnerError(f"{stage}: a response with an unexpected structure") from None


def _in_a_path(text: str) -> str:
    """Quote a path segment; refuse one that would change the path."""
    if text in {"", ".", ".."}:
        raise Refused(f"{text!r} is not an id of the partner")
    return quote(text, safe="")
