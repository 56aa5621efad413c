"""Maps outcomes to transitions of deliveries."""

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sereno.channels.outcome import Delivered, Down, Failed, Invalid, Outcome, Retryable, Sent, Unknown
from sereno.notifications.deliveries.delivery import ENDED, TRANSITIONS
from sereno.notifications.deliveries.transition import LONGEST_AFTER, DeliveryPolicy, judge

POLICY = DeliveryPolicy(delays=(60.0, 120.0), receipts_after=900.0)
PARKED = DeliveryPolicy(delays=(60.0,), on_unknown="park")
CHANCE = Random(1)

outcomes: st.SearchStrategy[Outcome] = st.one_of(
    st.builds(Sent, st.none() | st.text(max_size=5)),
    st.builds(Delivered, st.none() | st.text(max_size=5)),
    st.builds(Retryable, st.text(), st.text(), st.none() | st.floats(0, 1e5)),
    *[st.builds(kind, st.text(), st.text()) for kind in (Failed, Invalid, Unknown, Down)],
)


EXPECTED: list[tuple[Outcome, int, DeliveryPolicy, dict[str, Any]]] = [
    (Sent("p1"), 1, POLICY, {"state": "sent", "provider_id": "p1", "receipt_in": 900.0}),
    (Sent(), 1, POLICY, {"state": "sent", "receipt_in": None}),
    (Delivered("p1"), 1, POLICY, {"state": "delivered", "receipt_in": None}),
    (Failed("big", "4 MB"), 1, POLICY, {"state": "failed", "code": "big", "message": "4 MB", "bad_address": False}),
    (Invalid("gone"), 1, POLICY, {"state": "invalid", "bad_address": True}),
    (Unknown("cut"), 1, PARKED, {"state": "unknown", "is_unknown": True, "due_in": None}),
    (Unknown("cut"), 3, POLICY, {"state": "dead", "is_unknown": True}),
    (Retryable("busy"), 3, POLICY, {"state": "dead", "due_in": None}),
    (Down("denied"), 9, POLICY, {"state": "pending", "refund": True, "due_in": None}),
]


def test_each_outcome_has_one_transition(subtests: pytest.Subtests) -> None:
    for outcome, attempt, policy, expected in EXPECTED:
        with subtests.test(outcome=outcome, attempt=attempt):
            transition = judge(7, attempt, outcome, policy, CHANCE)
            assert transition.id == 7
            assert {name: getattr(transition, name) for name in expected} == expected


@pytest.mark.slow
@given(outcomes, st.integers(1, 5), st.sampled_from([POLICY, PARKED]))
def test_every_transition_is_legal_from_sending(outcome: Outcome, attempt: int, policy: DeliveryPolicy) -> None:
    transition = judge(1, attempt, outcome, policy, CHANCE)
    assert transition.state in TRANSITIONS["sending"]
    if transition.state in ENDED:
        assert transition.due_in is None


@given(st.integers(1, 2), st.none() | st.floats(0, 1e6))
def test_no_retry_is_earlier_than_the_provider_or_the_policy_requires(attempt: int, after: float | None) -> None:
    transition = judge(1, attempt, Retryable("busy", after=after), POLICY, CHANCE)
    assert transition.due_in is not None
    assert transition.due_in >= max(POLICY.delays[attempt - 1], min(after or 0.0, LONGEST_AFTER))


def test_any_text_of_a_provider_can_be_stored() -> None:
    transition = judge(1, 1, Failed("a\x00b", "\ud800" + "x" * 10_000), POLICY, CHANCE)
    assert transition.code == "a\N{REPLACEMENT CHARACTER}b"
    assert transition.message == "?" + "x" * 499


def test_ended_deliveries_return_to_pending_only() -> None:
    # Deliveries collected into another message are the exception: they get its state.
    assert {after for state in ENDED - {"skipped"} for after in TRANSITIONS[state]} <= {"pending"}
    assert TRANSITIONS["skipped"] - {"pending"} <= ENDED
    assert all(after in TRANSITIONS for afters in TRANSITIONS.values() for after in afters)
