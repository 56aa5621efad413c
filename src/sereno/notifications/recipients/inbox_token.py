"""Inbox tokens: give access to one recipient's inbox for some hours, signed by the application.

A token is readable: it contains the tenant and the recipient's key. It cannot be created or changed without the secret
of the installation.
"""

import msgspec

from sereno.access.signed_token import SignedTokens

PREFIX = "sri_"


class InboxReader(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The inbox that a token opens. `until`: expiry in seconds since 1970."""

    tenant: str | None
    recipient: str
    until: int


_tokens = SignedTokens(PREFIX, b"sereno inbox", InboxReader)


def make_token(secret: str, reader: InboxReader) -> str:
    return _tokens.make(secret, reader)


def read_token(secret: str, token: str, now: float) -> InboxReader | None:
    """Return the reader; None if the token is not valid or has expired."""
    reader = _tokens.read(secret, token)
    if reader is None:
        return None
    return reader if reader.until > now else None
