"""A local Postmark: the batch endpoint with its checks and error codes, and events with a password."""

import base64
import secrets
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import msgspec
from aiohttp import web

from sereno.channels.contract import Callback
from sereno.testing.provider import Provider, Request

MOST = 500


class PostmarkProvider(Provider):
    """`refuses`: error code by address. `sent`: accepted emails by id."""

    def __init__(self) -> None:
        super().__init__()
        self.server_token = str(uuid4())
        self.webhook_password = secrets.token_urlsafe(24)
        self.refuses: dict[str, int] = {}
        self.sent: dict[str, dict[str, Any]] = {}

    @property
    def account(self) -> dict[str, str]:
        return {
            "url": self.url,
            "server_token": self.server_token,
            "sender": "Shop <shop@example.org>",
            "webhook_user": "sereno",
            "webhook_password": self.webhook_password,
        }

    async def answer(self, request: Request) -> web.StreamResponse:
        if request.headers.get("x-postmark-server-token") != self.server_token:
            return web.json_response(_error(10, "The Server Token is missing or incorrect"), status=401)
        if (request.method, request.path) != ("POST", "/email/batch"):
            return web.json_response(_error(404, "No such endpoint"), status=404)
        emails = request.json()
        if not isinstance(emails, list) or len(emails) > MOST:
            return web.json_response(_error(410, f"At most {MOST} messages"), status=422)
        return web.json_response([self._accept(email) for email in emails])

    def _accept(self, email: Mapping[str, Any]) -> dict[str, Any]:
        address = email.get("To", "")
        if "@" not in address:
            return _error(300, f"Invalid 'To' address: '{address}'.")
        if not email.get("TextBody") and not email.get("HtmlBody"):
            return _error(300, "Provide either email TextBody or HtmlBody or both.")
        code = self.refuses.get(address)
        if code is not None:
            return _error(code, f"Refused with {code}")
        name = str(uuid4())
        self.sent[name] = dict(email)
        return {"To": address, "SubmittedAt": "2026-01-01T00:00:00Z", "MessageID": name, **_error(0, "OK")}

    def event(self, kind: str, name: str, **more: Any) -> Callback:
        """Return the webhook call for an event of a message."""
        body = {"RecordType": kind, "MessageID": name, "ServerID": 23, "MessageStream": "outbound", **more}
        return self.authorized(msgspec.json.encode(body))

    def authorized(self, body: bytes) -> Callback:
        basic = base64.b64encode(f"sereno:{self.webhook_password}".encode()).decode()
        return Callback(body=body, headers={"authorization": f"Basic {basic}"})


def _error(code: int, message: str) -> dict[str, Any]:
    return {"ErrorCode": code, "Message": message}
