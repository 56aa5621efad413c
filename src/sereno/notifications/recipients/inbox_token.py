"""Inbox tokens: give access to one recipient's inbox for some hours, signed by the application.

A token is readable: it contains the tenant and the recipient's key. It cannot be created or changed without the secret
of the installation.

    sri_ base64url( version | tenant, recipient, end as MessagePack | HMAC-SHA256 )
"""

import base64
import hashlib
import hmac

import msgspec

PREFIX = "sri_"
VERSION = b"\x01"
LONGEST_TOKEN = 4096
# Separates these signatures from others made with the same secret.
_PURPOSE = b"sereno inbox\x00"
_SIGNATURE_BYTES = hashlib.sha256().digest_size


class InboxReader(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The inbox that a token opens. `until`: expiry in seconds since 1970."""

    tenant: str | None
    recipient: str
    until: int


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(InboxReader)


def make_token(secret: str, reader: InboxReader) -> str:
    signed = VERSION + _encoder.encode(reader)
    return PREFIX + _text(signed + _signature(secret, signed))


def read_token(secret: str, token: str, now: float) -> InboxReader | None:
    """Return the reader; None if the token is not valid or has expired."""
    raw = _bytes(token)
    signed, signature = raw[:-_SIGNATURE_BYTES], raw[-_SIGNATURE_BYTES:]
    if not hmac.compare_digest(signature, _signature(secret, signed)) or not signed.startswith(VERSION):
        return None
    try:
        reader = _decoder.decode(signed[len(VERSION) :])
    except msgspec.DecodeError:
        return None
    return reader if reader.until > now else None


def _signature(secret: str, signed: bytes) -> bytes:
    return hmac.new(secret.encode("utf-8", "surrogateescape"), _PURPOSE + signed, hashlib.sha256).digest()


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _bytes(token: str) -> bytes:
    """Decode the canonical spelling only; empty for any other."""
    text = token.removeprefix(PREFIX)
    if len(token) > LONGEST_TOKEN or not token.startswith(PREFIX):
        return b""
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        return b""
    return raw if _text(raw) == text else b""
