"""The API of ChileCompra: a list of the tenders published on a day, and the details of one.

The list has code, title and closing time; the details have the rest. A list of one tender may be that tender instead
of a list, amounts may be text, and any part may be null. An error is an object with a code: 10500 with HTTP 429 or 500
for requests that come at the same time, 203 with HTTP 203 for a wrong ticket.
"""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

import msgspec

from sereno.duration import seconds
from tenders.settings import setting
from tenders.source import Reading, Unavailable, request
from tenders.tender import Tender, read

PATH = "/servicios/v1/publico/licitaciones.json"
# Seconds for all lists together: tenders found on the search page must not wait for a slow API.
LISTS_WITHIN = 60.0
PUBLISHED = "5"
SIMULTANEOUS = 10500
# Seconds until the next request after that error.
AFTER_SIMULTANEOUS = 5.0


async def lists(days: Sequence[date]) -> Reading:
    """Return the tenders that were published on these days, one request after the other."""
    reading = Reading()
    try:
        async with asyncio.timeout(LISTS_WITHIN):
            for number, day in enumerate(days):
                if number:
                    await asyncio.sleep(seconds(setting("API_PAUSE")))
                found = await _request({"fecha": day.strftime("%d%m%Y"), "estado": "publicada"})
                reading.tenders += [tender for item in found if _is_published(item) and (tender := _tender(item))]
    except TimeoutError:
        reading.problem = Unavailable("the API is too slow for its lists")
    except Unavailable as error:
        reading.problem = error
    return reading


async def details(code: str) -> Tender:
    """Return the API's full record of one tender."""
    for item in await _request({"codigo": code}):
        if (tender := _tender(item)) and tender.code == code:
            return tender
    raise Unavailable(f"the API does not know {code}")


async def _request(query: Mapping[str, str]) -> list[Any]:
    url, ticket = f"{setting('API_URL')}{PATH}", setting("API_TICKET")
    try:
        response = _decoded(await request("the API", "GET", url, params={**query, "ticket": ticket}))
    except Unavailable as error:
        raise _refusal(_decoded(error.body)) or error from None
    if (refusal := _refusal(response)) is not None:
        raise refusal
    if not isinstance(response, dict) or "Listado" not in response:
        raise Unavailable("the API did not return a list")
    return _list(response["Listado"])


def _refusal(response: Any) -> Unavailable | None:
    code = _at(response, "Codigo")
    if not isinstance(code, int):
        return None
    if code == SIMULTANEOUS:
        return Unavailable("the API refused simultaneous requests (10500)", AFTER_SIMULTANEOUS)
    return Unavailable(f"the API refused the request ({code})")


def _tender(item: Any) -> Tender | None:
    """Return None for an invalid item, so that the rest of the list is still read."""
    return read(
        _at(item, "CodigoExterno"),
        _at(item, "Nombre"),
        kind=_at(item, "Tipo"),
        region=_at(item, "Comprador", "RegionUnidad"),
        buyer=_at(item, "Comprador", "NombreOrganismo") or _at(item, "Comprador", "NombreUnidad"),
        amount=_at(item, "MontoEstimado"),
        currency=_at(item, "Moneda"),
        categories=[_at(each, "CodigoCategoria") for each in _list(_at(item, "Items", "Listado"))],
        published=_at(item, "Fechas", "FechaPublicacion") or _at(item, "FechaPublicacion"),
        closes=_at(item, "Fechas", "FechaCierre") or _at(item, "FechaCierre"),
    )


def _is_published(item: Any) -> bool:
    return str(_at(item, "CodigoEstado") or PUBLISHED) == PUBLISHED


def _decoded(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _at(value: Any, *path: str) -> Any:
    """Return the value at a path of names; None where there is none."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _list(value: Any) -> list[Any]:
    """Return a list; of one item without a list, too."""
    if isinstance(value, list):
        return value
    return [] if value is None else [value]
