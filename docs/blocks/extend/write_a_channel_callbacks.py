import hashlib
import hmac
from dataclasses import dataclass

import httpx
from pager import Pager
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from test_pager import PagerService

from sereno import RejectedCallback, Sereno
from sereno.channels.contract import Callback
from sereno.testing.kit import Kit

app = Sereno()
pager = Pager()


@dataclass
class Flood:
    floor: int


flood = app.event("flood", Flood, channels=[pager])


# the block of the page


async def check_callbacks() -> None:
    site = httpx.ASGITransport(Starlette(routes=[Route("/pager", pager_callback, methods=["POST"])]))
    kit = Kit(app)
    async with PagerService() as service, httpx.AsyncClient(transport=site, base_url="http://here") as provider:
        app.channels.add(pager, url=service.url, token="ours", callback_secret="shared")
        await flood.anotify(Flood(0), to="porter")
        await kit.adrain()
        body = f'"page-{service.log[0].json()[0]["key"]}"'.encode()
        signature = hmac.new(b"shared", body, hashlib.sha256).hexdigest()
        for given, status, state in (("forged", 401, "sent"), (signature, 204, "delivered")):
            answer = await provider.post("/pager", content=body, headers={"X-Signature": given})
            assert (answer.status_code, kit.deliveries(flood)[0].state) == (status, state)
    await app.aclose()
