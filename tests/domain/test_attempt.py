"""What each ending of an attempt means for its job: decided in one pure function."""

from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sereno import Backoff, Cancel, ConfigurationError, Dead, Outcome, Retry, Snooze
from sereno.domain.attempt import (
    CRASH_LIMIT,
    MESSAGE_LIMIT,
    TRACEBACK_LIMIT,
    Crashed,
    Ending,
    IsolatedError,
    Released,
    Settlement,
    described,
    settlement,
    storable,
)

POLICY = Backoff(3, first="1m", jitter=0, permanent=(KeyError,))


def decide(ending: Ending, failures: int = 0, crashes: int = 0, policy: Backoff = POLICY) -> Settlement:
    return settlement(ending, failures=failures, crashes=crashes, policy=policy, chance=Random(1))


@pytest.mark.parametrize("failures", range(6))
@pytest.mark.parametrize("ending", [ValueError("x"), Retry("x"), TimeoutError(), Outcome("x")], ids=repr)
def test_a_failure_is_retried_until_the_tries_are_used_up(ending: Ending, failures: int) -> None:
    decision = decide(ending, failures)
    if failures < 3:
        assert (decision.outcome, decision.delay, decision.failed) == ("retry", 60 * 2**failures, 0)
    else:
        assert (decision.outcome, decision.failed) == ("dead", 1)
        assert decision.reason == f"failed {failures + 1} times"
    assert decision.error is ending


@given(st.integers(0, 20), st.integers(0, 20), st.sampled_from([None, Snooze(5), Cancel(), Released("x"), Dead("x")]))
def test_these_endings_do_not_care_how_often_it_failed_or_crashed(failures: int, crashes: int, ending: Ending) -> None:
    assert decide(ending, failures, crashes) == decide(ending)


def test_a_return_is_a_success() -> None:
    assert decide(None).outcome == "succeeded"


def test_a_retry_may_choose_its_time_but_not_its_number() -> None:
    assert decide(Retry(after="5s")).delay == 5
    assert decide(Retry(after=0)).delay == 0
    assert decide(Retry(after="5s"), failures=3).outcome == "dead"


def test_a_snooze_costs_nothing() -> None:
    until = datetime(2030, 1, 1, tzinfo=UTC)
    waits, waits_until = decide(Snooze("10m", reason="later"), 99, 99), decide(Snooze(until=until))
    assert (waits.outcome, waits.delay, waits.reason, waits.failed) == ("snooze", 600, "later", 0)
    assert (waits_until.outcome, waits_until.until, waits_until.delay) == ("snooze", until, 0)


def test_a_permanent_error_is_dead_at_once() -> None:
    decision = decide(KeyError("gone"))
    assert (decision.outcome, decision.failed, decision.reason) == ("dead", 1, "permanent error: KeyError")


def test_dead_and_cancelled_say_why() -> None:
    assert decide(Dead("closed")) == Settlement("dead", reason="closed", failed=1)
    assert decide(Cancel("no")) == Settlement("cancelled", reason="no")
    assert decide(Dead()).reason == decide(Cancel()).reason == "the task said so"


def test_a_dead_letter_keeps_the_error_it_was_raised_from() -> None:
    dead = Dead("closed")
    dead.__cause__ = ValueError("cause")
    assert described(decide(dead).error)[:2] == ("ValueError", "cause")


@pytest.mark.parametrize("crashes", range(CRASH_LIMIT + 2))
def test_a_job_that_kills_its_process_too_often_is_dead(crashes: int) -> None:
    decision = decide(Crashed("signal 9"), crashes=crashes)
    if crashes + 1 < CRASH_LIMIT:
        assert (decision.outcome, decision.delay) == ("crash", 60)
    else:
        assert (decision.outcome, decision.crashed, decision.failed) == ("dead", 1, 0)
        assert "crash loop" in str(decision.reason)


def test_a_crash_without_retries_is_tried_again_all_the_same() -> None:
    assert decide(Crashed("signal 9"), policy=Backoff(0)) == Settlement("crash", reason="signal 9")


def test_a_release_remembers_whether_it_had_started() -> None:
    assert decide(Released("shutdown", started=False)) == Settlement("release", reason="shutdown", started=False)


def test_a_decision_of_another_process_stands() -> None:
    decision = Settlement("retry", delay=7)
    assert decide(decision, failures=99) is decision


NAIVE = datetime(2030, 1, 1)  # noqa: DTZ001 - the point


@pytest.mark.parametrize("wrong", [{}, {"wait": 1, "until": NAIVE.replace(tzinfo=UTC)}, {"until": NAIVE}])
def test_a_snooze_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        Snooze(**wrong)


class Unspeakable(Exception):  # noqa: N818 - named for the test
    def __str__(self) -> str:
        raise RuntimeError("no words")


ERRORS = [Unspeakable(), ValueError("a\x00b"), ValueError("\ud800"), ExceptionGroup("g", [ValueError("\x00")])]


@pytest.mark.parametrize("error", ERRORS, ids=["unspeakable", "nul", "surrogate", "group"])
def test_any_error_can_be_described_and_stored(error: Exception) -> None:
    try:
        raise error  # noqa: TRY301 - with a traceback
    except Exception as raised:  # noqa: BLE001 - any
        kind, message, trace = described(raised)
    for text in (kind, message, trace):
        assert text is not None
        assert "\x00" not in text
        text.encode()


def test_a_long_story_is_cut_where_it_says_the_least() -> None:
    try:
        raise ValueError("m" * 100_000 + "end")  # noqa: TRY301 - with a traceback
    except ValueError as error:
        _, message, trace = described(error)
    assert message == "m" * MESSAGE_LIMIT
    assert trace is not None
    assert len(trace) == TRACEBACK_LIMIT
    assert trace.endswith("end\n")


def test_the_error_of_another_process_keeps_its_own_words() -> None:
    assert described(IsolatedError("Kind", "message", "trace")) == ("Kind", "message", "trace")
    assert described(None) == (None, None, None)


@given(st.text())
def test_any_text_is_storable(text: str) -> None:
    assert "\x00" not in storable(text)
    assert len(storable(text)) <= MESSAGE_LIMIT
