"""Signed unsubscribe links, which work without signing in.

A link ends in a token that identifies the message, signed with the secret of the installation, so that it cannot be
forged for another recipient. The token is readable: it contains the recipient's key and never the address itself.

    base64url( version | tenant, recipient, channel, address, category, event as MessagePack | HMAC-SHA256, 16 bytes )
"""

import base64
import hashlib
import hmac

import msgspec

from sereno.errors import InvalidArguments

VERSION = b"\x01"
# Half of the digest: 128 bits cannot be guessed, and the link is 21 characters shorter.
SIGNATURE_BYTES = 16
# With the longest `public_url`, the link still fits on one header line of an email.
LONGEST_TOKEN = 640
# Separates these signatures from others made with the same secret.
_PURPOSE = b"sereno unsubscribe\x00"


class Unsubscribe(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The scope of a link: everything of a category on this channel; without a category, the whole address.

    `address`: the id of its row. `event`: the type of the event whose message carried the link.
    """

    tenant: str | None
    recipient: str
    channel: str
    address: int
    category: str | None = None
    event: str | None = None


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Unsubscribe)


def make_token(secret: str, about: Unsubscribe) -> str | None:
    """Return the token, or None if the names are too long for the header of an email."""
    signed = VERSION + _encoder.encode(about)
    token = _text(signed + _signature(secret, signed))
    return token if len(token) <= LONGEST_TOKEN else None


def read_token(secret: str, token: str) -> Unsubscribe:
    """Return the scope of the token; raise InvalidArguments unless it is complete and signed with this secret."""
    raw = _bytes(token)
    signed, signature = raw[:-SIGNATURE_BYTES], raw[-SIGNATURE_BYTES:]
    if not hmac.compare_digest(signature, _signature(secret, signed)) or not signed.startswith(VERSION):
        raise _refusal()
    try:
        return _decoder.decode(signed[len(VERSION) :])
    except msgspec.DecodeError:
        raise _refusal() from None


def _signature(secret: str, signed: bytes) -> bytes:
    return hmac.new(secret.encode("utf-8", "surrogateescape"), _PURPOSE + signed, hashlib.sha256).digest()[
        :SIGNATURE_BYTES
    ]


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _bytes(token: str) -> bytes:
    """Decode the canonical spelling only: the decoder would ignore invalid characters and spare bits."""
    if not isinstance(token, str) or len(token) > LONGEST_TOKEN:
        raise _refusal()
    try:
        raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    except ValueError:
        raise _refusal() from None
    if _text(raw) != token:
        raise _refusal()
    return raw


def _refusal() -> InvalidArguments:
    return InvalidArguments(
        "this unsubscribe link is not valid: it may have been cut off; please open it again from the message"
    )
