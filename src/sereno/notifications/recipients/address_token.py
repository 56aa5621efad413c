"""Tokens of confirmation messages: a person who can open the link reads the mail of the address.

A token is readable: it contains the tenant, the recipient's key and the address. It cannot be created or changed
without the secret of the installation, and other tokens are not valid here.
"""

import msgspec

from sereno.access.signed_token import SignedTokens

PREFIX = "sra_"
PATH = "/confirm-address/"


class AddressClaim(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The address that a recipient wants to use on a channel. `until`: expiry in seconds since 1970."""

    tenant: str | None
    recipient: str
    channel: str
    address: str
    until: int


_tokens = SignedTokens(PREFIX, b"sereno confirm address", AddressClaim)


def make_token(secret: str, claim: AddressClaim) -> str:
    return _tokens.make(secret, claim)


def read_token(secret: str, token: str) -> AddressClaim | None:
    """Return the claim; None if the token is not valid. The caller checks whether it has expired."""
    return _tokens.read(secret, token)
