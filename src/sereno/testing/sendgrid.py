"""A local SendGrid: the endpoint that sends, with its checks and errors, and signed batches of events."""

import base64
import secrets
import time
from collections.abc import Mapping
from typing import Any

import msgspec
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from sereno.channels.contract import Callback
from sereno.testing.provider import Provider, Request

TO = "personalizations.0.to.0.email"


class SendGridProvider(Provider):
    """`refuses`: status and field of the error by address. `sent`: accepted emails by id."""

    def __init__(self) -> None:
        super().__init__()
        self.api_key = f"SG.{secrets.token_urlsafe(16)}.{secrets.token_urlsafe(32)}"
        self.refuses: dict[str, tuple[int, str]] = {}
        self.sent: dict[str, dict[str, Any]] = {}
        self._key = ec.generate_private_key(ec.SECP256R1())

    @property
    def account(self) -> dict[str, str]:
        public = self._key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        return {
            "url": self.url,
            "api_key": self.api_key,
            "sender": "Shop <shop@example.org>",
            "verification_key": base64.b64encode(public).decode(),
        }

    async def answer(self, request: Request) -> web.StreamResponse:
        if request.headers.get("authorization") != f"Bearer {self.api_key}":
            return _error(401, "The provided authorization grant is invalid, expired, or revoked")
        if (request.method, request.path) != ("POST", "/v3/mail/send"):
            return _error(404, "not found")
        email = request.json()
        match email:
            case {"personalizations": [{"to": [{"email": str(address)}]}], "from": {"email": str()}}:
                pass
            case _:
                return _error(400, "The to array is required", "personalizations.0.to")
        if "@" not in address:
            return _error(400, "Does not contain a valid address.", TO)
        if not email.get("subject") or not email.get("content"):
            return _error(400, "The subject and the content are required", "subject")
        if address in self.refuses:
            status, field = self.refuses[address]
            return _error(status, f"Refused with {status}", field)
        name = secrets.token_urlsafe(16)
        self.sent[name] = email
        return web.Response(status=202, headers={"X-Message-Id": name})

    def event(self, kind: str, name: str, **more: Any) -> dict[str, Any]:
        """Return an event of a message, with its longer id."""
        whole = f"{name}.recvd-7b98d8d96b-q4l9c-1-6479FA88-3D.0"
        event = {"email": "ada@example.com", "timestamp": 1513299569, "sg_event_id": secrets.token_urlsafe(16)}
        return {**event, "event": kind, "sg_message_id": whole, **more}

    def callback(self, *events: Mapping[str, Any], at: float | None = None) -> Callback:
        return self.signed(msgspec.json.encode(events), at=at)

    def signed(self, body: bytes, *, at: float | None = None) -> Callback:
        timestamp = str(int(time.time() if at is None else at))
        signature = self._key.sign(timestamp.encode() + body, ec.ECDSA(SHA256()))
        headers = {
            "x-twilio-email-event-webhook-timestamp": timestamp,
            "x-twilio-email-event-webhook-signature": base64.b64encode(signature).decode(),
        }
        return Callback(body=body, headers=headers)


def _error(status: int, message: str, field: str | None = None) -> web.Response:
    headers = {"X-RateLimit-Reset": str(int(time.time()) + 30)} if status == 429 else {}  # noqa: PLR2004 - the status
    error = {"message": message, "field": field, "help": None}
    return web.json_response({"errors": [error]}, status=status, headers=headers)
