"""The settlement of each outcome of an attempt, decided by one pure function."""

from datetime import UTC, datetime, timedelta, tzinfo
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sereno import Backoff, Cancel, ConfigurationError, Dead, Outcome, Retry, RetryAfter, Snooze
from sereno.error_text import ErrorText, describe
from sereno.jobs.attempt import (
    CRASH_LIMIT,
    CrashedAttempt,
    Ending,
    ReleasedAttempt,
    Settlement,
    Throttle,
    settlement,
)

POLICY = Backoff(3, first="1m", jitter=0, permanent=(KeyError,))


def decide(ending: Ending, failures: int = 0, crashes: int = 0, policy: Backoff = POLICY) -> Settlement:
    return settlement(ending, failures=failures, crashes=crashes, policy=policy, chance=Random(1))


def test_a_failure_is_retried_until_no_retry_is_left(subtests: pytest.Subtests) -> None:
    for failures in range(6):
        for ending in [ValueError("x"), Retry("x"), TimeoutError(), Outcome("x")]:
            with subtests.test(failures=failures, ending=ending):
                decision = decide(ending, failures)
                if failures < 3:
                    assert (decision.outcome, decision.delay, decision.failed) == ("retry", 60 * 2**failures, 0)
                else:
                    assert (decision.outcome, decision.failed) == ("dead", 1)
                    assert decision.reason == f"failed {failures + 1} times"
                assert isinstance(ending, Exception)
                assert decision.error == describe(ending)


@given(
    st.integers(0, 20),
    st.integers(0, 20),
    st.sampled_from([None, Snooze(5), Cancel(), ReleasedAttempt("x"), Dead("x")]),
)
def test_outcomes_other_than_failures_ignore_the_counts(failures: int, crashes: int, ending: Ending) -> None:
    assert decide(ending, failures, crashes) == decide(ending)


def test_an_attempt_that_returns_succeeds() -> None:
    assert decide(None).outcome == "succeeded"


def test_a_retry_may_choose_its_delay_but_not_exceed_the_retries() -> None:
    assert decide(Retry(after="5s")).delay == 5
    assert decide(Retry(after=0)).delay == 0
    assert decide(Retry(after="5s"), failures=3).outcome == "dead"


def test_a_snooze_counts_no_failure() -> None:
    until = datetime(2030, 1, 1, tzinfo=UTC)
    waits, waits_until = decide(Snooze("10m", reason="later"), 99, 99), decide(Snooze(until=until))
    assert (waits.outcome, waits.delay, waits.reason, waits.failed) == ("snooze", 600, "later", 0)
    assert (waits_until.outcome, waits_until.until, waits_until.delay) == ("snooze", until, 0)


def test_a_permanent_error_is_dead_at_once() -> None:
    decision = decide(KeyError("gone"))
    assert (decision.outcome, decision.failed, decision.reason) == ("dead", 1, "permanent error: KeyError")


def test_dead_and_cancelled_store_a_reason() -> None:
    assert decide(Dead("closed")) == Settlement("dead", reason="closed", failed=1)
    assert decide(Cancel("no")) == Settlement("cancelled", reason="no")
    assert decide(Dead()).reason == decide(Cancel()).reason == "decided by the task"


def test_dead_stores_the_error_that_caused_it() -> None:
    dead = Dead("closed")
    dead.__cause__ = ValueError("cause")
    assert decide(dead).error == ErrorText("ValueError", "cause")


def test_a_job_is_dead_after_the_crash_limit(subtests: pytest.Subtests) -> None:
    for crashes in range(CRASH_LIMIT + 2):
        with subtests.test(crashes=crashes):
            decision = decide(CrashedAttempt("signal 9"), crashes=crashes)
            if crashes + 1 < CRASH_LIMIT:
                assert (decision.outcome, decision.delay) == ("crash", 60)
            else:
                assert (decision.outcome, decision.crashed, decision.failed) == ("dead", 1, 0)
                assert "crash loop" in str(decision.reason)


def test_a_crash_is_retried_even_without_retries() -> None:
    assert decide(CrashedAttempt("signal 9"), policy=Backoff(0)) == Settlement("crash", reason="signal 9")


def test_a_release_stores_whether_the_attempt_had_started() -> None:
    assert decide(ReleasedAttempt("shutdown", started=False)) == Settlement("release", reason="shutdown", started=False)


def test_a_settlement_decided_in_another_process_is_not_changed() -> None:
    decision = Settlement("retry", delay=7)
    assert decide(decision, failures=99) is decision


NAIVE = datetime(2030, 1, 1)  # noqa: DTZ001 - the point


def test_an_invalid_snooze_is_refused(subtests: pytest.Subtests) -> None:
    table: list[dict[str, Any]] = [{}, {"wait": 1, "until": NAIVE.replace(tzinfo=UTC)}, {"until": NAIVE}]
    for wrong in table:
        with subtests.test(wrong=wrong), pytest.raises(ConfigurationError):
            Snooze(**wrong)


class DateTime(datetime):
    """A datetime subclass, like pendulum.DateTime and pandas.Timestamp."""


class Seconds(float):
    """A float subclass, like numpy.float64."""


class Zone(tzinfo):
    def dst(self, _: datetime | None) -> None: ...
    def tzname(self, _: datetime | None) -> None: ...


class BrokenZone(Zone):
    def utcoffset(self, _: datetime | None) -> timedelta:
        raise RuntimeError("no offset")


class OddZone(Zone):
    def utcoffset(self, _: datetime | None) -> timedelta:
        return timedelta(seconds=61.5)


def test_a_snooze_until_a_datetime_subclass_is_the_same_instant() -> None:
    zone = ZoneInfo("America/Sao_Paulo")
    instant = datetime(2030, 1, 1, 3, 0, 0, 7, tzinfo=UTC)
    moments = [
        DateTime(2030, 1, 1, 3, 0, 0, 7, tzinfo=UTC),
        DateTime(2030, 1, 1, 0, 0, 0, 7, tzinfo=zone),
        datetime(2030, 1, 1, 3, 1, 1, 500_007, tzinfo=OddZone()),
    ]
    for moment in moments:
        found = decide(Snooze(until=moment)).until
        assert (type(found), found) == (datetime, instant)
        assert found is not None
        assert found.tzinfo is UTC


def test_a_snooze_into_a_repeated_hour_keeps_its_fold() -> None:
    autumn = DateTime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Madrid"), fold=1)
    assert decide(Snooze(until=autumn)).until == datetime(2026, 10, 25, 1, 30, tzinfo=UTC)


def test_a_time_zone_that_raises_is_an_error_of_the_handler() -> None:
    with pytest.raises(RuntimeError, match="no offset"):
        Snooze(until=datetime(2030, 1, 1, tzinfo=BrokenZone()))


def test_a_settlement_holds_only_built_in_types() -> None:
    texts: list[Any] = [7, b"\xff", object(), "a\x00b"]
    for text in texts:
        for ending in (Dead(text), Cancel(text), Retry(text), Snooze(1, reason=text)):
            assert type(decide(ending).reason) is str
    snoozed = decide(Snooze(Seconds(60)))
    assert (snoozed.delay, type(snoozed.delay)) == (60.0, float)
    throttle = decide(RetryAfter(Seconds(60), limit="api")).throttle
    assert throttle == Throttle(60.0, "api")
    assert type(throttle.seconds) is float


def test_an_outcome_with_invalid_attributes_makes_its_job_dead() -> None:
    invalid = [Snooze(1) for _ in range(4)]
    invalid[0].until = datetime(2030, 1, 1, tzinfo=BrokenZone())
    invalid[1].until = NAIVE
    invalid[2].wait = float("nan")
    invalid[3].throttle = 7  # type: ignore[assignment]  # as a careless handler may
    for each in invalid:
        decision = decide(each)
        assert (decision.outcome, decision.reason) == ("dead", "the retry decision failed")
        assert decision.error is not None


def test_a_retry_policy_that_raises_makes_only_its_job_dead() -> None:
    broken = Backoff(3, permanent=("not a class",))  # type: ignore[arg-type]  # the point
    decision = decide(ValueError("x"), policy=broken)
    assert (decision.outcome, decision.failed) == ("dead", 1)


class UnreadableReason(Exception):  # noqa: N818 - named for the test
    @property
    def reason(self) -> str:
        raise KeyboardInterrupt


def test_a_reason_that_cannot_be_read_is_none() -> None:
    assert (decide(UnreadableReason("x")).outcome, decide(UnreadableReason("x")).reason) == ("retry", None)


def test_a_group_of_snoozes_is_a_snooze() -> None:
    waits = ExceptionGroup("nested", [Snooze("10m"), Snooze("20m")])
    assert decide(ExceptionGroup("waits", [waits])).delay == 600.0
    assert decide(ExceptionGroup("mixed", [waits, ValueError("x")])).outcome == "retry"
    assert decide(ExceptionGroup("errors", [ValueError("x")])).outcome == "retry"
