"""Local stand-ins for mercadopublico.cl: its search page and its API, in their real shapes, with injectable faults.

Expo is `sereno.testing.expo.ExpoProvider`.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import parse_qs, urlsplit

from aiohttp import web

from sereno.testing.provider import Provider, Request
from tenders import chilecompra, samples, search_page
from tenders.samples import REGIONS, Record
from tenders.tender import CHILE


@dataclass
class Authority:
    """Publishes tenders; the search page and the API serve them."""

    # A clock that tests may move.
    now: Callable[[], datetime] = lambda: datetime.now(CHILE)
    tenders: list[Record] = field(default_factory=list)

    def publish(
        self, *, region: str | None = None, amount: object = None, category: str = "72141000", kind: str = "LE"
    ) -> str:
        """Publish one more tender; return its code."""
        number = len(self.tenders) + 1
        chosen = region or list(REGIONS)[number % len(REGIONS)]
        price = 1_000_000.0 * number if amount is None else amount
        self.tenders.append(
            samples.record(number, self.today(), region=chosen, amount=price, category=category, kind=kind)
        )
        code: str = self.tenders[-1]["CodigoExterno"]
        return code

    def today(self) -> datetime:
        return self.now().astimezone(CHILE)

    def of_day(self, day: str) -> list[Record]:
        """Return the tenders of a day that is written as 30112026."""
        return [each for each in self.tenders if _published(each).strftime("%d%m%Y") == day]


def _published(of: Record) -> datetime:
    return datetime.fromisoformat(of["Fechas"]["FechaPublicacion"])


class PausableSource(Provider):
    """While `open` is cleared, requests wait until it is set again."""

    def __init__(self, authority: Authority) -> None:
        super().__init__()
        self.authority = authority
        self.open = asyncio.Event()
        self.open.set()


class SearchPage(PausableSource):
    """Ten tenders a page, newest first. `redesigned`: the blocks have other classes."""

    redesigned = False

    async def answer(self, request: Request) -> web.StreamResponse:
        await self.open.wait()
        if request.method != "POST" or request.path != search_page.PATH:
            return web.Response(status=404)
        first = request.json()["pagina"] * search_page.A_PAGE
        found = self.authority.tenders[::-1][first : first + search_page.A_PAGE]
        text = samples.results([samples.block(each) for each in found], len(self.authority.tenders))
        if self.redesigned:
            text = text.replace("lic-bloq", "tender-card").replace("n-result", "total")
        return web.Response(text=text, content_type="text/html")


class Api(PausableSource):
    """Lists of a day and details of a tender, for requests with the right ticket, one at a time.

    `no_details`: codes whose details are withheld. `details_open`: like `open`, for details alone. `refused`: how many
    requests came while another one was being answered. `refuse`: answers the next requests as if they had. `latency`:
    seconds of an answer.
    """

    def __init__(self, authority: Authority, ticket: str = "") -> None:
        super().__init__(authority)
        self.ticket = ticket
        self.no_details: set[str] = set()
        self.details_open = asyncio.Event()
        self.details_open.set()
        self.refused = 0
        self.refuse = 0
        self.latency = 0.0
        self._is_answering = False

    async def answer(self, request: Request) -> web.StreamResponse:
        query = {name: values[0] for name, values in parse_qs(urlsplit(request.path).query).items()}
        if not request.path.startswith(chilecompra.PATH):
            return web.Response(status=404)
        if query.get("ticket", "") != self.ticket:
            return web.json_response({"Codigo": 203, "Mensaje": "Ticket no válido."}, status=203)
        if self._is_answering or self.refuse:
            self.refused += 1
            self.refuse = max(0, self.refuse - 1)
            text = "Lo sentimos. Hemos detectado que existen peticiones simultáneas."
            return web.json_response({"Codigo": 10500, "Mensaje": text}, status=429)
        self._is_answering = True
        try:
            await (self.details_open if "codigo" in query else self.open).wait()
            await asyncio.sleep(self.latency)
            return self._found(query)
        finally:
            self._is_answering = False

    def _found(self, query: dict[str, str]) -> web.Response:
        if code := query.get("codigo"):
            found = [each for each in self.authority.tenders if each["CodigoExterno"] == code]
            found = [] if code in self.no_details else found
        else:
            states = (5,) if query.get("estado") == "publicada" else range(20)
            of_day = self.authority.of_day(query.get("fecha", ""))
            found = [samples.listed(each) for each in of_day if each["CodigoEstado"] in states]
        # A list of one is that one.
        listed = found[0] if len(found) == 1 else found
        return web.json_response(samples.answer(listed, len(found), self.authority.today()))
