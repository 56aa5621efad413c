"""What an outcome means for a delivery: its next state, when it is tried again, whether its address is still good."""

import math
from collections.abc import Sequence
from random import Random
from typing import Literal, assert_never

import msgspec

from sereno.channels.outcome import Delivered, Down, Failed, Invalid, Outcome, Retryable, Sent, Unknown
from sereno.error_text import one_line
from sereno.notifications.deliveries.delivery import State

# Nobody waits longer because a provider says so.
LONGEST_AFTER = 7 * 86400.0
# Of what is too many at once: nobody comes back at the same moment.
SPREAD = 0.1


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """How a channel is tried again. `delays`: after the first try, the second, and so on; then it is a dead letter.

    `on_unknown`: what to do when nobody knows whether it was sent. `receipts_after`: seconds until the provider can be
    asked what became of it, `receipts_for`: how long it can. `is_told`: the provider tells by itself.
    """

    delays: Sequence[float]
    on_unknown: Literal["retry", "park"] = "retry"
    receipts_after: float | None = None
    receipts_for: float = 24 * 3600.0
    is_told: bool = True


class Transition(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What became of one delivery, as it is written.

    `bad_address`: the address is deactivated. `is_unknown`: nobody knows whether it was sent. `refund`: this try does
    not count.
    """

    id: int
    state: State
    reason: str | None = None
    code: str | None = None
    message: str | None = None
    provider_id: str | None = None
    due_in: float | None = None
    receipt_in: float | None = None
    bad_address: bool = False
    is_unknown: bool = False
    refund: bool = False
    # The try that it is about; a later one is left alone.
    attempt: int | None = None


def judge(delivery: int, attempt: int, outcome: Outcome, policy: Policy, chance: Random) -> Transition:
    """`attempt`: how many tries there were, this one among them."""
    transition = _judge(delivery, attempt, outcome, policy, chance)
    transition.attempt = attempt
    for name in ("code", "message", "provider_id"):
        if (text := getattr(transition, name)) is not None:
            setattr(transition, name, one_line(str(text)))
    return transition


def _judge(delivery: int, attempt: int, outcome: Outcome, policy: Policy, chance: Random) -> Transition:
    match outcome:
        case Sent(provider_id):
            asked = policy.receipts_after if provider_id is not None else None
            return Transition(id=delivery, state="sent", provider_id=provider_id, receipt_in=asked)
        case Delivered(provider_id):
            return Transition(id=delivery, state="delivered", provider_id=provider_id)
        case Retryable(code, message, after):
            return _again(
                Transition(id=delivery, state="pending", code=code, message=message), attempt, after, policy, chance
            )
        case Failed(code, message):
            return Transition(id=delivery, state="failed", reason="refused", code=code, message=message)
        case Invalid(code, message):
            return Transition(
                id=delivery, state="invalid", reason="no such address", code=code, message=message, bad_address=True
            )
        case Unknown(code, message):
            transition = Transition(id=delivery, state="pending", code=code, message=message, is_unknown=True)
            if policy.on_unknown == "retry":
                return _again(transition, attempt, None, policy, chance)
            transition.state, transition.reason = "unknown", "it may have been sent: somebody has to decide"
            return transition
        case Down(code, message):
            return Transition(
                id=delivery, state="pending", reason="the channel is paused", code=code, message=message, refund=True
            )
        case _:
            assert_never(outcome)


def _again(transition: Transition, attempt: int, after: float | None, policy: Policy, chance: Random) -> Transition:
    """Never earlier than the provider said."""
    if attempt > len(policy.delays):
        transition.state, transition.reason = "dead", f"{attempt} tries, none of them arrived"
        return transition
    delay = policy.delays[attempt - 1] * (1 + SPREAD * chance.random())
    asked = after if after is not None and math.isfinite(after) else 0.0
    transition.due_in = max(delay, min(asked, LONGEST_AFTER))
    transition.reason = "tried again"
    return transition
