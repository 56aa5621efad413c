"""A delivery (one event, recipient, address and channel), its states, and the outcomes of sending it.

    pending ──▶ sending ──▶ sent ──▶ delivered ──▶ read
       │           │ │        └────▶ bounced
       │           │ └▶ unknown ──▶ pending (try again), or it stays until a person decides
       │           └──▶ pending (a retry), failed, invalid, dead
       └──▶ skipped, expired
                         └▶ failed, invalid, dead, expired, bounced (collected into a message that did not arrive)

`sending` is committed before a provider is called. `unknown`: it may have been sent, the outcome is not known.
"""

from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec

State = Literal[
    "pending",
    "sending",
    "sent",
    "delivered",
    "read",
    "bounced",
    "skipped",
    "failed",
    "invalid",
    "expired",
    "dead",
    "unknown",
]

TRANSITIONS: Mapping[State, frozenset[State]] = {
    "pending": frozenset({"sending", "skipped", "expired", "failed"}),
    "sending": frozenset(
        {"sent", "delivered", "pending", "failed", "invalid", "dead", "unknown", "skipped", "expired"}
    ),
    "sent": frozenset({"delivered", "read", "bounced", "failed", "invalid", "pending", "dead"}),
    "delivered": frozenset({"read", "bounced"}),
    "read": frozenset(),
    "bounced": frozenset({"pending"}),
    # A delivery that was collected into another message gets the outcome of that message.
    "skipped": frozenset({"pending", "failed", "invalid", "dead", "expired", "bounced"}),
    "failed": frozenset({"pending"}),
    "invalid": frozenset({"pending"}),
    "expired": frozenset({"pending"}),
    "dead": frozenset({"pending"}),
    "unknown": frozenset({"pending", "dead", "sent", "delivered", "read", "bounced", "failed", "invalid"}),
}

# Final states; only an operator can return a delivery to pending.
ENDED: frozenset[State] = frozenset({"read", "bounced", "skipped", "failed", "invalid", "expired", "dead"})


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
    """A permanent failure of this message: too large, refused, malformed. The address is good."""

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


Outcome: TypeAlias = Sent | Delivered | Retryable | Failed | Invalid | Unknown | Down


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """A provider's later report about an accepted message, by the provider's id.

    `id`: of the receipt itself, if it has one, so that a duplicate counts once.
    """

    provider_id: str
    outcome: Literal["delivered", "read", "bounced", "failed", "invalid", "retry", "down"]
    code: str = ""
    message: str = ""
    id: str | None = None


# Control characters would break a log line or a terminal; PostgreSQL rejects NUL.
_CONTROL = dict.fromkeys((*range(1, 32), 127), " ") | {0: None}
# Characters of a provider's text that are stored.
MOST_TEXT = 500


def kept(text: str) -> str:
    """Return a provider's text as PostgreSQL accepts it: one bad character must not lose the outcomes of a batch."""
    if len(text) <= MOST_TEXT and text.isascii() and text.isprintable():
        return text
    return text.encode("utf-8", "replace").decode().translate(_CONTROL)[:MOST_TEXT]
