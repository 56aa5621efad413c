"""Slot groups in the list of a limiter."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sereno.jobs.limits.slot_sharing import joined, slot_groups, slots_in_use, without

ids = st.lists(st.integers(1, 50), max_size=8, unique=True)


@st.composite
def lists(draw: st.DrawFn) -> list[int]:
    held: list[int] = []
    for slots, jobs in draw(st.lists(st.tuples(st.integers(1, 3), ids), max_size=5)):
        held = joined(held, slots, jobs)
    return held


def test_a_job_has_one_slot_and_a_slot_group_its_number() -> None:
    held = [4, 5, -2, 6, 7, 8, -1, 9, 10]
    assert slot_groups(held)[1:] == [(2, [6, 7, 8]), (1, [9, 10])]
    assert slots_in_use(held) == 2 + 2 + 1
    assert slots_in_use([4, 5]) == 2
    assert slots_in_use([]) == 0


def test_a_slot_group_with_a_slot_for_each_job_is_dissolved() -> None:
    assert without([4, -2, 6, 7, 8], {7}) == [4, 6, 8]
    assert without([4, -2, 6, 7, 8], {4, 6, 7, 8}) == []
    assert joined([4], 2, [5, 6]) == [5, 6, 4]


def test_a_job_claimed_again_is_listed_once() -> None:
    assert joined([-1, 4, 5, 6], 1, [4]) == [4, -1, 5, 6]


@pytest.mark.slow
@given(lists(), ids)
def test_removing_jobs_never_changes_the_slots_of_others(held: list[int], removed: list[int]) -> None:
    left = without(held, set(removed))
    assert sorted(job for job in left if job > 0) == sorted(job for job in held if job > 0 and job not in removed)
    assert slots_in_use(left) <= slots_in_use(held)
    assert slots_in_use(left) == sum(
        min(slots, sum(job not in removed for job in jobs)) for slots, jobs in slot_groups(held)
    )


@pytest.mark.slow
@given(lists(), st.integers(1, 4), ids)
def test_new_jobs_take_only_their_slots(held: list[int], slots: int, jobs: list[int]) -> None:
    before = slots_in_use(without(held, set(jobs)))
    after = joined(held, slots, jobs)
    assert slots_in_use(after) == before + min(slots, len(jobs))
    assert sorted(job for job in after if job > 0) == sorted({job for job in held if job > 0} | set(jobs))
