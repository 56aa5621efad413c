"""Ratios of a short run beside the recorded ones."""

from bench.ratchet import compare
from bench.report import Figure

RECORDED = [
    Figure("drain", 36_000, "jobs/s", "ceiling", 0.80),
    Figure("drain_cpu", 40, "us/job", "ceiling_cpu", 2.0),
    Figure("ceiling", 45_000, "jobs/s"),
]


def worse(*measured: Figure) -> list[str]:
    return [comparison.figure.name for comparison in compare(RECORDED, measured) if comparison.is_worse]


def test_a_fall_of_more_than_a_tenth_is_worse() -> None:
    assert worse(Figure("drain", 20_000, "jobs/s", "ceiling", 0.73)) == []
    assert worse(Figure("drain", 20_000, "jobs/s", "ceiling", 0.71)) == ["drain"]


def test_processor_time_is_worse_when_it_grows() -> None:
    assert worse(Figure("drain_cpu", 90, "us/job", "ceiling_cpu", 1.5)) == []
    assert worse(Figure("drain_cpu", 90, "us/job", "ceiling_cpu", 2.3)) == ["drain_cpu"]


def test_only_ratios_that_both_have_are_compared() -> None:
    measured = [Figure("ceiling", 9, "jobs/s"), Figure("new", 9, "jobs/s", "ceiling", 0.1)]
    assert compare(RECORDED, measured) == []


def test_a_line_shows_both_ratios_and_marks_a_fall() -> None:
    (comparison,) = compare(RECORDED, [Figure("drain", 9, "jobs/s", "ceiling", 0.6)])
    assert comparison.line().split() == ["drain", "0.60", "of", "ceiling,", "recorded", "0.80", "(-25%)", "WORSE"]
