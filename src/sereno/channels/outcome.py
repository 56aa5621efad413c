"""What a channel reports about a message, and what a provider reports about it later."""

from typing import Literal, TypeAlias

import msgspec


class Sent(msgspec.Struct, frozen=True):
    """The provider took it. `provider_id`: by which a receipt will name it."""

    provider_id: str | None = None


class Delivered(msgspec.Struct, frozen=True):
    """It is there: nothing more will be heard of it."""

    provider_id: str | None = None


class Retryable(msgspec.Struct, frozen=True):
    """Not now. `after`: seconds that the provider asked for; never earlier."""

    code: str
    message: str = ""
    after: float | None = None


class Failed(msgspec.Struct, frozen=True):
    """Never, for this message: too large, refused, malformed. The address is good."""

    code: str
    message: str = ""


class Invalid(msgspec.Struct, frozen=True):
    """Never, for this address: it is deactivated, and says why."""

    code: str
    message: str = ""


class Unknown(msgspec.Struct, frozen=True):
    """It may have been sent: the provider's answer did not arrive, or makes no sense."""

    code: str
    message: str = ""


class Down(msgspec.Struct, frozen=True):
    """The channel itself does not work, for anybody: credentials that are refused. Nobody's tries are used up."""

    code: str
    message: str = ""


Outcome: TypeAlias = Sent | Delivered | Retryable | Failed | Invalid | Unknown | Down


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider says later of something that it took, by the provider's own id.

    `id`: of the receipt itself, where there is one, so that the same one twice counts once.
    """

    provider_id: str
    outcome: Literal["delivered", "read", "bounced", "failed", "invalid", "retry", "down"]
    code: str = ""
    message: str = ""
    id: str | None = None
