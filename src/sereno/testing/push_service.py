"""A local push service with browsers: it verifies every token and decrypts every message.

Implemented from the RFCs, independently of the channel that it tests.
"""

import base64
import binascii
import re
import secrets
import time
from collections.abc import Mapping
from typing import Any

import msgspec
from aiohttp import web
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric import ec, utils
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from sereno.testing.provider import Provider, Request

LARGEST = 4096
DAY = 86400
# Salt, record size and length of the key id; the key id follows, which is the sender's point.
PREAMBLE = 21
POINT = 65
_AUTHORIZATION = re.compile(r"vapid t=([\w-]+\.[\w-]+)\.([\w-]+), ?k=([\w-]+)")


class Refusal(Exception):  # noqa: N818 - a response of the service, not an error in it
    """A status and its reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Browser:
    """One subscription, with the browser's private key."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._private = ec.generate_private_key(ec.SECP256R1())
        self._auth = secrets.token_bytes(16)
        self.is_gone = False

    @property
    def point(self) -> bytes:
        return self._private.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)

    @property
    def keys(self) -> Mapping[str, str]:
        """The keys in `subscription.toJSON().keys`."""
        return {"p256dh": in_base64(self.point), "auth": in_base64(self._auth)}

    def read(self, body: bytes) -> bytes:
        """Decrypt a message for this browser; raise Refusal for anything else."""
        salt, size, length = body[:16], int.from_bytes(body[16:20]), body[20] if len(body) > PREAMBLE else 0
        sender, record = body[PREAMBLE : PREAMBLE + length], body[PREAMBLE + length :]
        if length != POINT or len(record) > size:
            raise Refusal(400, "not a single aes128gcm record")
        try:
            peer = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), sender)
            agreed = self._private.exchange(ec.ECDH(), peer)
            secret = _expand(agreed, self._auth, b"WebPush: info\x00" + self.point + sender, 32)
            key = _expand(secret, salt, b"Content-Encoding: aes128gcm\x00", 16)
            padded = AESGCM(key).decrypt(_expand(secret, salt, b"Content-Encoding: nonce\x00", 12), record, None)
        except (ValueError, InvalidTag):
            raise Refusal(400, "the message cannot be decrypted") from None
        text, end, padding = padded.rpartition(b"\x02")
        if not end or padding.strip(b"\x00"):
            raise Refusal(400, "the last record has no end")
        return text


class ReceivedPush(msgspec.Struct, frozen=True):
    """One message as the browser received it."""

    address: str
    text: bytes
    claims: Mapping[str, Any]
    headers: Mapping[str, str]

    def json(self) -> Any:
        return msgspec.json.decode(self.text)


class PushService(Provider):
    """Accepts messages for its subscriptions, from senders with a valid token. `received`: accepted messages.

    `sender`: the only accepted key (as pages give it); None: any.
    """

    def __init__(self) -> None:
        super().__init__()
        self.received: list[ReceivedPush] = []
        self.sender: str | None = None
        self._browsers: dict[str, Browser] = {}

    def subscribe(self) -> Browser:
        path = f"/push/{secrets.token_urlsafe(16)}"
        browser = self._browsers[path] = Browser(self.url + path)
        return browser

    async def answer(self, request: Request) -> web.StreamResponse:
        try:
            self.received.append(self._take(request))
        except Refusal as refusal:
            return web.Response(status=refusal.status, text=str(refusal))
        return web.Response(status=201, headers={"Location": f"{self.url}/message/{len(self.received)}"})

    def _take(self, request: Request) -> ReceivedPush:
        browser = self._browsers.get(request.path)
        if browser is None:
            raise Refusal(404, "no such subscription")
        claims = self._claims(request.headers.get("authorization", ""))
        if browser.is_gone:
            raise Refusal(410, "unsubscribed")
        if request.method != "POST" or not request.headers.get("ttl", "").isdecimal():
            raise Refusal(400, "a message needs POST and a TTL")
        if len(request.body) > LARGEST:
            raise Refusal(413, "too large")
        if request.headers.get("content-encoding") != "aes128gcm":
            raise Refusal(415, "unknown encoding")
        return ReceivedPush(browser.address, browser.read(request.body), claims, request.headers)

    def _claims(self, header: str) -> Mapping[str, Any]:
        """Return the claims of the token, if it is signed with the named key, for this service and for today."""
        found = _AUTHORIZATION.fullmatch(header)
        if found is None:
            raise Refusal(401, "no VAPID")
        signed, signature, sender = found.groups()
        try:
            _verify(signed, signature, sender)
            head, claims = (msgspec.json.decode(from_base64(part)) for part in signed.split("."))
        except (ValueError, InvalidSignature):
            raise Refusal(403, "the signature is invalid") from None
        if head.get("alg") != "ES256" or claims.get("aud") != self.url:
            raise Refusal(403, "signed for another service")
        if not time.time() < claims.get("exp", 0) <= time.time() + DAY:
            raise Refusal(403, "expired or valid for too long")
        if not str(claims.get("sub")).startswith(("mailto:", "https:")):
            raise Refusal(403, "no contact in sub")
        if self.sender is not None and sender != self.sender:
            raise Refusal(403, "the subscription is for another key")
        return dict(claims)


def from_base64(text: str) -> bytes:
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except binascii.Error:
        raise ValueError("not base64url") from None


def in_base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _verify(signed: str, signature: str, sender: str) -> None:
    raw = from_base64(signature)
    pair = utils.encode_dss_signature(int.from_bytes(raw[:32]), int.from_bytes(raw[32:]))
    key = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), from_base64(sender))
    key.verify(pair, signed.encode(), ec.ECDSA(SHA256()))


def _expand(secret: bytes, salt: bytes, info: bytes, length: int) -> bytes:
    return HKDF(algorithm=SHA256(), length=length, salt=salt, info=info).derive(secret)
