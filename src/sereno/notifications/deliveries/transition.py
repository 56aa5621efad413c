"""Maps the outcome of a delivery to its next state, its retry, and whether its address is deactivated."""

import math
from collections.abc import Sequence
from random import Random
from typing import Literal, assert_never

import msgspec

from sereno.channels.outcome import Delivered, Down, Failed, Invalid, Outcome, Retryable, Sent, Unknown
from sereno.error_text import one_line
from sereno.notifications.deliveries.delivery import State

# Longest retry delay in seconds that a provider can impose.
LONGEST_AFTER = 7 * 86400.0
# Random share added to a delay, so that throttled deliveries do not return at the same moment.
SPREAD = 0.1


class DeliveryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Retry policy of a channel. `delays`: seconds after the first attempt, the second, and so on; then it is dead.

    `on_unknown`: what to do when it is unknown whether the message was sent. `receipts_after`: seconds until receipts
    can be requested, `receipts_for`: for how many seconds. `has_webhook`: the provider sends receipts to a webhook.
    """

    delays: Sequence[float]
    on_unknown: Literal["retry", "park"] = "retry"
    receipts_after: float | None = None
    receipts_for: float = 24 * 3600.0
    has_webhook: bool = True


class Transition(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The state change of one delivery, as it is stored.

    `bad_address`: the address is deactivated. `is_unknown`: it is unknown whether it was sent. `refund`: the attempt is
    not counted.
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
    # The attempt that the outcome belongs to; a later attempt is not changed.
    attempt: int | None = None


def judge(delivery: int, attempt: int, outcome: Outcome, policy: DeliveryPolicy, chance: Random) -> Transition:
    """Return the transition for an outcome. `attempt`: number of attempts, including this one."""
    transition = _judge(delivery, attempt, outcome, policy, chance)
    transition.attempt = attempt
    # Not a loop over the names, which is slower: this is called for every delivery.
    if transition.code is not None:
        transition.code = one_line(str(transition.code))
    if transition.message is not None:
        transition.message = one_line(str(transition.message))
    if transition.provider_id is not None:
        transition.provider_id = one_line(str(transition.provider_id))
    return transition


def _judge(delivery: int, attempt: int, outcome: Outcome, policy: DeliveryPolicy, chance: Random) -> Transition:
    match outcome:
        case Sent(provider_id):
            receipt_in = policy.receipts_after if provider_id is not None else None
            return Transition(id=delivery, state="sent", provider_id=provider_id, receipt_in=receipt_in)
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
            transition.state, transition.reason = "unknown", "it may have been sent: an operator has to decide"
            return transition
        case Down(code, message):
            return Transition(
                id=delivery, state="pending", reason="the channel is paused", code=code, message=message, refund=True
            )
        case _:
            assert_never(outcome)


def _again(
    transition: Transition, attempt: int, after: float | None, policy: DeliveryPolicy, chance: Random
) -> Transition:
    """Schedule a retry, never earlier than the provider requires; dead when the delays are used up."""
    if attempt > len(policy.delays):
        transition.state, transition.reason = "dead", f"{attempt} attempts failed"
        return transition
    delay = policy.delays[attempt - 1] * (1 + SPREAD * chance.random())
    required = after if after is not None and math.isfinite(after) else 0.0
    transition.due_in = max(delay, min(required, LONGEST_AFTER))
    transition.reason = "tried again"
    return transition
