"""What a person shows to read the own inbox: signed by the application, for one recipient, and for some hours.

A token can be read by whoever has it: it names the tenant and the recipient's key. Nobody can make one, or change one,
without the secret of the installation.

    sri_ base64url( version | tenant, recipient, end as MessagePack | HMAC-SHA256 )
"""

import base64
import hashlib
import hmac

import msgspec

PREFIX = "sri_"
VERSION = b"\x01"
LONGEST_TOKEN = 4096
# What else is ever signed with the same secret is signed for another purpose.
_PURPOSE = b"sereno inbox\x00"
_SIGNATURE_BYTES = hashlib.sha256().digest_size


class InboxReader(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Whose inbox it opens. `until`: in seconds since 1970."""

    tenant: str | None
    recipient: str
    until: int


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(InboxReader)


def make_token(secret: str, reader: InboxReader) -> str:
    signed = VERSION + _encoder.encode(reader)
    return PREFIX + _text(signed + _signature(secret, signed))


def read_token(secret: str, token: str, now: float) -> InboxReader | None:
    """Whose it is; None for one that is not ours, or has ended."""
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
    """Of the one spelling that we write; nothing for any other."""
    text = token.removeprefix(PREFIX)
    if len(token) > LONGEST_TOKEN or not token.startswith(PREFIX):
        return b""
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        return b""
    return raw if _text(raw) == text else b""
