"""The two sources: the page that people read, and the API. Either may be down, or talk nonsense."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import date
from html.parser import HTMLParser
from http import HTTPStatus

import aiohttp
import msgspec

from tenders.settings import setting
from tenders.tender import Tender, read

LARGEST_ANSWER = 4 * 1024 * 1024
TIMEOUT = aiohttp.ClientTimeout(total=20)
# All lists together, in seconds: what the page has found must not wait for them for ever.
LISTS_WITHIN = 60.0
MOST_OF_PAGE = 20
# Of a source that asks us to wait, we wait no longer than so many seconds before we look again.
LONGEST_WAIT = 300.0


class Unavailable(Exception):  # noqa: N818 - named for what happened
    """A source did not answer as it should. Its text never holds the address, which holds our ticket.

    `after`: not before so many seconds, if it said so.
    """

    def __init__(self, words: str, after: str = "") -> None:
        super().__init__(words)
        self.after = min(float(after), LONGEST_WAIT) if after.isdecimal() else None


async def newest() -> list[Tender]:
    """The page: the newest tenders, without their amounts."""
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
    """The API's lists of these days: codes, titles and closing times."""
    found: list[msgspec.Raw] = []
    try:
        async with asyncio.timeout(LISTS_WITHIN):
            for day in days:
                found += await _ask({"fecha": day.strftime("%d%m%Y")})
    except TimeoutError:
        raise Unavailable("the API is too slow for its lists") from None
    return [tender for item in found if (tender := _tender(item))]


async def details(code: str) -> Tender:
    """All that the API knows of one tender."""
    found = [tender for item in await _ask({"codigo": code}) if (tender := _tender(item)) and tender.code == code]
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


class _Answer(msgspec.Struct, rename="pascal"):
    listado: list[msgspec.Raw]


async def _ask(question: Mapping[str, str]) -> list[msgspec.Raw]:
    url = f"{setting('API_URL')}/servicios/v1/publico/licitaciones.json"
    body = await _get("the API", url, {**question, "ticket": setting("API_TICKET")})
    try:
        return msgspec.json.decode(body, type=_Answer).listado
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise Unavailable("the API answered something else than a list") from None


def _tender(raw: msgspec.Raw) -> Tender | None:
    """One that makes no sense is left out; the others of the list are read."""
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


async def _get(name: str, url: str, question: Mapping[str, str]) -> bytes:
    try:
        async with (
            aiohttp.ClientSession(timeout=TIMEOUT) as session,
            session.get(url, params=question, allow_redirects=False) as response,
        ):
            if response.status != HTTPStatus.OK:
                raise Unavailable(f"{name} answered {response.status}", response.headers.get("Retry-After", ""))
            body = bytearray()
            async for chunk in response.content.iter_chunked(64 * 1024):
                body += chunk
                if len(body) > LARGEST_ANSWER:
                    raise Unavailable(f"{name} answered more than {LARGEST_ANSWER:,} bytes")
            return bytes(body)
    except (aiohttp.ClientError, TimeoutError) as error:
        raise Unavailable(f"{name} did not answer: {type(error).__name__}") from None


class _Rows(HTMLParser):
    """`<table id="tenders">`: a row for each tender, a cell's class says what is in it."""

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
