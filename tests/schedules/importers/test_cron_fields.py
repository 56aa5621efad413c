"""Day of month and day of week that must both match, written as a cron expression where either would be enough."""

from datetime import date, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sereno.schedules.importers.cron_fields import EVERY_MONTH_DAY, EVERY_WEEKDAY, MINUTES, days, field, special_days
from sereno.schedules.importers.draft import UnreadableSchedule
from sereno.schedules.rules.cron import CronExpression

# Leap years and others, and months that begin on every weekday.
DAYS = [date(2027, 1, 1) + timedelta(days=number) for number in range(3 * 366)]
WEEKS = [set(range(first, min(first + 7, 32))) for first in range(1, 32, 7)]


def matching(month_day: str, weekday: str) -> set[date]:
    parsed = CronExpression(f"0 0 {month_day} * {weekday}")._parsed
    return {day for day in DAYS if parsed.match_day(day)}


month_days = st.one_of(
    st.sets(st.integers(1, 31), min_size=1),
    st.sets(st.sampled_from(range(5)), min_size=1).map(lambda weeks: set().union(*(WEEKS[week] for week in weeks))),
    st.integers(1, 31).map(lambda step: set(range(1, 32, step))),
)


@pytest.mark.slow
@settings(max_examples=40)
@given(month_days, st.sets(st.integers(0, 6), min_size=1), st.booleans())
def test_both_days_must_match_or_it_is_refused(month_days: set[int], weekdays: set[int], star: bool) -> None:
    try:
        written = days(month_days, weekdays, star=star)
    except UnreadableSchedule:
        assert 1 not in month_days
        assert 0 not in weekdays
        return
    wanted = {day for day in DAYS if day.day in month_days and day.isoweekday() % 7 in weekdays}
    assert matching(*written) == wanted


EXPRESSIONS = [
    (EVERY_MONTH_DAY, EVERY_WEEKDAY, ("*", "*")),
    ({1, 15}, EVERY_WEEKDAY, ("1,15", "*")),
    ({1}, EVERY_WEEKDAY, ("1", "*")),
    (EVERY_MONTH_DAY, {1, 2, 3, 4, 5}, ("*", "MON-FRI")),
    (EVERY_MONTH_DAY, {0, 6}, ("*", "SUN,SAT")),
    (set(range(1, 8)), {1}, ("*", "MON#1")),
    ({*range(1, 8), *range(15, 22)}, {1, 5}, ("*", "MON#1,FRI#1,MON#3,FRI#3")),
    ({1}, {1}, ("*/31", "MON")),
    ({1, 2, 3, 9}, {1}, ("*/31,2,3,9", "MON")),
    ({13}, {0, 5}, ("13", "*/8,FRI")),
]


def test_expressions_are_written_as_a_person_would(subtests: pytest.Subtests) -> None:
    for month_days, weekdays, written in EXPRESSIONS:
        with subtests.test(month_days=month_days, weekdays=weekdays, written=written):
            assert days(month_days, weekdays) == written


def test_friday_the_thirteenth_cannot_be_expressed() -> None:
    with pytest.raises(
        UnreadableSchedule, match="days 13 of a month that are also FRI: no cron expression can express that"
    ):
        days({13}, {5})


def test_special_days_are_added_to_the_others() -> None:
    assert special_days({1, 15}, EVERY_WEEKDAY, last=True, positions={"FRI#2", "5L"}) == ("1,15,L", "5L,FRI#2")
    assert special_days(set(), EVERY_WEEKDAY, last=True, positions=set()) == ("L", "*")
    assert special_days(set(), EVERY_WEEKDAY, last=False, positions={"FRI#2"}) == ("*", "FRI#2")
    assert special_days(EVERY_MONTH_DAY, EVERY_WEEKDAY, last=True, positions={"FRI#2"}) == ("*", "*")
    with pytest.raises(UnreadableSchedule, match="also a certain weekday"):
        special_days(set(), {1}, last=True, positions=set())


@pytest.mark.slow
@given(st.sets(st.integers(0, 59), min_size=1), st.booleans())
def test_a_field_matches_its_values_and_no_others(values: set[int], star: bool) -> None:
    assert set(CronExpression(f"{field(values, MINUTES, star=star)} 0 * * *")._minutes) == values


def test_a_star_is_preserved() -> None:
    quarters = {0, 15, 30, 45}
    assert (field(quarters, MINUTES, star=True), field(quarters, MINUTES)) == ("*/15", "0,15,30,45")
    with pytest.raises(UnreadableSchedule, match="it never fires"):
        field(set(), MINUTES)
