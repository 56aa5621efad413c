"""Signed tokens: readable values that cannot be created or changed without the secret of the installation.

prefix base64url( version | content as MessagePack | HMAC-SHA256 )
"""

import base64
import hashlib
import hmac
from typing import Generic, TypeVar

import msgspec

T = TypeVar("T", bound=msgspec.Struct)

VERSION = b"\x01"
LONGEST_TOKEN = 4096
_SIGNATURE_BYTES = hashlib.sha256().digest_size
_encoder = msgspec.msgpack.Encoder()


class SignedTokens(Generic[T]):
    """One kind of token. `purpose`: separates its signatures from others that are made with the same secret."""

    def __init__(self, prefix: str, purpose: bytes, content: type[T]) -> None:
        self.prefix = prefix
        self._purpose = purpose + b"\x00"
        self._decoder = msgspec.msgpack.Decoder(content)

    def make(self, secret: str, content: T) -> str:
        signed = VERSION + _encoder.encode(content)
        return self.prefix + _text(signed + self._signature(secret, signed))

    def read(self, secret: str, token: str) -> T | None:
        """Return the content; None if the token is not valid. The signature is compared in constant time."""
        raw = _bytes(self.prefix, token)
        signed, signature = raw[:-_SIGNATURE_BYTES], raw[-_SIGNATURE_BYTES:]
        if not hmac.compare_digest(signature, self._signature(secret, signed)) or not signed.startswith(VERSION):
            return None
        try:
            return self._decoder.decode(signed[len(VERSION) :])
        except msgspec.DecodeError:
            return None

    def _signature(self, secret: str, signed: bytes) -> bytes:
        return hmac.new(secret.encode("utf-8", "surrogateescape"), self._purpose + signed, hashlib.sha256).digest()


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _bytes(prefix: str, token: str) -> bytes:
    """Decode the canonical spelling only; empty for any other."""
    text = token.removeprefix(prefix)
    if len(token) > LONGEST_TOKEN or not token.startswith(prefix):
        return b""
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        return b""
    return raw if _text(raw) == text else b""
