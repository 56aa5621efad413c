"""The partner's API: what is asked, and what each way to fail means for a job.

429: everybody waits as long as it says. 403, 404, 410: this merchant has left, and no retry helps. Else: later.
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
# The largest answer and the largest file that is taken from the partner.
MOST_JSON = 1_000_000
MOST_PACKED = 8_000_000

T = TypeVar("T")


class PartnerError(Exception):
    """It did not work this time."""


class Refused(Exception):  # noqa: N818 - named for what happened
    """This merchant is gone, or has taken our access away."""


class Report(msgspec.Struct):
    report: str


class State(msgspec.Struct):
    state: Literal["preparing", "ready", "failed"]


class Sale(msgspec.Struct):
    order: str
    amount: Decimal


class Partner:
    """One conversation about one merchant: `async with Partner("m-7") as partner`."""

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
        """Its number. Asked again with the same key, the partner answers with the report that it has begun."""
        headers = {"Idempotency-Key": key}
        body = await self._call("request", "POST", "/reports", json={"month": month}, headers=headers)
        return _read("request", body, Report).report

    async def wait_for(self, report: str) -> None:
        """Done when it is ready. Until then the job sleeps, and its slot is free."""
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
        """The body of a good answer. Where it leads us elsewhere, we do not follow."""
        async with self._session.request(method, self._home + path, allow_redirects=False, **sent) as response:
            _check(stage, response.status, response.headers)
            body = bytearray()
            async for chunk in response.content.iter_chunked(65536):
                body += chunk
                if len(body) > most:
                    raise PartnerError(f"{stage}: an answer of more than {most:,} bytes")
            return bytes(body)


def _check(stage: str, status: int, headers: Mapping[str, str]) -> None:
    """What the partner said in its answer is not repeated: it may be anything."""
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
        raise PartnerError(f"{stage}: an answer that is not what was agreed") from None


def _in_a_path(text: str) -> str:
    """As one part of a path; what would leave its place is refused."""
    if text in {"", ".", ".."}:
        raise Refused(f"{text!r} is no number of the partner's")
    return quote(text, safe="")
