"""What a channel reports about a message, and what a provider reports about it later."""

from typing import Literal, TypeAlias

import msgspec


class Sent(msgspec.Struct, frozen=True):
    """The provider accepted the message. `provider_id`: the id that its receipt will carry."""

    provider_id: str | None = None


class Delivered(msgspec.Struct, frozen=True):
    """The message arrived; no receipt will follow."""

    provider_id: str | None = None


class Retryable(msgspec.Struct, frozen=True):
    """A temporary failure. `after`: seconds that the provider requires before the next attempt."""

    code: str
    message: str = ""
    after: float | None = None


class Failed(msgspec.Struct, frozen=True):
    """A permanent failure of this message: too large, refused, malformed. The address stays active."""

    code: str
    message: str = ""


class Invalid(msgspec.Struct, frozen=True):
    """A permanent failure of this address: it is deactivated with the reason."""

    code: str
    message: str = ""


class Unknown(msgspec.Struct, frozen=True):
    """The message may have been sent: the provider's response did not arrive or is invalid."""

    code: str
    message: str = ""


class Down(msgspec.Struct, frozen=True):
    """The channel itself does not work, for example credentials are refused. No attempt is counted."""

    code: str
    message: str = ""


# `complained`: the recipient reported the message as spam; `unsubscribed`: at the provider, not by our link.
ReceiptOutcome: TypeAlias = Literal[
    "delivered", "read", "clicked", "complained", "unsubscribed", "bounced", "failed", "invalid", "retry", "down"
]

Outcome: TypeAlias = Sent | Delivered | Retryable | Failed | Invalid | Unknown | Down


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """A provider's later report about an accepted message, by the provider's id.

    `id`: the id of the receipt itself, if it has one, so that a duplicate counts once; others are not listed.
    """

    provider_id: str
    outcome: ReceiptOutcome
    code: str = ""
    message: str = ""
    id: str | None = None
