"""Local stand-ins for the page and the API of the tenders, with injectable faults.

Expo is `sereno.testing.expo.ExpoProvider`, and the object store is moto's server, which implements the S3 protocol.
"""

import asyncio
import html
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
from aiohttp import web
from yarl import URL

from sereno.testing.provider import Provider, Request
from tenders.tender import CHILE

# Response headers that belong to one connection and are not forwarded.
HOP_BY_HOP = ("connection", "date", "server", "transfer-encoding")
REGIONS = ["Antofagasta", "Valparaíso", "Metropolitana", "Biobío", "Magallanes"]
WORKS = ["a bridge", "a school roof", "street lights", "school meals", "a well", "an ambulance", "winter coats"]


@dataclass
class Authority:
    """Publishes tenders; the page and the API serve them."""

    # A clock that tests may move.
    now: Callable[[], datetime] = lambda: datetime.now(CHILE)
    tenders: list[dict[str, Any]] = field(default_factory=list)

    def publish(self, *, region: str | None = None, amount: float | None = None) -> str:
        """Publish one more tender; return its code."""
        number = len(self.tenders) + 1
        today = self.now().astimezone(CHILE)
        code = f"{1000 + number}-{number}-LE{today:%y}"
        self.tenders.append(
            {
                "CodigoExterno": code,
                "Nombre": f"{WORKS[number % len(WORKS)].capitalize()} & accessories",
                "FechaCierre": f"{today + timedelta(days=10):%Y-%m-%dT15:00:00}",
                "MontoEstimado": 1_000_000.0 * number if amount is None else amount,
                "Comprador": {
                    "NombreOrganismo": f"Municipality {number}",
                    "RegionUnidad": region or REGIONS[number % len(REGIONS)],
                },
                "day": today.date(),
            }
        )
        return code


class PausableSource(Provider):
    """While `open` is cleared, requests wait until it is set again."""

    def __init__(self, authority: Authority) -> None:
        super().__init__()
        self.authority = authority
        self.open = asyncio.Event()
        self.open.set()


class Page(PausableSource):
    """The web page with the newest twenty tenders. `layout`: tests change it to simulate an unannounced redesign."""

    layout = '<table id="tenders">{rows}</table>'

    async def answer(self, request: Request) -> web.StreamResponse:  # noqa: ARG002 - there is one page
        await self.open.wait()
        rows = "".join(
            f'<tr><td class="code">{each["CodigoExterno"]}</td>'
            f'<td class="title"><b>{html.escape(each["Nombre"])}</b></td>'
            f'<td class="region">{each["Comprador"]["RegionUnidad"]}</td>'
            f'<td class="closes">{each["FechaCierre"]}</td></tr>'
            for each in reversed(self.authority.tenders[-20:])
        )
        return web.Response(text=f"<html>{self.layout.format(rows=rows)}</html>", content_type="text/html")


class Api(PausableSource):
    """Lists of a day and details of a tender, for requests with the right ticket.

    `no_details`: codes whose details are withheld. `details_open`: like `open`, for details alone.
    """

    def __init__(self, authority: Authority, ticket: str = "") -> None:
        super().__init__(authority)
        self.ticket = ticket
        self.no_details: set[str] = set()
        self.details_open = asyncio.Event()
        self.details_open.set()

    async def answer(self, request: Request) -> web.StreamResponse:
        query = {name: values[0] for name, values in parse_qs(urlsplit(request.path).query).items()}
        if query.get("ticket", "") != self.ticket:
            return web.json_response({"Mensaje": "Ticket no válido."}, status=401)
        await (self.details_open if "codigo" in query else self.open).wait()
        found: list[dict[str, Any]] = []
        for each in self.authority.tenders:
            code = each["CodigoExterno"]
            if code == query.get("codigo") and code not in self.no_details:
                found.append({name: value for name, value in each.items() if name != "day"})
            elif each["day"].strftime("%d%m%Y") == query.get("fecha"):
                found.append({name: each[name] for name in ("CodigoExterno", "Nombre", "FechaCierre")})
        return web.json_response({"Cantidad": len(found), "Listado": found})


class Store(Provider):
    """A proxy in front of an object store."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._upstream = url

    async def answer(self, request: Request) -> web.StreamResponse:
        headers = {name: value for name, value in request.headers.items() if name not in ("host", "content-length")}
        url = URL(f"{self._upstream}{request.path}", encoded=True)
        async with (
            aiohttp.ClientSession(auto_decompress=False) as session,
            session.request(request.method, url, headers=headers, data=request.body) as response,
        ):
            forwarded = {name: value for name, value in response.headers.items() if name.lower() not in HOP_BY_HOP}
            return web.Response(status=response.status, headers=forwarded, body=await response.read())


@contextmanager
def object_store(bucket: str) -> Iterator[dict[str, str]]:
    """Run S3 on loopback; yield the environment variables of a client."""
    import boto3  # noqa: PLC0415 - installed with the test packages only
    from moto.server import ThreadedMotoServer  # noqa: PLC0415 - see above

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    environment = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "any-key",
        "AWS_SECRET_ACCESS_KEY": "any-secret",
    }
    client = boto3.client(
        "s3",
        endpoint_url=environment["AWS_ENDPOINT_URL"],
        region_name="us-east-1",
        aws_access_key_id="any-key",
        aws_secret_access_key="any-secret",  # noqa: S106 - moto accepts any
    )
    client.create_bucket(Bucket=bucket)
    try:
        yield environment
    finally:
        server.stop()
