"""A local Resend: both endpoints that send, with their checks, idempotency keys and errors, and signed events."""

import base64
import secrets
import time
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import msgspec
from aiohttp import web

from sereno.channels.contract import Callback
from sereno.channels.resend import signature
from sereno.testing.provider import RETRY_AFTER, Provider, Request

STATUSES: Mapping[str, int] = {
    "validation_error": 422,
    "invalid_from_address": 422,
    "missing_api_key": 401,
    "invalid_api_key": 403,
    "invalid_idempotent_request": 409,
    "concurrent_idempotent_requests": 409,
    "rate_limit_exceeded": 429,
    "daily_quota_exceeded": 429,
    "monthly_quota_exceeded": 429,
    "application_error": 500,
}


class ResendProvider(Provider):
    """`refuses`: name of the error by address. `sent`: accepted emails by id."""

    def __init__(self) -> None:
        super().__init__()
        self.api_key = f"re_{secrets.token_urlsafe(24)}"
        self.webhook_secret = f"whsec_{base64.b64encode(secrets.token_bytes(24)).decode()}"
        self.refuses: dict[str, str] = {}
        self.sent: dict[str, dict[str, Any]] = {}
        # By idempotency key: the content and the response.
        self._answers: dict[str, tuple[bytes, bytes]] = {}

    @property
    def account(self) -> dict[str, str]:
        return {
            "url": self.url,
            "api_key": self.api_key,
            "sender": "Shop <shop@example.org>",
            "webhook_secret": self.webhook_secret,
        }

    async def answer(self, request: Request) -> web.StreamResponse:
        if request.headers.get("authorization") != f"Bearer {self.api_key}":
            return _error("invalid_api_key", "API key is invalid")
        key = request.headers.get("idempotency-key", "")
        known = self._answers.get(key)
        if known is not None:
            if known[0] != request.body:
                return _error("invalid_idempotent_request", "The key was used with another request")
            return web.Response(body=known[1], content_type="application/json")
        answer = self._accept_batch(request.json()) if request.path == "/emails/batch" else self._accept(request.json())
        if "name" in answer:
            return _error(answer["name"], answer["message"])
        body = msgspec.json.encode(answer)
        self._answers[key] = (request.body, body)
        return web.Response(body=body, content_type="application/json")

    def _accept_batch(self, emails: list[dict[str, Any]]) -> dict[str, Any]:
        answers = [self._accept(email) for email in emails]
        errors = [
            {"index": index, "message": answer["message"]} for index, answer in enumerate(answers) if "name" in answer
        ]
        return {"data": [answer for answer in answers if "id" in answer], "errors": errors}

    def _accept(self, email: dict[str, Any]) -> dict[str, Any]:
        (address,) = email.get("to") or [""]
        if "@" not in address:
            return {"name": "validation_error", "message": "Invalid `to` field."}
        if not email.get("text") and not email.get("html"):
            return {"name": "validation_error", "message": "Missing `html` or `text` field."}
        if address in self.refuses:
            return {"name": self.refuses[address], "message": "Refused"}
        name = str(uuid4())
        self.sent[name] = email
        return {"id": name}

    def event(self, kind: str, name: str, *, at: float | None = None, **more: Any) -> Callback:
        """Return the webhook call for an event of a message."""
        data = {"email_id": name, "created_at": "2026-01-01T00:00:00.000Z", "to": ["ada@example.com"], **more}
        return self.signed(msgspec.json.encode({"type": kind, "data": data}), at=at)

    def signed(self, body: bytes, *, at: float | None = None) -> Callback:
        name, timestamp = f"msg_{secrets.token_hex(12)}", str(int(time.time() if at is None else at))
        signed = signature(self.webhook_secret, name, timestamp, body).decode()
        headers = {"svix-id": name, "svix-timestamp": timestamp, "svix-signature": f"v1,other {signed}"}
        return Callback(body=body, headers=headers)


def _error(name: str, message: str) -> web.Response:
    status = STATUSES.get(name, 422)
    headers = {"Retry-After": str(RETRY_AFTER)} if status == 429 else {}  # noqa: PLR2004 - the status
    return web.json_response({"statusCode": status, "name": name, "message": message}, status=status, headers=headers)
