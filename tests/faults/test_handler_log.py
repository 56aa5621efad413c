"""The checks of the limits fault test report violations, and nothing else."""

import pytest

from tests.faults.handler_log import Run, disorder, excess, peak

pytestmark = pytest.mark.quick


def made(job: int, begin: int, end: int) -> Run:
    return Run(job, 1, "work", "default", "", 1, 0.0, alone=False, begin=begin, end=end)


def test_a_peak_is_the_most_concurrent_runs() -> None:
    assert peak([]) == 0
    # A run that starts when another ends does not overlap with it.
    assert peak([made(1, 0, 10), made(2, 10, 20)]) == 1
    assert peak([made(1, 0, 10), made(2, 5, 20), made(3, 9, 11), made(4, 10, 11)]) == 3


def test_an_excess_is_the_overdraft_of_a_bucket(subtests: pytest.Subtests) -> None:
    for moments, early in (
        ([], 0.0),
        ([0.0, 0.0, 0.1, 0.2], 0.0),
        ([0.0, 0.0, 0.0], 0.1),
        ([0.0, 0.0, 0.1, 0.15], 0.05),
        # A long rest gives no more than the burst.
        ([0.0, 100.0, 100.0, 100.0], 0.1),
    ):
        with subtests.test(moments=moments):
            assert excess(moments, per_second=10, burst=2) == pytest.approx(early)


def test_disorder_is_an_overlap_or_an_earlier_job() -> None:
    first, second, again = made(1, 0, 10), made(2, 10, 20), made(1, 20, 30)
    assert disorder([first, second]) == []
    assert disorder([first, made(2, 9, 20)]) == [(first, made(2, 9, 20))]
    assert disorder([first, second, again]) == [(second, again)]
