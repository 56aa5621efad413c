"""The client of the partner's merchant API, and what each kind of error means for a job.

401: once with a new token, then the merchant has revoked our access. 403, 404, 410: the merchant has left; permanent.
429: all jobs wait for Retry-After. Other errors: retried.
"""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import quote

import aiohttp
import msgspec

from reconciliation import settings
from reconciliation.download import read_body
from reconciliation.errors import PartnerError, Refused
from reconciliation.oauth import LIMIT, TokenSource
from sereno import RetryAfter, Snooze

GONE = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND, HTTPStatus.GONE)
PATIENCE = aiohttp.ClientTimeout(total=60, connect=10)
# The largest JSON response in bytes, and the most pages of a list.
MOST_JSON = 4_000_000
MOST_PAGES = 100
# The partner repeats a request's id for six hours; without the id there is nothing to poll.
CONFLICT_WAIT = "30m"
_REQUEST_ID = re.compile(rb'(?:[Rr]equest ?[Ii]d|"id")\W{1,5}([0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12})')
FAILED = ("error", "failed", "expired")

T = TypeVar("T")


class RequestedReport(msgspec.Struct, rename="camel"):
    request_id: str


class ReportTotals(msgspec.Struct):
    """What the partner announces about a file: lines, and different orders in them; None if it does not."""

    lines: int | None = None
    orders: int | None = None


class ReportState(msgspec.Struct, rename="camel"):
    """A requested report. The link has two names in the partner's documentation."""

    status: str = ""
    download_path: str | None = None
    file_path: str | None = None
    error_message: str | None = None
    metadata: dict[str, Any] | None = None

    @property
    def link(self) -> str | None:
        return self.download_path or self.file_path

    @property
    def totals(self) -> ReportTotals:
        return ReportTotals(self._total("total_linhas"), self._total("total_pedido_associado_ifood"))

    def _total(self, name: str) -> int | None:
        value = str((self.metadata or {}).get(name))
        return int(value) if value.isdecimal() else None


class GrossValue(msgspec.Struct, rename="camel"):
    bag: Decimal = Decimal(0)
    delivery_fee: Decimal = Decimal(0)
    service_fee: Decimal = Decimal(0)


class BillingSummary(msgspec.Struct, rename="camel"):
    sale_balance: Decimal = Decimal(0)


class Sale(msgspec.Struct, rename="camel"):
    id: str
    current_status: str = ""
    sale_gross_value: GrossValue = msgspec.field(default_factory=GrossValue)
    billing_summary: BillingSummary = msgspec.field(default_factory=BillingSummary)

    @property
    def gross(self) -> Decimal:
        value = self.sale_gross_value
        return value.bag + value.delivery_fee + value.service_fee


class SalesPage(msgspec.Struct, rename="camel"):
    page: int = 1
    page_count: int = 1
    sales: list[Sale] | None = None


class Partner:
    """The merchants of our application, over one HTTP session."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self._tokens = TokenSource(session)

    async def request_report(self, merchant: str, competence: str) -> str:
        """Return the id of a requested report. While a recent request is valid the partner returns 409, with its id."""
        path, body = f"{_financial(merchant)}/reconciliation/on-demand", {"competence": competence}
        status, content = await self._call("request", "POST", path, json=body)
        if status != HTTPStatus.CONFLICT:
            return _read("request", content, RequestedReport).request_id
        if known := _REQUEST_ID.search(content):
            return known[1].decode()
        raise Snooze(CONFLICT_WAIT, reason="the partner already prepares this report, and did not return its id")

    async def report(self, merchant: str, request: str) -> ReportState:
        """Return the finished report; without a link, the month has no entries. Until then the job is snoozed."""
        path = f"{_financial(merchant)}/reconciliation/on-demand/{_in_a_path(request)}"
        status, content = await self._call("poll", "GET", path)
        # A request that the partner has not stored yet is 404.
        state = ReportState() if status == HTTPStatus.NOT_FOUND else _read("poll", content, ReportState)
        if state.link:
            return state
        if state.status not in FAILED:
            raise Snooze(settings.POLL_EVERY, reason="the partner is preparing the report")
        reason = state.error_message or "no reason given"
        if "no financial entries" not in reason.lower():
            raise Refused(f"poll: the partner could not make this report: {reason:.200}")
        return state

    async def sales(self, merchant: str, day: str) -> list[Sale]:
        """Return the sales of a day on the merchant's calendar."""
        found: dict[str, Sale] = {}
        # The first page is read without a number, because its documentation counts from 0 and from 1.
        params: dict[str, Any] = {"beginSalesDate": day, "endSalesDate": day}
        for read in range(1, MOST_PAGES + 1):
            status, content = await self._call("sales", "GET", f"{_financial(merchant)}/sales", params=params)
            if status == HTTPStatus.NO_CONTENT:
                break
            page = _read("sales", content, SalesPage)
            found |= {sale.id: sale for sale in page.sales or ()}
            if read >= page.page_count:
                break
            params["page"] = page.page + 1
        return list(found.values())

    async def _call(self, stage: str, method: str, path: str, **sent: Any) -> tuple[int, bytes]:
        """Return status and body of a usable response. Redirects are not followed."""
        token = await self._tokens.token()
        status, body = await self._send(stage, method, path, token, **sent)
        if status == HTTPStatus.UNAUTHORIZED:
            token = await self._tokens.token(refused=token)
            status, body = await self._send(stage, method, path, token, **sent)
        is_expected = (stage, status) in {("request", HTTPStatus.CONFLICT), ("poll", HTTPStatus.NOT_FOUND)}
        if status in GONE and not is_expected:
            raise Refused(f"{stage}: HTTP {status}{' with a new token' * (status == HTTPStatus.UNAUTHORIZED)}")
        if not HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES and not is_expected:
            raise PartnerError(f"{stage}: HTTP {status}")
        return status, body

    async def _send(self, stage: str, method: str, path: str, token: str, **sent: Any) -> tuple[int, bytes]:
        """Return status and body. The body of an error is untrusted and not part of a message."""
        headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        try:
            async with self._session.request(
                method, settings.PARTNER_URL + path, headers=headers, allow_redirects=False, **sent
            ) as response:
                if response.status == HTTPStatus.TOO_MANY_REQUESTS:
                    raise RetryAfter.from_header(response.headers.get("Retry-After", ""), limit=LIMIT)
                return response.status, await read_body(stage, response, MOST_JSON)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise PartnerError(f"{stage}: {type(error).__name__}") from None


@asynccontextmanager
async def open_partner() -> AsyncIterator[Partner]:
    """Open the HTTP session that the jobs of a worker share, and its token."""
    async with aiohttp.ClientSession(timeout=PATIENCE, cookie_jar=aiohttp.DummyCookieJar()) as session:
        yield Partner(session)


def _financial(merchant: str) -> str:
    return f"/financial/v3.0/merchants/{_in_a_path(merchant)}"


def _read(stage: str, body: bytes, wanted: type[T]) -> T:
    """Decode a response. Some are documented as an object and as a list of one."""
    try:
        if body.lstrip()[:1] == b"[":
            return msgspec.json.decode(body, type=tuple[wanted], strict=False)[0]  # type: ignore[valid-type]
        return msgspec.json.decode(body, type=wanted, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise PartnerError(f"{stage}: a response with an unexpected structure") from None


def _in_a_path(text: str) -> str:
    """Quote a path segment; refuse one that would change the path."""
    if text in {"", ".", ".."}:
        raise Refused(f"{text!r} is not an id of the partner")
    return quote(text, safe="")
