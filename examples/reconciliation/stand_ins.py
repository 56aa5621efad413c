"""A local stand-in for the partner, with slow reports and faults."""

import asyncio
import io
import json
import zipfile
from collections import Counter
from random import Random
from urllib.parse import unquote

from aiohttp import web

from reconciliation import settings
from reconciliation.storage import MOST_UNPACKED
from sereno.testing.provider import Provider, Request

CSV = "order,amount\nA-1,12.50\nA-2,-3.20\nA-3,100.00\n"


class PartnerStandIn(Provider):
    """`troubles`: the fault of a merchant. `held`: responses that wait. `calls`: requests by stage and merchant."""

    def __init__(self, *, polls: int = 1, retry_after: int = 600, misbehaves: float = 0.0, seed: int = 7) -> None:
        super().__init__()
        self.troubles: dict[str, str] = {}
        self.held: dict[tuple[str, str], asyncio.Event] = {}
        self.calls: Counter[tuple[str, str]] = Counter()
        # Reports that were made, by idempotency key.
        self.reports: dict[str, str] = {}
        self.polls = polls
        self._retry_after = retry_after
        self._misbehaves = misbehaves
        self._chance = Random(seed)  # noqa: S311 - for a demo
        self._polled: Counter[str] = Counter()

    async def answer(self, request: Request) -> web.StreamResponse:
        path, _, _ = request.path.partition("?")
        merchant, stage, report = _parts(path)
        self.calls[stage, merchant] += 1
        if held := self.held.get((stage, merchant)):
            await held.wait()
        if request.headers.get("authorization") != f"Bearer {settings.PARTNER_TOKEN}":
            return web.Response(status=401)
        trouble = self.troubles.get(merchant, "")
        if not trouble and self._chance.random() < self._misbehaves:
            trouble = self._chance.choice(["busy", "broken", "busy"])
        match trouble:
            case "busy":
                return web.Response(status=429, headers={"Retry-After": str(self._retry_after)})
            case "broken":
                return web.Response(status=503, text="a page with secrets of theirs")
            case "left":
                return web.Response(status=403)
            case "odd":
                return web.Response(text="<html>Welcome</html>", content_type="text/html")
        return self._good(stage, merchant, report, trouble, request)

    def _good(self, stage: str, merchant: str, report: str, trouble: str, request: Request) -> web.Response:
        if stage == "request":
            key = request.headers["idempotency-key"]
            made = self.reports.setdefault(key, f"{merchant}/{len(self.reports) + 1}")
            return web.json_response({"report": made}, status=202)
        if stage == "poll":
            self._polled[report] += 1
            is_ready = self._polled[report] > self.polls and trouble != "never"
            return web.json_response({"state": "ready" if is_ready else "preparing"})
        if stage == "download":
            return web.Response(body=hostile(trouble) or packed({"report.csv": CSV.encode()}))
        return web.json_response([{"order": f"{request.path[-10:]}-{number}", "amount": "9.90"} for number in range(3)])


def _parts(path: str) -> tuple[str, str, str]:
    """/merchants/m-1/reports/17/file: return merchant, stage and report."""
    _, _, merchant, what, *rest = path.split("/")
    if what == "sales":
        return unquote(merchant), "sales", ""
    stage = ("request", "poll", "download")[len(rest)]
    return unquote(merchant), stage, unquote(rest[0]) if rest else ""


def packed(files: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return made.getvalue()


def hostile(kind: str) -> bytes | None:
    """Return a malicious or invalid file of this kind."""
    match kind:
        case "bomb":
            return packed({"report.csv": bytes(MOST_UNPACKED + 1)})
        case "lying-bomb":
            # Its header claims 10 bytes.
            honest = packed({"report.csv": bytes(MOST_UNPACKED + 1)})
            return honest.replace((MOST_UNPACKED + 1).to_bytes(4, "little"), (10).to_bytes(4, "little"))
        case "escape":
            return packed({"../../../../etc/cron.d/report.csv": CSV.encode()})
        case "absolute":
            return packed({"/etc/report.csv": CSV.encode()})
        case "many":
            return packed({f"report-{number}.csv": b"" for number in range(1000)})
        case "no-zip":
            return json.dumps({"error": "try again"}).encode()
        case "no-numbers":
            return packed({"report.csv": b"order,amount\nA-1,NaN\n"})
    return None
