"""The two sources of tenders: the public web page and the API. Either may be down or return invalid data."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import date
from html.parser import HTMLParser
from http import HTTPStatus

import aiohttp
import msgspec

from tenders.settings import setting
from tenders.tender import Tender, read

LARGEST_RESPONSE = 4 * 1024 * 1024
TIMEOUT = aiohttp.ClientTimeout(total=20)
# Seconds for all lists together: tenders found on the page must not wait for a slow API.
LISTS_WITHIN = 60.0
MOST_OF_PAGE = 20
# Upper bound in seconds for a source's Retry-After.
LONGEST_WAIT = 300.0


class Unavailable(Exception):  # noqa: N818 - named for what happened
    """A source failed or returned invalid data. The message never contains the URL, which contains our ticket.

    `after`: the source's Retry-After in seconds, if it sent one.
    """

    def __init__(self, message: str, after: str = "") -> None:
        super().__init__(message)
        self.after = min(float(after), LONGEST_WAIT) if after.isdecimal() else None


async def newest() -> list[Tender]:
    """Return the newest tenders of the page, which has no amounts."""
    page = _Rows()
    page.feed((await _get("the page", setting("PAGE_URL"), {})).decode("utf-8", "replace"))
    if not page.is_table:
        raise Unavailable("the page has no table of tenders")
    found = [
        read(row.get("code", ""), row.get("title"), region=row.get("region"), closes=row.get("closes"))
        for row in page.rows[:MOST_OF_PAGE]
    ]
    return [tender for tender in found if tender]


async def of_days(days: Sequence[date]) -> list[Tender]:
    """Return the API's lists of these days: codes, titles and closing times."""
    found: list[msgspec.Raw] = []
    try:
        async with asyncio.timeout(LISTS_WITHIN):
            for day in days:
                found += await _request({"fecha": day.strftime("%d%m%Y")})
    except TimeoutError:
        raise Unavailable("the API is too slow for its lists") from None
    return [tender for item in found if (tender := _tender(item))]


async def details(code: str) -> Tender:
    """Return the API's full record of one tender."""
    found = [tender for item in await _request({"codigo": code}) if (tender := _tender(item)) and tender.code == code]
    if not found:
        raise Unavailable(f"the API does not know {code}")
    return found[0]


class _Buyer(msgspec.Struct, rename="pascal"):
    nombre_organismo: str | None = None
    region_unidad: str | None = None


class _Item(msgspec.Struct, rename="pascal"):
    codigo_externo: str
    nombre: str
    fecha_cierre: str | None = None
    monto_estimado: float | None = None
    comprador: _Buyer = msgspec.field(default_factory=_Buyer)


class _ListResponse(msgspec.Struct, rename="pascal"):
    listado: list[msgspec.Raw]


async def _request(query: Mapping[str, str]) -> list[msgspec.Raw]:
    url = f"{setting('API_URL')}/servicios/v1/publico/licitaciones.json"
    body = await _get("the API", url, {**query, "ticket": setting("API_TICKET")})
    try:
        return msgspec.json.decode(body, type=_ListResponse).listado
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise Unavailable("the API did not return a list") from None


def _tender(raw: msgspec.Raw) -> Tender | None:
    """Return None for an invalid item, so that the rest of the list is still read."""
    try:
        item = msgspec.json.decode(raw, type=_Item)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return read(
        item.codigo_externo,
        item.nombre,
        region=item.comprador.region_unidad,
        buyer=item.comprador.nombre_organismo,
        amount=item.monto_estimado,
        closes=item.fecha_cierre,
    )


async def _get(name: str, url: str, query: Mapping[str, str]) -> bytes:
    try:
        async with (
            aiohttp.ClientSession(timeout=TIMEOUT) as session,
            session.get(url, params=query, allow_redirects=False) as response,
        ):
            if response.status != HTTPStatus.OK:
                raise Unavailable(f"{name} returned HTTP {response.status}", response.headers.get("Retry-After", ""))
            body = bytearray()
            async for chunk in response.content.iter_chunked(64 * 1024):
                body += chunk
                if len(body) > LARGEST_RESPONSE:
                    raise Unavailable(f"{name} returned more than {LARGEST_RESPONSE:,} bytes")
            return bytes(body)
    except (aiohttp.ClientError, TimeoutError) as error:
        raise Unavailable(f"{name} did not respond: {type(error).__name__}") from None


class _Rows(HTMLParser):
    """Parses `<table id="tenders">`: a row for each tender; a cell's class names its field."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[dict[str, str]] = []
        self.is_table = False
        self._cell: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.is_table = self.is_table or (tag == "table" and given.get("id") == "tenders")
        if tag == "tr" and self.is_table:
            self.rows.append({})
        if tag == "td" and self.rows:
            self._cell = given.get("class")

    def handle_endtag(self, tag: str) -> None:
        if tag == "td":
            self._cell = None

    def handle_data(self, data: str) -> None:
        if self._cell:
            self.rows[-1][self._cell] = self.rows[-1].get(self._cell, "") + data
