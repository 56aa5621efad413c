"""A local stand-in for the partner's merchant API and its file storage, with slow reports and faults."""

import asyncio
import secrets
from collections import Counter
from random import Random
from urllib.parse import parse_qs, unquote, urlsplit
from uuid import uuid4

from aiohttp import web

from reconciliation.oauth import PATH as TOKEN_PATH
from reconciliation.stand_in_files import as_file, hostile, report, sales
from sereno.testing.provider import Provider, Request

# Seconds for which a token is valid, as the partner says.
TOKEN_LIFE = 21600
MERCHANTS = "/financial/v3.0/merchants/"
# The faults that every call of a merchant has, by the status of the response.
STATUSES = {"busy": 429, "broken": 503, "left": 403, "revoked": 401}


class PartnerStandIn(Provider):
    """Behaves as the partner documents it.

    `troubles`: the fault of a merchant. `held`: responses that wait. `calls`: requests by stage and merchant. `recent`:
    requests that a second one conflicts with. `token_life`: of new tokens; `expire_tokens` ends those that exist.
    """

    client_id, client_secret = "stand-in", "for-the-stand-in"

    def __init__(self, *, polls: int = 1, retry_after: int = 600, misbehaves: float = 0.0, seed: int = 7) -> None:
        super().__init__()
        self.troubles: dict[str, str] = {}
        self.held: dict[tuple[str, str], asyncio.Event] = {}
        self.calls: Counter[tuple[str, str]] = Counter()
        self.polls = polls
        self.token_life = TOKEN_LIFE
        self.recent: dict[tuple[str, str], str] = {}
        # Merchant and month of each request for a report.
        self.reports: dict[str, tuple[str, str]] = {}
        self._tokens: set[str] = set()
        # The request of each link that is valid.
        self._links: dict[str, str] = {}
        self._retry_after = retry_after
        self._misbehaves = misbehaves
        self._chance = Random(seed)  # noqa: S311 - for a demo
        self._polled: Counter[str] = Counter()

    def expire_tokens(self) -> None:
        self._tokens.clear()

    async def answer(self, request: Request) -> web.StreamResponse:
        parts = urlsplit(request.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if parts.path == TOKEN_PATH:
            return self._token(request)
        if parts.path.startswith("/files/"):
            return await self._file(query.get("X-Amz-Signature", ""))
        merchant, _, what = parts.path.removeprefix(MERCHANTS).partition("/")
        return await self._merchant(request, unquote(merchant), what, query)

    def _token(self, request: Request) -> web.Response:
        self.calls["token", ""] += 1
        form = {name: values[0] for name, values in parse_qs(request.body.decode()).items()}
        wanted = {"grantType": "client_credentials", "clientId": self.client_id, "clientSecret": self.client_secret}
        if form != wanted:
            return web.json_response({"error": {"code": "Unauthorized", "message": "Bad credentials"}}, status=401)
        token = secrets.token_urlsafe(24)
        self._tokens.add(token)
        return web.json_response({"accessToken": token, "type": "bearer", "expiresIn": self.token_life})

    async def _merchant(self, request: Request, merchant: str, what: str, query: dict[str, str]) -> web.StreamResponse:
        stage = "sales" if what == "sales" else "request" if request.method == "POST" else "poll"
        self.calls[stage, merchant] += 1
        if held := self.held.get((stage, merchant)):
            await held.wait()
        if request.headers.get("authorization", "").removeprefix("Bearer ") not in self._tokens:
            return web.Response(status=401)
        trouble = self.troubles.get(merchant, "")
        if not trouble and self._chance.random() < self._misbehaves:
            trouble = self._chance.choice(["busy", "broken", "busy"])
        if trouble in STATUSES:
            headers = {"Retry-After": str(self._retry_after)} if trouble == "busy" else {}
            return web.Response(status=STATUSES[trouble], headers=headers, text="a page with secrets of theirs")
        if trouble == "odd":
            return web.Response(text="<html>Welcome</html>", content_type="text/html")
        match stage:
            case "request":
                return self._request(merchant, request.json()["competence"], trouble)
            case "poll":
                return self._poll(what.rpartition("/")[2], trouble)
            case _:
                return self._sales(merchant, query)

    def _request(self, merchant: str, competence: str, trouble: str) -> web.Response:
        if known := self.recent.get((merchant, competence)):
            message = "There is already a recent and valid request" + (f" Id: {known}." if trouble != "silent" else ".")
            return web.json_response({"code": "409", "message": message}, status=409)
        made = str(uuid4())
        self.recent[merchant, competence] = made
        self.reports[made] = merchant, competence
        return web.json_response({"requestId": made, "merchantId": merchant, "competence": competence}, status=202)

    def _poll(self, request: str, trouble: str) -> web.Response:
        if request not in self.reports:
            return web.json_response({"error": "404", "message": "request not found"}, status=404)
        self._polled[request] += 1
        state = {"id": request, "createdAt": "2026-10-15T12:00:00Z"}
        if self._polled[request] <= self.polls or trouble == "never":
            return web.json_response(state | {"status": "enqueue"})
        if trouble in {"empty", "failed"}:
            message = "No financial entries found" if trouble == "empty" else "Internal error"
            return web.json_response(state | {"status": "error", "errorMessage": message})
        lines = report(*self.reports[request], trouble)
        orders = len({line.split(";")[8] for line in lines} - {""})
        metadata = {"total_linhas": str(len(lines)), "total_pedido_associado_ifood": str(orders)}
        done = {"status": "processed", "downloadPath": self._link(request, trouble), "metadata": metadata}
        return web.json_response(state | done)

    def _link(self, request: str, trouble: str) -> str:
        """Return a link that is valid once, as if it had expired then. The first one has, with the fault `expired`."""
        if trouble.startswith("http"):
            return trouble
        signature = secrets.token_hex(16)
        if trouble != "expired" or self._polled[request] > self.polls + 1:
            self._links[signature] = request
        return f"{self.url}/files/{request}.csv.gz?X-Amz-Expires=86400&X-Amz-Signature={signature}"

    async def _file(self, signature: str) -> web.StreamResponse:
        request = self._links.pop(signature, "")
        merchant, competence = self.reports.get(request, ("", ""))
        self.calls["download", merchant] += 1
        if held := self.held.get(("download", merchant)):
            await held.wait()
        if not request:
            return web.Response(status=403, text="<Error><Code>AccessDenied</Code></Error>")
        trouble = self.troubles.get(merchant, "")
        if trouble == "moved":
            return web.Response(status=302, headers={"Location": f"{self.url}/private"})
        content = hostile(trouble, merchant, competence) or as_file(report(merchant, competence, trouble))
        return web.Response(body=content)

    @staticmethod
    def _sales(merchant: str, query: dict[str, str]) -> web.Response:
        """Return one sale a page, so that clients read several. Pages count from 1, for some merchants from 0."""
        first = 0 if merchant.endswith("0") else 1
        found, page = sales(merchant, query["beginSalesDate"]), int(query.get("page", first))
        begin = {"beginSalesDate": query["beginSalesDate"], "endSalesDate": query["endSalesDate"]}
        body = begin | {"page": page, "size": 1, "total": len(found), "pageCount": len(found)}
        return web.json_response(body | {"sales": found[page - first : page - first + 1]})
