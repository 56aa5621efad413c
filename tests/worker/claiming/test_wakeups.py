"""A worker that is notified often polls instead, while many jobs arrive."""

import pytest

from sereno.worker.claiming.wakeups import (
    AGAIN,
    LONGEST_PERIOD,
    LONGEST_REST,
    MANY_A_SECOND,
    OFTEN,
    PERIOD,
    SHORTEST_REST,
    WITHIN,
    Wakeups,
)


def notify(wakeups: Wakeups, now: float, gap: float, times: int = OFTEN) -> float:
    for _ in range(times):
        now += gap
        wakeups.notified(now)
    return now


def polls_for(wakeups: Wakeups, now: float, jobs_a_second: float, at_most: float = 10.0) -> float:
    """Return the seconds of polling at this rate of jobs."""
    began, due = now, 0.0
    while now - began < at_most and (rest := wakeups.rest(now)) is not None:
        assert SHORTEST_REST <= rest <= LONGEST_REST
        now += rest
        due += rest * jobs_a_second
        wakeups.count_jobs(int(due))
        due -= int(due)
    return now - began


def test_a_worker_with_few_notifications_keeps_listening() -> None:
    wakeups = Wakeups()
    now = notify(wakeups, 0.0, 0.01, 1000)
    assert not wakeups.begins_polling(now)
    now = notify(wakeups, now + 1, WITHIN / OFTEN / 2, OFTEN - 1)
    assert not wakeups.begins_polling(now)


def test_a_worker_listens_again_after_a_burst(subtests: pytest.Subtests) -> None:
    for rate in [0, MANY_A_SECOND * 0.7]:
        with subtests.test(rate=rate):
            wakeups = Wakeups()
            now = notify(wakeups, 100.0, WITHIN / OFTEN / 2)
            assert wakeups.begins_polling(now)
            assert not wakeups.begins_polling(now), "it polls already"
            assert polls_for(wakeups, now, rate) == pytest.approx(PERIOD, abs=2 * LONGEST_REST)
            assert not wakeups.is_polling


def test_a_worker_polls_while_many_jobs_arrive() -> None:
    wakeups = Wakeups()
    now = notify(wakeups, 100.0, WITHIN / OFTEN / 2)
    assert wakeups.begins_polling(now)
    assert polls_for(wakeups, now, MANY_A_SECOND * 1.5) >= 10.0
    assert wakeups.is_polling


def test_polling_periods_double_up_to_a_bound() -> None:
    wakeups = Wakeups()
    now, lasted = 100.0, []
    for _ in range(10):
        now = notify(wakeups, now, WITHIN / OFTEN / 2)
        assert wakeups.begins_polling(now)
        lasted.append(polls_for(wakeups, now, 0.0))
        now += lasted[-1]
    assert lasted[1] > 1.5 * lasted[0]
    assert lasted[-1] == pytest.approx(LONGEST_PERIOD, abs=2 * LONGEST_REST)
    now = notify(wakeups, now + 2 * AGAIN, WITHIN / OFTEN / 2)
    assert wakeups.begins_polling(now)
    assert polls_for(wakeups, now, 0.0) == pytest.approx(PERIOD, abs=2 * LONGEST_REST)
