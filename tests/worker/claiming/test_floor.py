"""The floor at which a claim starts, and the interval of scans below it. Pure: time is a parameter."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sereno.worker.claiming.floor import AFTER_FAILURE, LONGEST, SHARE, SHORTEST, AgeRanges, Floors, LookBack, ScanReach


def test_a_floor_starts_at_zero_or_at_a_published_value() -> None:
    assert Floors().of("default", 5) == 0
    floors = Floors({"default:5": 40})
    assert (floors.of("default", 5), floors.of("default", 6), floors.of("other", 5)) == (40, 0, 0)
    assert floors.published() == {"default:5": 40}


def test_a_claim_raises_the_floor_to_its_lowest_value() -> None:
    floors = Floors()
    floors.claimed("default", 5, [12, 10, 11], filled=True)
    assert floors.of("default", 5) == 10
    floors.claimed("default", 5, [13, 14], filled=False)
    assert floors.of("default", 5) == 13


def test_old_jobs_lower_the_floor_only_while_there_are_more_of_them() -> None:
    floors = Floors({"default:5": 100})
    floors.claimed("default", 5, [7, 8], filled=False)
    assert floors.of("default", 5) == 100
    floors.claimed("default", 5, [7, 8], filled=True)
    assert floors.of("default", 5) == 7


def test_a_claim_of_old_and_new_jobs_has_exhausted_the_old_ones() -> None:
    floors = Floors({"default:5": 100})
    floors.claimed("default", 5, [7, 100, 101], filled=True)
    assert floors.of("default", 5) == 100


@pytest.mark.slow
@given(st.lists(st.lists(st.integers(1, 1000), min_size=1, unique=True), max_size=20), st.booleans())
def test_a_floor_never_rises_above_what_was_claimed(claims: list[list[int]], filled: bool) -> None:
    floors = Floors()
    for claimed in claims:
        before = floors.of("default", 5)
        floors.claimed("default", 5, claimed, filled=filled)
        assert floors.of("default", 5) in {before, *claimed}
        assert floors.of("default", 5) <= max(before, *claimed)


@given(st.floats(0, 1e6), st.floats(0, 100), st.floats(0, 1))
def test_a_look_back_takes_its_share_of_the_time_within_bounds(now: float, cost: float, usual: float) -> None:
    back = LookBack()
    assert back.begins(now)
    back.done(now, cost, usual)
    assert back.due_in(now) == pytest.approx(SHORTEST, abs=1e-6), "one slow look-back may be chance"
    assert not back.begins(now)
    back.done(now, cost, usual)
    rest = min(LONGEST, max(SHORTEST, max(0.0, cost - usual) / SHARE))
    assert back.due_in(now) == pytest.approx(rest, abs=1e-6)
    assert back.due_in(now + rest * 1.01) == 0


def test_a_look_back_requested_during_one_applies_to_the_next() -> None:
    back = LookBack()
    back.done(0.0, 10.0, 0.0)
    back.done(0.0, 10.0, 0.0)
    assert not back.begins(1.0)
    back.ask()
    assert back.begins(1.0)
    back.ask()
    back.done(2.0, 10.0, 0.0)
    assert back.begins(2.0)
    assert not back.begins(2.0)


def test_a_look_back_that_timed_out_is_not_retried_at_once() -> None:
    back = LookBack()
    assert back.begins(100.0)
    back.failed(115.0)
    assert not back.begins(115.0)
    assert back.due_in(115.0) == AFTER_FAILURE > SHORTEST


def test_ages_are_read_part_by_part_after_a_timeout() -> None:
    ages = AgeRanges(60.0, 1e9)
    assert ages.part == (1e9, 60.0)
    ages.done(0.001)
    assert ages.part == (1e9, 60.0), "a cheap scan reads everything again"
    ages.failed()
    parts: list[tuple[float, float]] = []
    while not parts or ages.part[1] > 60.0:
        parts.append(ages.part)
        ages.done(10.0)
        if len(parts) == 3:
            ages.failed()
            assert ages.part[1] == parts[-1][0], "it continues where it stopped"
            while ages.part[0] < 1e9:
                parts.append(ages.part)
                ages.done(0.001)
    assert parts[0][1] == 60.0
    assert all(before[0] == after[1] for before, after in pairwise(parts))


def test_a_reach_shrinks_after_a_timeout_and_grows_back_to_unlimited() -> None:
    reach = ScanReach(100)
    assert reach.start(10_000) == 0
    reach.failed()
    assert reach.start(10_000) == 9_900
    reach.failed()
    assert reach.start(10_000) == 9_988
    for _ in range(12):
        reach.done(10_000)
    assert reach.is_unlimited
    assert reach.start(10_000) == 0
