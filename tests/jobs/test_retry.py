"""Retry policies: delays are within their bounds, and the number of retries is exact."""

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sereno import Backoff, ConfigurationError

LENGTHS = st.floats(0, 1e6)
policies = st.builds(
    Backoff,
    st.integers(0, 50),
    first=LENGTHS,
    factor=st.floats(1, 1e6),
    cap=LENGTHS,
    jitter=st.floats(0, 10),
)
generators = st.builds(Random, st.integers())


@given(policies, st.integers(1, 10_000), generators)
def test_a_delay_is_between_the_planned_one_and_the_cap_with_jitter(
    policy: Backoff, failures: int, rng: Random
) -> None:
    delay = policy.delay(failures, rng)
    if failures > policy.retries:
        assert delay is None
        return
    assert delay is not None
    planned = min(policy.cap, policy.first * policy.factor ** min(failures - 1, 50))
    assert planned <= delay <= policy.cap * (1 + policy.jitter) * 1.000001


@given(policies, generators)
def test_the_number_of_retries_is_exact(policy: Backoff, rng: Random) -> None:
    waits = [policy.delay(failures, rng) for failures in range(1, policy.retries + 3)]
    assert all(wait is not None for wait in waits[: policy.retries])
    assert waits[policy.retries :] == [None, None]


@given(st.integers(1, 20), generators)
def test_delays_without_jitter_grow_up_to_the_cap(retries: int, rng: Random) -> None:
    policy = Backoff(retries, first="1m", cap="60m", jitter=0)
    waits = [policy.delay(failures, rng) for failures in range(1, retries + 1)]
    assert waits == [min(3600, 60 * 2**n) for n in range(retries)]


def test_the_last_delay_of_a_list_is_repeated() -> None:
    policy = Backoff(5, delays=["15m", "30m", "60m"], jitter=0)
    assert [policy.delay(failures, Random()) for failures in range(1, 7)] == [900, 1800, 3600, 3600, 3600, None]


def test_a_function_can_return_the_delay() -> None:
    policy = Backoff(3, function=lambda failures: f"{failures}m", jitter=0)
    assert [policy.delay(failures, Random()) for failures in range(1, 5)] == [60, 120, 180, None]


def test_an_invalid_delay_from_a_function_is_replaced_by_the_first_delay(subtests: pytest.Subtests) -> None:
    def policy(delay: Any) -> Backoff:
        return Backoff(3, function=lambda _: delay, first="7s", jitter=0)

    for delay in [-1, "soon", None, float("nan")]:
        with subtests.test(delay=delay):
            assert policy(delay).delay(1, Random()) == 7


def test_a_function_that_raises_is_replaced_by_the_first_delay() -> None:
    assert Backoff(3, function=lambda failures: 1 / (failures - 1), first="7s", jitter=0).delay(1, Random()) == 7


def test_permanent_errors_are_recognised_by_their_class() -> None:
    policy = Backoff(permanent=(LookupError,))
    assert policy.is_permanent(KeyError("x"))
    assert not policy.is_permanent(ValueError("x"))


INVALID_POLICIES = (
    {"retries": -1},
    {"factor": 0.5},
    {"factor": float("nan")},
    {"factor": float("inf")},
    {"jitter": -0.1},
    {"jitter": float("nan")},
    {"jitter": float("inf")},
    {"first": "soon"},
    {"cap": -1},
    {"delays": ["15m", "soon"]},
    {"delays": ["15m"], "function": float},
)


def test_an_invalid_policy_is_refused(subtests: pytest.Subtests) -> None:
    for wrong in INVALID_POLICIES:
        with subtests.test(wrong=wrong), pytest.raises(ConfigurationError):
            Backoff(**wrong)
