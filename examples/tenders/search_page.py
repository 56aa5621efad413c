"""The search page of mercadopublico.cl: ten tenders a page, newest first, as a fragment of HTML.

The form of the site posts JSON and shows the blocks that come back. They have neither region nor categories.
"""

import asyncio
import re
from datetime import date
from html.parser import HTMLParser
from typing import Any

from tenders.settings import setting
from tenders.source import Reading, Unavailable, request
from tenders.tender import Tender, moment_of, read

PATH = "/BuscarLicitacion/Home/Buscar"
# Seconds for all pages together.
PAGES_WITHIN = 60.0
A_PAGE = 10
# As the form sends it: all states (other values hide tenders that the site shows), newest first.
SEARCH: dict[str, Any] = {
    "textoBusqueda": "",
    "idEstado": -1,
    "codigoRegion": -1,
    "idTipoLicitacion": -1,
    "fechaInicio": None,
    "fechaFin": None,
    "registrosPorPagina": A_PAGE,
    "idTipoFecha": 1,
    "idOrden": 3,
    "compradores": [],
    "garantias": [],
    "rubros": [],
    "proveedores": [],
    "montoEstimadoTipo": [0],
    "esPublicoMontoEstimado": [],
}
PUBLISHED = "publicada"
_PUBLISHED_ON = re.compile("fecha de publicaci[oó]n", re.IGNORECASE)
_CLOSES_ON = re.compile("fecha de cierre", re.IGNORECASE)


async def newest(since: date) -> Reading:
    """Return the published tenders of the first pages, up to the first page that is older than `since`."""
    reading = Reading()
    try:
        async with asyncio.timeout(PAGES_WITHIN):
            for number in range(int(setting("SEARCH_PAGES"))):
                cards = await _page(number)
                reading.tenders += [tender for card in cards if (tender := _tender(card))]
                if len(cards) < A_PAGE or _is_older(cards, since):
                    break
    except TimeoutError:
        reading.problem = Unavailable("the search page is too slow")
    except Unavailable as error:
        reading.problem = error
    return reading


async def _page(number: int) -> list[dict[str, str]]:
    url = f"{setting('SEARCH_URL')}{PATH}"
    body = await request("the search page", "POST", url, json=SEARCH | {"pagina": number})
    parser = SearchResults()
    parser.feed(body.decode("utf-8", "replace"))
    parser.close()
    if not parser.is_result or (parser.cards and not any("code" in card for card in parser.cards)):
        raise Unavailable("the search page returned no results: its structure has changed")
    return parser.cards


def _tender(card: dict[str, str]) -> Tender | None:
    if not card.get("state", "").strip().lower().startswith(PUBLISHED):
        return None
    return read(
        card.get("code"),
        card.get("title"),
        kind=card.get("kind"),
        buyer=card.get("buyer"),
        amount=card.get("amount"),
        published=card.get("published"),
        closes=card.get("closes"),
    )


def _is_older(cards: list[dict[str, str]], since: date) -> bool:
    moments = [moment for card in cards if (moment := moment_of(card.get("published")))]
    return bool(moments) and max(moments).date() < since


class SearchResults(HTMLParser):
    """Parses the fragment: a block `lic-bloq-wrap` for each tender.

    A field is recognised by the class of its column (`id-licitacion`, `estado-lic`, `monto-dis`, `lic-bloq-footer`), or
    by the label in front of it ("Fecha de cierre").
    """

    def __init__(self) -> None:
        super().__init__()
        self.cards: list[dict[str, str]] = []
        self.is_result = False
        # The column, and the field that text belongs to.
        self._column = ""
        self._field: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        classes = (dict(attrs).get("class") or "").split()
        if "lic-bloq-wrap" in classes:
            self.cards.append({})
        self.is_result = self.is_result or "n-result" in classes or bool(self.cards)
        for name in ("id-licitacion", "estado-lic", "monto-dis", "lic-bloq-footer"):
            if name in classes:
                self._column = name
        self._field = self._field_of(tag, classes) or self._field

    def _field_of(self, tag: str, classes: list[str]) -> str | None:
        match tag, self._column:
            case "h2", _:
                return "title"
            case "span", "id-licitacion":
                return "code"
            case "span", "estado-lic":
                return "state" if "estado-texto" in classes else "kind"
            case "span", "monto-dis":
                return "amount"
            case "span", "published" | "closes" as label:
                self._column = ""
                return label
            case "strong", "lic-bloq-footer":
                self._column = ""
                return "buyer"
            case "strong", _:
                return "label"
            case _:
                return None

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("h2", "span", "strong"):
            return
        if self._field == "label" and self.cards:
            label = self.cards[-1].pop("label", "")
            if _PUBLISHED_ON.search(label):
                self._column = "published"
            elif _CLOSES_ON.search(label):
                self._column = "closes"
        self._field = None

    def handle_data(self, data: str) -> None:
        if self._field and self.cards:
            card = self.cards[-1]
            card[self._field] = f"{card.get(self._field, '')} {data}".strip()
