"""Links by which people say "no more of these", without signing in.

A link ends in a token that says whose message it was, signed with the secret of the installation, so that nobody can
make one for somebody else. It can be read by whoever has it: it names the recipient's key and never the address itself.

    base64url( version | tenant, recipient, channel, address, category, event as MessagePack | HMAC-SHA256, 16 bytes )
"""

import base64
import hashlib
import hmac

import msgspec

from sereno.errors import InvalidArguments

VERSION = b"\x01"
# Half of the digest: nobody guesses 128 bits, and a link is shorter by 21 characters.
SIGNATURE_BYTES = 16
# With the longest `public_url` before it, the link still fits on one line of a mail's headers.
LONGEST_TOKEN = 640
# What else is ever signed with the same secret is signed for another purpose.
_PURPOSE = b"sereno unsubscribe\x00"


class Unsubscribe(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a link is about: everything of a category by this channel; without a category, the whole address.

    `address`: the id of its row. `event`: of what kind the message was that carried the link.
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
    """For the end of a link; None for names so long that no mail could carry it."""
    signed = VERSION + _encoder.encode(about)
    token = _text(signed + _signature(secret, signed))
    return token if len(token) <= LONGEST_TOKEN else None


def read_token(secret: str, token: str) -> Unsubscribe:
    """What it is about; InvalidArguments unless it was made with this secret, and is whole."""
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
    """Of the one spelling that we write: the decoder would pass over strange characters and spare bits."""
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
        "this link to unsubscribe is not valid: perhaps it was cut off; please open it again from the message"
    )
