"""When to try again: never early, never later than promised, and not once too often."""

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
chances = st.builds(Random, st.integers())


@given(policies, st.integers(1, 10_000), chances)
def test_a_wait_is_never_shorter_than_planned_and_never_longer_than_the_cap_with_its_jitter(
    policy: Backoff, failures: int, chance: Random
) -> None:
    delay = policy.delay(failures, chance)
    if failures > policy.retries:
        assert delay is None
        return
    assert delay is not None
    planned = min(policy.cap, policy.first * policy.factor ** min(failures - 1, 50))
    assert planned <= delay <= policy.cap * (1 + policy.jitter) * 1.000001


@given(policies, chances)
def test_it_gives_up_exactly_after_its_retries(policy: Backoff, chance: Random) -> None:
    waits = [policy.delay(failures, chance) for failures in range(1, policy.retries + 3)]
    assert all(wait is not None for wait in waits[: policy.retries])
    assert waits[policy.retries :] == [None, None]


@given(st.integers(1, 20), chances)
def test_waits_without_jitter_grow_until_the_cap(retries: int, chance: Random) -> None:
    policy = Backoff(retries, first="1m", cap="60m", jitter=0)
    waits = [policy.delay(failures, chance) for failures in range(1, retries + 1)]
    assert waits == [min(3600, 60 * 2**n) for n in range(retries)]


def test_a_list_is_followed_and_its_last_wait_repeated() -> None:
    policy = Backoff(5, delays=["15m", "30m", "60m"], jitter=0)
    assert [policy.delay(failures, Random()) for failures in range(1, 7)] == [900, 1800, 3600, 3600, 3600, None]


def test_a_function_decides() -> None:
    policy = Backoff(3, function=lambda failures: f"{failures}m", jitter=0)
    assert [policy.delay(failures, Random()) for failures in range(1, 5)] == [60, 120, 180, None]


@pytest.mark.parametrize("answer", [-1, "soon", None, float("nan")])
def test_a_function_that_talks_nonsense_does_not_keep_the_job_from_settling(answer: Any) -> None:
    policy = Backoff(3, function=lambda _: answer, first="7s", jitter=0)
    assert policy.delay(1, Random()) == 7


def test_a_function_that_fails_does_not_keep_the_job_from_settling() -> None:
    assert Backoff(3, function=lambda failures: 1 / (failures - 1), first="7s", jitter=0).delay(1, Random()) == 7


def test_permanent_errors_are_told_by_their_class() -> None:
    policy = Backoff(permanent=(LookupError,))
    assert policy.is_permanent(KeyError("x"))
    assert not policy.is_permanent(ValueError("x"))


@pytest.mark.parametrize(
    "wrong",
    [
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
    ],
    ids=repr,
)
def test_a_policy_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        Backoff(**wrong)
