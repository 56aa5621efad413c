"""A local Firebase Cloud Messaging: checks requests for tokens and messages, and returns the errors of the real one."""

import base64
import functools
import re
import secrets
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

import msgspec
from aiohttp import web
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from sereno.testing.provider import RETRY_AFTER, Provider, Request

SCOPE = "https://www.googleapis.com/auth/firebase.messaging"
GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
TOKEN_LIFE = 3600
LARGEST = 4096
# The status of each code, as HTTP and as Google names it.
STATUSES: Mapping[str, tuple[int, str]] = {
    "INVALID_ARGUMENT": (400, "INVALID_ARGUMENT"),
    "UNREGISTERED": (404, "NOT_FOUND"),
    "SENDER_ID_MISMATCH": (403, "PERMISSION_DENIED"),
    "QUOTA_EXCEEDED": (429, "RESOURCE_EXHAUSTED"),
    "UNAVAILABLE": (503, "UNAVAILABLE"),
    "INTERNAL": (500, "INTERNAL"),
    "THIRD_PARTY_AUTH_ERROR": (401, "UNAUTHENTICATED"),
}

_FIELDS = {"token", "notification", "data", "android", "apns", "webpush", "fcm_options"}
_TOKEN = re.compile(r"[A-Za-z0-9_:.-]+")


@functools.cache
def _key() -> rsa.RSAPrivateKey:
    """Return the key of all service accounts: to make one takes a part of a second."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


class FCMProvider(Provider):
    """Accepts pushes like Firebase.

    `refuses`: code by registration token. `has_retry_after`: whether a refusal says when to come back. `sent`: accepted
    messages in order. `issued`: access tokens that are valid; clear it to revoke them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.project_id = "shop-1a2b3"
        self.client_email = f"sereno@{self.project_id}.iam.gserviceaccount.com"
        self.private_key_id = secrets.token_hex(20)
        self.refuses: dict[str, str] = {}
        self.has_retry_after = True
        self.sent: list[dict[str, Any]] = []
        self.issued: set[str] = set()

    @property
    def account(self) -> dict[str, str]:
        """The file of a service account, and the address of this provider."""
        pem = _key().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return {
            "type": "service_account",
            "project_id": self.project_id,
            "private_key_id": self.private_key_id,
            "private_key": pem.decode(),
            "client_email": self.client_email,
            "token_uri": f"{self.url}/token",
            "url": self.url,
        }

    @property
    def token_requests(self) -> list[Request]:
        return [request for request in self.log if request.path == "/token"]

    async def answer(self, request: Request) -> web.StreamResponse:
        if request.path == "/token":
            return self._token(request)
        if request.headers.get("authorization", "").removeprefix("Bearer ") not in self.issued:
            return _error(401, "UNAUTHENTICATED", "Request had invalid authentication credentials.")
        if request.path != f"/v1/projects/{self.project_id}/messages:send":
            return _error(403, "PERMISSION_DENIED", f"Permission denied on resource {request.path}.")
        message = request.json()["message"]
        if violation := _violation(message):
            field, text = violation
            detail = {"@type": "type.googleapis.com/google.rpc.BadRequest"}
            return _error(400, "INVALID_ARGUMENT", text, {**detail, "fieldViolations": [{"field": field}]})
        token = message["token"]
        if code := self.refuses.get(token):
            return self._refusal(code, token)
        self.sent.append(message)
        return web.json_response({"name": f"projects/{self.project_id}/messages/0:15003415%{len(self.sent):08x}"})

    def _refusal(self, code: str, token: str) -> web.Response:
        status, name = STATUSES[code]
        texts = {"INVALID_ARGUMENT": "The registration token is not a valid FCM registration token"}
        detail = {"@type": "type.googleapis.com/google.firebase.fcm.v1.FcmError", "errorCode": code}
        response = _error(status, name, texts.get(code, f"Refused with {code}: {token}"), detail)
        if self.has_retry_after and code in ("QUOTA_EXCEEDED", "UNAVAILABLE"):
            response.headers["Retry-After"] = str(RETRY_AFTER)
        return response

    def _token(self, request: Request) -> web.Response:
        form = {name: values[0] for name, values in parse_qs(request.body.decode()).items()}
        if form.get("grant_type") != GRANT:
            return web.json_response({"error": "unsupported_grant_type"}, status=400)
        if wrong := self._wrong_assertion(form.get("assertion", "")):
            return web.json_response({"error": "invalid_grant", "error_description": wrong}, status=400)
        token = f"ya29.{secrets.token_urlsafe(40)}"
        self.issued.add(token)
        return web.json_response({"access_token": token, "expires_in": TOKEN_LIFE - 1, "token_type": "Bearer"})

    def _wrong_assertion(self, assertion: str) -> str:
        signed, _, signature = assertion.rpartition(".")
        try:
            header, claims = (msgspec.json.decode(_decode(part)) for part in signed.split("."))
            _key().public_key().verify(_decode(signature), signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        except (InvalidSignature, ValueError):
            return f"Invalid JWT Signature: {assertion}"
        if header != {"typ": "JWT", "alg": "RS256", "kid": self.private_key_id}:
            return "Invalid JWT header."
        if claims["iss"] != self.client_email:
            return "Invalid grant: account not found"
        lives = claims["exp"] - claims["iat"]
        if not (0 < lives <= TOKEN_LIFE and claims["exp"] > time.time()):
            return "Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable timeframe."
        return "" if (claims["aud"], claims["scope"]) == (f"{self.url}/token", SCOPE) else "Invalid audience or scope."


def _violation(message: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the invalid field of a message, and what is wrong with it."""
    if unknown := sorted(message.keys() - _FIELDS):
        return "message", f"Invalid JSON payload received. Unknown name \"{unknown[0]}\" at 'message'"
    if not _TOKEN.fullmatch(message.get("token", "")):
        return "message.token", "The registration token is malformed"
    for name, value in message.get("data", {}).items():
        if not isinstance(value, str):
            return f"message.data.{name}", f"Invalid value at 'message.data[0].value' (TYPE_STRING), {value}"
        if name == "from" or name.startswith(("google", "gcm")):
            return "message.data", f"Invalid data payload key: {name}"
    shown = {name: message.get(name) for name in ("notification", "data")}
    return ("message", "Message is too big") if len(msgspec.json.encode(shown)) > LARGEST else None


def _error(status: int, name: str, text: str, *details: Mapping[str, Any]) -> web.Response:
    content = {"code": status, "message": text, "status": name, "details": list(details)}
    return web.json_response({"error": content}, status=status)


def _decode(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
