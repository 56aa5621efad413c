"""Preference tokens: give access to one recipient's own preferences until they expire, signed by the application.

A token is readable: it contains the tenant and the recipient's key. It cannot be created or changed without the secret
of the installation, and tokens of inboxes and unsubscribe links are not valid here.
"""

import msgspec

from sereno.access.signed_token import SignedTokens

PREFIX = "srp_"


class PreferenceOwner(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The recipient whose preferences a token opens. `until`: expiry in seconds since 1970.

    `may_add`: whether it opens adding addresses too. Links in messages do not: a person to whom one was forwarded could
    read along from then on.
    """

    tenant: str | None
    recipient: str
    until: int
    may_add: bool = False


_tokens = SignedTokens(PREFIX, b"sereno preferences", PreferenceOwner)


def make_token(secret: str, owner: PreferenceOwner) -> str:
    return _tokens.make(secret, owner)


def read_token(secret: str, token: str) -> PreferenceOwner | None:
    """Return the owner; None if the token is not valid. The caller checks whether it has expired."""
    return _tokens.read(secret, token)
