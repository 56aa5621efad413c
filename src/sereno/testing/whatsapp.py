"""A local WhatsApp Cloud API: the checks and errors of the real one, and signed callbacks."""

import base64
import secrets
from collections.abc import Mapping
from typing import Any

import msgspec
from aiohttp import web

from sereno.channels.contract import Callback
from sereno.channels.whatsapp import signature
from sereno.testing.provider import Provider, Request

LONGEST = 4096

STATUSES: Mapping[int, int] = {
    0: 401,
    2: 503,
    190: 401,
    368: 403,
    130429: 429,
    131000: 500,
    131005: 403,
    131016: 503,
    131031: 403,
}


class WhatsAppProvider(Provider):
    """`refuses`: error code by number. `sent`: accepted messages by id."""

    def __init__(self) -> None:
        super().__init__()
        self.phone_number_id = "106540352242922"
        self.access_token = f"EAA{secrets.token_hex(40)}"
        self.app_secret = secrets.token_hex(16)
        self.refuses: dict[str, int] = {}
        self.sent: dict[str, dict[str, Any]] = {}

    @property
    def account(self) -> dict[str, str]:
        return {
            "url": self.url,
            "phone_number_id": self.phone_number_id,
            "access_token": self.access_token,
            "app_secret": self.app_secret,
        }

    async def answer(self, request: Request) -> web.StreamResponse:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if token != self.access_token:
            # The real API repeats the token, too.
            return _error(190, f"Malformed access token {token}")
        version, *path = request.path.strip("/").split("/")
        if not version.startswith("v") or path != [self.phone_number_id, "messages"]:
            return _error(100, f"Unsupported post request. Object with ID '{path[0]}' does not exist", subcode=33)
        content = request.json()
        code = self._code(content)
        if code is not None:
            return _error(code, f"(#{code}) Refused", details="for a reason")
        wamid = "wamid." + base64.b64encode(f"{content['to']}{secrets.token_hex(8)}".encode()).decode()
        self.sent[wamid] = content
        contacts = [{"input": content["to"], "wa_id": content["to"].lstrip("+")}]
        messages = [{"id": wamid, "message_status": "accepted"}]
        return web.json_response({"messaging_product": "whatsapp", "contacts": contacts, "messages": messages})

    def _code(self, content: Mapping[str, Any]) -> int | None:
        match content:
            case {"messaging_product": "whatsapp", "to": str(to), "type": "text", "text": {"body": str(body)}}:
                return self.refuses.get(to) if 0 < len(body) <= LONGEST else 100
            case {"to": str(to), "type": "template", "template": {"name": str(), "language": {"code": str()}}}:
                return self.refuses.get(to)
            case _:
                return 131008

    def callback(self, *statuses: Mapping[str, Any]) -> Callback:
        """Return a webhook call with statuses: {"id": …, "status": …, "errors": […]} each."""
        metadata = {"display_phone_number": "15550783881", "phone_number_id": self.phone_number_id}
        value = {"messaging_product": "whatsapp", "metadata": metadata, "statuses": statuses}
        entry = {"id": "102290129340398", "changes": [{"field": "messages", "value": value}]}
        return self.signed(msgspec.json.encode({"object": "whatsapp_business_account", "entry": [entry]}))

    def signed(self, body: bytes) -> Callback:
        return Callback(body=body, headers={"x-hub-signature-256": signature(self.app_secret, body).decode()})


def _error(code: int, message: str, *, subcode: int | None = None, details: str = "") -> web.Response:
    error: dict[str, Any] = {"message": message, "type": "OAuthException", "code": code, "fbtrace_id": "A1b2C3"}
    if subcode is not None:
        error["error_subcode"] = subcode
    if details:
        error["error_data"] = {"messaging_product": "whatsapp", "details": details}
    return web.json_response({"error": error}, status=STATUSES.get(code, 400))
