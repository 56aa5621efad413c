"""The partners on this machine: the page and the API of the tenders, on good days and on bad ones.

Expo is `sereno.testing.expo.ExpoProvider`, and the object store is moto's server, which speaks the protocol of S3.
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

# What a server says of its own connection, not of what it was asked for.
HOP_BY_HOP = ("connection", "date", "server", "transfer-encoding")
REGIONS = ["Antofagasta", "Valparaíso", "Metropolitana", "Biobío", "Magallanes"]
WORKS = ["a bridge", "a school roof", "street lights", "school meals", "a well", "an ambulance", "winter coats"]


@dataclass
class Authority:
    """Who publishes tenders; the page and the API show what it has published."""

    # A clock that tests may move.
    now: Callable[[], datetime] = lambda: datetime.now(CHILE)
    tenders: list[dict[str, Any]] = field(default_factory=list)

    def publish(self, *, region: str | None = None, amount: float | None = None) -> str:
        """One more; its code."""
        number = len(self.tenders) + 1
        today = self.now().astimezone(CHILE)
        code = f"{1000 + number}-{number}-LE{today:%y}"
        self.tenders.append(
            {
                "CodigoExterno": code,
                "Nombre": f"{WORKS[number % len(WORKS)].capitalize()} & what belongs to it",
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


class Gated(Provider):
    """`open`: cleared, it answers nobody until it is set again."""

    def __init__(self, authority: Authority) -> None:
        super().__init__()
        self.authority = authority
        self.open = asyncio.Event()
        self.open.set()


class Page(Gated):
    """The newest twenty, as people read them. `layout`: another one, after a redesign that told nobody."""

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


class Api(Gated):
    """Lists of a day, and details of a tender; for those who show the ticket.

    `no_details`: of these it says nothing. `details_open`: as `open`, for details alone.
    """

    def __init__(self, authority: Authority, ticket: str = "") -> None:
        super().__init__(authority)
        self.ticket = ticket
        self.no_details: set[str] = set()
        self.details_open = asyncio.Event()
        self.details_open.set()

    async def answer(self, request: Request) -> web.StreamResponse:
        asked = {name: values[0] for name, values in parse_qs(urlsplit(request.path).query).items()}
        if asked.get("ticket", "") != self.ticket:
            return web.json_response({"Mensaje": "Ticket no válido."}, status=401)
        await (self.details_open if "codigo" in asked else self.open).wait()
        found: list[dict[str, Any]] = []
        for each in self.authority.tenders:
            code = each["CodigoExterno"]
            if code == asked.get("codigo") and code not in self.no_details:
                found.append({name: value for name, value in each.items() if name != "day"})
            elif each["day"].strftime("%d%m%Y") == asked.get("fecha"):
                found.append({name: each[name] for name in ("CodigoExterno", "Nombre", "FechaCierre")})
        return web.json_response({"Cantidad": len(found), "Listado": found})


class Store(Provider):
    """In front of an object store: what it is asked, it asks there."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._behind = url

    async def answer(self, request: Request) -> web.StreamResponse:
        asked = {name: value for name, value in request.headers.items() if name not in ("host", "content-length")}
        url = URL(f"{self._behind}{request.path}", encoded=True)
        async with (
            aiohttp.ClientSession(auto_decompress=False) as session,
            session.request(request.method, url, headers=asked, data=request.body) as said,
        ):
            kept = {name: value for name, value in said.headers.items() if name.lower() not in HOP_BY_HOP}
            return web.Response(status=said.status, headers=kept, body=await said.read())


@contextmanager
def object_store(bucket: str) -> Iterator[dict[str, str]]:
    """S3 on loopback; gives the environment with which it is reached."""
    import boto3  # noqa: PLC0415 - they come with the packages for tests
    from moto.server import ThreadedMotoServer  # noqa: PLC0415 - see above

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    environment = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "nobody",
        "AWS_SECRET_ACCESS_KEY": "nothing",
    }
    client = boto3.client(
        "s3",
        endpoint_url=environment["AWS_ENDPOINT_URL"],
        region_name="us-east-1",
        aws_access_key_id="nobody",
        aws_secret_access_key="nothing",  # noqa: S106 - it takes any
    )
    client.create_bucket(Bucket=bucket)
    try:
        yield environment
    finally:
        server.stop()
