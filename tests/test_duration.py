"""Durations are parsed from text and numbers, and formatted as text."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sereno import ConfigurationError
from sereno.duration import duration_text, seconds

DURATIONS: list[tuple[Any, float]] = [
    ("30s", 30),
    ("120", 120),
    ("15m", 900),
    ("1h30m", 5400),
    ("1h 30m", 5400),
    ("1.5h", 5400),
    ("250ms", 0.25),
    ("2d", 172800),
    ("1w", 604800),
    ("1m30s500ms", 90.5),
    (90, 90),
    (0, 0),
    (0.5, 0.5),
    (timedelta(minutes=2), 120),
]


def test_a_duration_is_parsed(subtests: pytest.Subtests) -> None:
    for written, expected in DURATIONS:
        with subtests.test(written=written, expected=expected):
            assert seconds(written) == expected


INVALID_DURATIONS: list[Any] = [
    "",
    "soon",
    "\u00b2",
    "m",
    "15 x",
    "-5m",
    "1e3s",
    "15m soon",
    -1,
    -0.1,
    float("nan"),
    float("inf"),
    10**400,
    timedelta(seconds=-1),
    None,
    True,
    [1],
    "9" * 400 + "s",
]


def test_an_invalid_duration_is_refused(subtests: pytest.Subtests) -> None:
    for wrong in INVALID_DURATIONS:
        with subtests.test(wrong=repr(wrong)[:20]), pytest.raises(ConfigurationError):
            seconds(wrong)


@given(st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=10_000)))
def test_a_timedelta_equals_its_seconds(length: timedelta) -> None:
    assert seconds(length) == seconds(length.total_seconds())


@given(st.integers(0, 100), st.integers(0, 59), st.integers(0, 59))
def test_hours_minutes_and_seconds_are_added(hours: int, minutes: int, rest: int) -> None:
    assert seconds(f"{hours}h{minutes}m{rest}s") == hours * 3600 + minutes * 60 + rest


def test_a_duration_is_formatted_with_its_largest_units(subtests: pytest.Subtests) -> None:
    for length, text in [
        (0, "0 ms"),
        (0.85, "850 ms"),
        (12, "12 s"),
        (59.7, "1 m"),
        (200, "3 m 20 s"),
        (20460, "5 h 41 m"),
    ]:
        with subtests.test(length=length, text=text):
            assert duration_text(length) == text
