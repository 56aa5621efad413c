"""A local Mailgun: the endpoint that sends, with its checks and errors, and signed events."""

import base64
import secrets
import time
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from aiohttp import web

from sereno.channels.contract import Callback
from sereno.channels.mailgun import signature
from sereno.testing.provider import Provider, Request


class MailgunProvider(Provider):
    """`refuses`: status and text of the error by address. `sent`: accepted forms by id."""

    def __init__(self) -> None:
        super().__init__()
        self.api_key = f"{secrets.token_hex(16)}-{secrets.token_hex(4)}"
        self.signing_key = secrets.token_hex(16)
        self.domain = "mail.example.org"
        self.refuses: dict[str, tuple[int, str]] = {}
        self.sent: dict[str, dict[str, str]] = {}

    @property
    def account(self) -> dict[str, str]:
        return {
            "url": self.url,
            "api_key": self.api_key,
            "domain": self.domain,
            "sender": "Shop <shop@mail.example.org>",
            "signing_key": self.signing_key,
        }

    async def answer(self, request: Request) -> web.StreamResponse:
        basic = base64.b64encode(f"api:{self.api_key}".encode()).decode()
        if request.headers.get("authorization") != f"Basic {basic}":
            return web.Response(status=401, text="Forbidden")
        if request.path != f"/v3/{self.domain}/messages":
            return web.json_response({"message": "Domain not found"}, status=404)
        form = dict(parse_qsl(request.body.decode(), keep_blank_values=True))
        address = form.get("to", "")
        if "@" not in address:
            return web.json_response({"message": "to parameter is not a valid address."}, status=400)
        if not form.get("text") and not form.get("html"):
            return web.json_response({"message": "Need at least one of 'text' or 'html' parameters"}, status=400)
        if address in self.refuses:
            status, text = self.refuses[address]
            return web.json_response({"message": text}, status=status)
        name = f"20260101.{secrets.token_hex(8)}@{self.domain}"
        self.sent[name] = form
        return web.json_response({"id": f"<{name}>", "message": "Queued. Thank you."})

    def event(self, kind: str, name: str, *, at: float | None = None, **more: Any) -> Callback:
        """Return the webhook call for an event of a message."""
        headers = {"message-id": name, "to": "ada@example.com"}
        event = {"event": kind, "id": secrets.token_urlsafe(16), "message": {"headers": headers}, **more}
        return self.signed(event, at=at)

    def signed(self, event: Any, *, at: float | None = None, name: str = "signature") -> Callback:
        timestamp, token = str(int(time.time() if at is None else at)), secrets.token_hex(25)
        signed = {"timestamp": timestamp, "token": token, name: signature(self.signing_key, timestamp, token)}
        return Callback(body=msgspec.json.encode({"signature": signed, "event-data": event}), headers={})
