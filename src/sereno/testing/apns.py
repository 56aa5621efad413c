"""A local Apple Push Notification service: checks tokens, headers and payloads, and returns Apple's reasons."""

import base64
import functools
import ssl
import time
from collections.abc import Mapping
from typing import Any

import msgspec
from aiohttp import web
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, utils
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from sereno.testing.http2 import HTTP2Provider
from sereno.testing.provider import RETRY_AFTER, Request

LARGEST = 4096
TOKEN_LIFE = 3600
LONGEST_COLLAPSE_ID = 64
STATUSES: Mapping[str, int] = {
    "InvalidProviderToken": 403,
    "ExpiredProviderToken": 403,
    "MissingProviderToken": 403,
    "TopicDisallowed": 400,
    "BadPath": 404,
    "MethodNotAllowed": 405,
    "Unregistered": 410,
    "ExpiredToken": 410,
    "PayloadTooLarge": 413,
    "TooManyRequests": 429,
    "TooManyProviderTokenUpdates": 429,
    "InternalServerError": 500,
    "ServiceUnavailable": 503,
    "Shutdown": 503,
}
# When the tokens that are refused as no longer valid became so, in milliseconds.
UNREGISTERED_AT = 1_700_000_000_000


@functools.cache
def _key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


class APNsProvider(HTTP2Provider):
    """Accepts pushes like Apple.

    `refuses`: reason by device token. `oldest`: provider tokens that are dated before this time, in seconds since the
    epoch, have expired. `sent`: accepted payloads in order. `tokens`: all provider tokens that were used.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(tls)
        # Until a token is known to be valid, Apple takes one request at a time.
        self.streams = 1
        self.key_id, self.team_id, self.topic = "ABC123DEFG", "DEF123GHIJ", "org.example.shop"
        self.refuses: dict[str, str] = {}
        self.oldest: float | None = None
        self.sent: list[dict[str, Any]] = []
        self.tokens: set[str] = set()

    @property
    def account(self) -> dict[str, str]:
        pem = _key().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        named = {"key_id": self.key_id, "team_id": self.team_id, "topic": self.topic}
        return {"url": self.url, "private_key": pem, **named}

    async def answer(self, request: Request) -> web.StreamResponse:
        headers = request.headers
        reason = self._reason(request)
        if reason:
            content: dict[str, Any] = {"reason": reason}
            status = STATUSES.get(reason, 400)
            if status == web.HTTPGone.status_code:
                content["timestamp"] = UNREGISTERED_AT
            more = {"retry-after": str(RETRY_AFTER)} if reason == "TooManyRequests" else {}
            return web.json_response(content, status=status, headers={"apns-id": headers["apns-id"], **more})
        self.sent.append(request.json())
        return web.Response(headers={"apns-id": headers["apns-id"]})

    def _reason(self, request: Request) -> str:
        headers, token = request.headers, request.path.removeprefix("/3/device/")
        if request.method != "POST":
            return "MethodNotAllowed"
        if not request.path.startswith("/3/device/"):
            return "BadPath"
        if wrong := self._wrong_token(headers.get("authorization", "")):
            return wrong
        if headers.get("apns-topic") != self.topic:
            return "TopicDisallowed"
        if headers.get("apns-push-type") not in ("alert", "background"):
            return "InvalidPushType"
        if headers.get("apns-priority", "10") not in ("1", "5", "10"):
            return "BadPriority"
        if len(headers.get("apns-collapse-id", "")) > LONGEST_COLLAPSE_ID:
            return "BadCollapseId"
        if not headers.get("apns-expiration", "0").isdigit():
            return "BadExpirationDate"
        if len(request.body) > LARGEST:
            return "PayloadTooLarge"
        return self.refuses.get(token, "") if _is_hexadecimal(token) else "BadDeviceToken"

    def _wrong_token(self, authorization: str) -> str:
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token:
            return "MissingProviderToken"
        self.tokens.add(token)
        signed, _, signature = token.rpartition(".")
        try:
            header, claims = (msgspec.json.decode(_decode(part)) for part in signed.split("."))
            raw = _decode(signature)
            der = utils.encode_dss_signature(int.from_bytes(raw[:32]), int.from_bytes(raw[32:]))
            _key().public_key().verify(der, signed.encode(), ec.ECDSA(hashes.SHA256()))
        except (InvalidSignature, ValueError):
            return "InvalidProviderToken"
        if header != {"typ": "JWT", "alg": "ES256", "kid": self.key_id} or claims["iss"] != self.team_id:
            return "InvalidProviderToken"
        oldest = time.time() - TOKEN_LIFE if self.oldest is None else self.oldest
        return "ExpiredProviderToken" if claims["iat"] < oldest else ""


def _is_hexadecimal(token: str) -> bool:
    return bool(token) and all(digit in "0123456789abcdef" for digit in token)


def _decode(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
