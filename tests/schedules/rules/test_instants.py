"""Instants: clock changes around the world, counting of intervals, and catching up without walking."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from random import Random
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sereno.errors import InvalidSchedule
from sereno.schedules.rules.cron import CronExpression
from sereno.schedules.rules.instants import FIRST, LAST, InstantRule, WallRule, compile_rule, compile_text
from sereno.schedules.rules.when import Cron, Daily, Every, Once, When, encode
from sereno.zones import DAY, SECOND, instant, moment

MINUTE = 60 * SECOND
HOUR = 60 * MINUTE


def at(text: str) -> int:
    return instant(datetime.fromisoformat(text).replace(tzinfo=UTC))


def walk(rule: InstantRule, after: int, until: int, anchor: int = 0) -> list[int]:
    found = []
    following = rule.next(after, anchor)
    while following is not None and following <= until:
        assert following > after
        found.append(following)
        after, following = following, rule.next(following, anchor)
    return found


def fires(when: When, start: str, end: str) -> list[str]:
    return [f"{moment(fire):%m-%d %H:%M}" for fire in walk(compile_rule(when), at(start) - 1, at(end))]


# The night in UTC and the wall time that does not exist; where it moves to; the instant of the next day.
GAPS = [
    ("Africa/Cairo", "0 0 * * *", "2026-04-23 12:00", "04-23 22:00", "04-24 21:00"),
    ("Africa/Cairo", "30 0 * * *", "2026-04-23 12:00", "04-23 22:00", "04-24 21:30"),
    ("Antarctica/Troll", "0 1 * * *", "2026-03-28 12:00", "03-29 01:00", "03-29 23:00"),
    ("Antarctica/Troll", "30 2 * * *", "2026-03-28 12:00", "03-29 01:00", "03-30 00:30"),
    ("Australia/Lord_Howe", "15 2 * * *", "2026-10-03 03:00", "10-03 15:30", "10-04 15:15"),
    ("Pacific/Chatham", "0 3 * * *", "2026-09-26 02:00", "09-26 14:00", "09-27 13:15"),
    ("Pacific/Chatham", "45 2 * * *", "2026-09-26 02:00", "09-26 14:00", "09-27 13:00"),
    ("Pacific/Easter", "30 22 * * *", "2026-09-05 12:00", "09-06 04:00", "09-07 03:30"),
    ("America/Godthab", "30 23 * * *", "2026-03-28 12:00", "03-29 01:00", "03-30 00:30"),
    ("America/Havana", "0 0 * * *", "2026-03-07 12:00", "03-08 05:00", "03-09 04:00"),
    ("Europe/Riga", "30 3 * * *", "2026-03-28 12:00", "03-29 01:00", "03-30 00:30"),
]


def test_a_time_that_does_not_exist_runs_right_after_the_gap_or_not_at_all(subtests: pytest.Subtests) -> None:
    for tz, expression, start, shifted, next_day in GAPS:
        with subtests.test(tz=tz, expression=expression, start=start, shifted=shifted, next_day=next_day):
            end = f"{datetime.fromisoformat(start) + timedelta(hours=44):%Y-%m-%d %H:%M}"
            assert fires(Cron(expression, tz=tz), start, end) == [shifted, next_day]
            assert fires(Cron(expression, tz=tz, dst_gap="skip"), start, end) == [next_day]
            minute, hour, *_ = expression.split()
            assert fires(Daily(f"{hour}:{minute:0>2}", tz=tz), start, end) == [shifted, next_day]
            assert fires(Daily(f"{hour}:{minute:0>2}", tz=tz, dst_gap="skip"), start, end) == [next_day]


# A wall time that occurs twice, and both of its instants.
FOLDS = [
    ("Africa/Cairo", "30 23 * * *", "2026-10-29 12:00", "10-29 20:30", "10-29 21:30"),
    ("Africa/Cairo", "0 23 * * *", "2026-10-29 12:00", "10-29 20:00", "10-29 21:00"),
    ("Antarctica/Troll", "30 2 * * *", "2026-10-24 12:00", "10-25 00:30", "10-25 02:30"),
    ("Antarctica/Troll", "0 1 * * *", "2026-10-24 12:00", "10-24 23:00", "10-25 01:00"),
    ("Australia/Lord_Howe", "45 1 * * *", "2026-04-04 03:00", "04-04 14:45", "04-04 15:15"),
    ("Pacific/Chatham", "0 3 * * *", "2026-04-04 02:00", "04-04 13:15", "04-04 14:15"),
    ("Pacific/Chatham", "44 3 * * *", "2026-04-04 02:00", "04-04 13:59", "04-04 14:59"),
    ("Pacific/Easter", "30 21 * * *", "2026-04-04 12:00", "04-05 02:30", "04-05 03:30"),
    ("America/Godthab", "30 23 * * *", "2026-10-24 12:00", "10-25 00:30", "10-25 01:30"),
    ("America/Havana", "30 0 * * *", "2025-11-01 12:00", "11-02 04:30", "11-02 05:30"),
    ("Europe/Riga", "30 3 * * *", "2026-10-24 12:00", "10-25 00:30", "10-25 01:30"),
]


def test_a_repeated_time_runs_on_the_chosen_pass(subtests: pytest.Subtests) -> None:
    for tz, expression, start, first, second in FOLDS:
        with subtests.test(tz=tz, expression=expression, start=start, first=first, second=second):
            end = f"{datetime.fromisoformat(start) + timedelta(hours=24):%Y-%m-%d %H:%M}"
            assert fires(Cron(expression, tz=tz), start, end) == [first]
            assert fires(Cron(expression, tz=tz, dst_fold="second"), start, end) == [second]
            assert fires(Cron(expression, tz=tz, dst_fold="both"), start, end) == [first, second]
            minute, hour, *_ = expression.split()
            assert fires(Daily(f"{hour}:{minute:0>2}", tz=tz, dst_fold="second"), start, end) == [second]


PASSES: tuple[Literal["first", "second", "both"], ...] = ("first", "second", "both")


def test_the_first_time_after_a_fold_runs_once(subtests: pytest.Subtests) -> None:
    """At 00:00 the clock of Cairo goes back to 23:00; at 01:00 that of Havana to 00:00. Neither hour is repeated."""
    for fold in PASSES:
        with subtests.test(fold=fold):
            assert fires(
                Cron("0 0 * * *", tz="Africa/Cairo", dst_fold=fold), "2026-10-29 12:00", "2026-10-30 12:00"
            ) == ["10-29 22:00"]
            assert fires(
                Cron("0 1 * * *", tz="America/Havana", dst_fold=fold), "2025-11-01 12:00", "2025-11-02 12:00"
            ) == ["11-02 06:00"]


def test_no_instant_fires_twice(subtests: pytest.Subtests) -> None:
    for tz, expression, start, end, expected in [
        # Several are skipped by the gap, and one falls on its end: one run.
        ("Antarctica/Troll", "0,30 1,2 * * *", "2026-03-28 23:30", "2026-03-29 12:00", ["03-29 01:00"]),
        ("Australia/Lord_Howe", "15,30 2 * * *", "2026-10-03 12:00", "2026-10-04 12:00", ["10-03 15:30"]),
        ("Europe/Riga", "0 3,4 * * *", "2026-03-28 12:00", "2026-03-29 12:00", ["03-29 01:00"]),
        # Listed hours are not a wildcard: a repeated hour runs once.
        (
            "Europe/Riga",
            "30 0-5 * * *",
            "2026-10-24 23:00",
            "2026-10-25 03:00",
            ["10-24 23:30", "10-25 00:30", "10-25 02:30"],
        ),
    ]:
        with subtests.test(tz=tz, expression=expression, start=start, end=end, expected=expected):
            assert fires(Cron(expression, tz=tz), start, end) == expected


def test_a_missing_day_is_a_long_gap() -> None:
    """Samoa had no 30 December 2011."""
    start, end = "2011-12-29 12:00", "2011-12-31 12:00"
    assert fires(Daily("09:00", tz="Pacific/Apia"), start, end) == ["12-29 19:00", "12-30 10:00", "12-30 19:00"]
    assert fires(Daily("09:00", tz="Pacific/Apia", dst_gap="skip"), start, end) == ["12-29 19:00", "12-30 19:00"]
    assert fires(Daily("00:00", tz="Pacific/Apia"), start, end) == ["12-30 10:00", "12-31 10:00"]
    assert fires(Cron("0 9 30 12 *", tz="Pacific/Apia"), start, end) == ["12-30 10:00"]
    assert fires(Cron("0 * 30 12 *", tz="Pacific/Apia"), start, end) == []


ELAPSED_AND_CLOCK: list[tuple[When, str, str, list[str]]] = [
    (
        Cron("*/30 * * * *", tz="Europe/Riga"),
        "2026-03-29 00:00",
        "2026-03-29 02:00",
        ["03-29 00:00", "03-29 00:30", "03-29 01:00", "03-29 01:30", "03-29 02:00"],
    ),
    (Cron("*/30 3 * * *", tz="Europe/Riga"), "2026-03-28 12:00", "2026-03-29 12:00", []),
    (
        Cron("*/30 3 * * *", tz="Europe/Riga"),
        "2026-10-24 12:00",
        "2026-10-25 12:00",
        ["10-25 00:00", "10-25 00:30", "10-25 01:00", "10-25 01:30"],
    ),
    (Cron("0 30 3 * * *", tz="Europe/Riga"), "2026-10-24 12:00", "2026-10-25 12:00", ["10-25 00:30", "10-25 01:30"]),
    (
        Cron("*/10 2 * * *", tz="Australia/Lord_Howe"),
        "2026-04-04 12:00",
        "2026-04-05 12:00",
        ["04-04 15:30", "04-04 15:40", "04-04 15:50", "04-04 16:00", "04-04 16:10", "04-04 16:20"],
    ),
    (
        Cron("*/10 1 * * *", tz="Australia/Lord_Howe"),
        "2026-04-04 14:25",
        "2026-04-05 12:00",
        ["04-04 14:30", "04-04 14:40", "04-04 14:50", "04-04 15:00", "04-04 15:10", "04-04 15:20"],
    ),
    (
        Every("20m", count_from="clock", tz="Europe/Riga"),
        "2026-10-25 00:40",
        "2026-10-25 01:20",
        ["10-25 00:40", "10-25 01:00", "10-25 01:20"],
    ),
    (
        Every("1h", count_from="clock", phase="30m", tz="Europe/Riga"),
        "2026-03-29 00:00",
        "2026-03-29 02:00",
        ["03-29 00:30", "03-29 01:30"],
    ),
    (
        Every("2h", count_from="clock", phase="1h", tz="Europe/Riga"),
        "2026-03-28 23:00",
        "2026-03-29 03:00",
        ["03-28 23:00", "03-29 01:00", "03-29 02:00"],
    ),
    (
        Every("2h", count_from="clock", phase="1h", tz="Europe/Riga"),
        "2026-10-24 22:00",
        "2026-10-25 03:00",
        ["10-24 22:00", "10-25 00:00", "10-25 03:00"],
    ),
    (
        Every("2h", count_from="clock", phase="1h", tz="Europe/Riga", dst_fold="both"),
        "2026-10-24 22:00",
        "2026-10-25 03:00",
        ["10-24 22:00", "10-25 00:00", "10-25 01:00", "10-25 03:00"],
    ),
    (
        Every("1w", count_from="clock", phase="4d9h", tz="Europe/Riga"),
        "2026-03-20 00:00",
        "2026-04-01 00:00",
        ["03-23 07:00", "03-30 06:00"],
    ),
]


def test_short_rules_follow_elapsed_time_and_long_ones_the_clock(subtests: pytest.Subtests) -> None:
    for when, start, end, expected in ELAPSED_AND_CLOCK:
        with subtests.test(when=when, start=start, end=end, expected=expected):
            assert fires(when, start, end) == expected


def test_next_is_always_later_even_inside_a_second_pass() -> None:
    rule = compile_rule(Cron("15-45 3 * * *", tz="Europe/Riga"))
    for minute in range(120):
        after = at("2026-10-25 00:00") + minute * MINUTE
        found = rule.next(after, after)
        assert found is not None
        assert found > after
        assert found <= at("2026-10-25 00:45") or found >= at("2026-10-26 01:15")


def test_a_rule_in_utc_does_not_depend_on_zone_data() -> None:
    fixed: list[When] = [
        Once(datetime(2027, 1, 1, tzinfo=UTC)),
        Every("5m"),
        Every("5m", count_from="end", tz="Europe/Riga"),
        Every("2h", count_from="clock"),
        Cron("0 3 * * *"),
        Daily("03:00", tz="Etc/GMT+5"),
    ]
    moved: list[When] = [
        Cron("0 3 * * *", tz="Europe/Riga"),
        Daily("03:00", tz="Asia/Tokyo"),
        Every("2h", count_from="clock", tz="Asia/Tokyo"),
    ]
    assert [compile_rule(when).uses_zone for when in fixed + moved] == [False] * len(fixed) + [True] * len(moved)


def test_a_compiled_rule_is_shared() -> None:
    assert compile_rule(Every("5m")) is compile_rule(Every(300))
    text = '{"kind": "cron", "expression": "0 3 * * *"}'
    assert compile_text(text) is compile_text(text)
    assert compile_text(text).next(0, 0) == compile_text(encode(Cron("0 3 * * *"))).next(0, 0)
    with pytest.raises(InvalidSchedule):
        compile_text("soon")


def test_once_has_one_instant() -> None:
    rule = compile_rule(Once(datetime(2027, 1, 8, 9, tzinfo=UTC)))
    then = at("2027-01-08 09:00")
    assert (rule.next(then - 1, 0), rule.next(then, 0), rule.next(then + 1, 0)) == (then, None, None)
    assert rule.latest(then - 10 * 365 * DAY, then + 10 * 365 * DAY, 0) == then
    assert (rule.latest(then - 1, then, 0), rule.latest(then, then + 9, 0), rule.latest(0, then - 1, 0)) == (
        then,
        None,
        None,
    )
    assert (rule.count(0, then, 0, 9), rule.count(then, then + 9, 0, 9), rule.count(0, then, 0, 0)) == (1, 0, 0)


small = st.integers(-2000, 2000)


@pytest.mark.slow
@given(st.integers(1, 300), small, small, small, st.integers(0, 30))
def test_step_arithmetic_equals_counting(interval: int, anchor: int, after: int, until: int, cap: int) -> None:
    rule = compile_rule(Every(interval / 1000))
    unit = SECOND // 1000
    marks = [anchor + step * interval for step in range(1, 4100) if anchor + step * interval <= 4500]
    following = [mark for mark in marks if mark > after]
    assert rule.next(after * unit, anchor * unit) == following[0] * unit
    among = [mark for mark in following if mark <= until]
    found = rule.latest(after * unit, until * unit, anchor * unit)
    assert found == (among[-1] * unit if among else None)
    assert rule.count(after * unit, until * unit, anchor * unit, cap) == min(cap, len(among))


def test_counting_from_plan_keeps_the_rhythm_and_from_end_restarts_it() -> None:
    plan, end = compile_rule(Every("10m")), compile_rule(Every("10m", count_from="end"))
    planned, late = at("2026-01-01 00:00"), at("2026-01-01 00:27")
    assert plan.next(late, planned) == at("2026-01-01 00:30")
    assert end.next(late, late) == at("2026-01-01 00:37")
    assert plan.latest(planned, late, planned) == at("2026-01-01 00:20")
    assert plan.count(planned, late, planned, 100) == 2


def test_counting_from_plan_ignores_clock_changes() -> None:
    day = compile_rule(Every("1d", tz="Europe/Riga"))
    assert day.next(at("2026-03-28 12:00"), at("2026-03-28 12:00")) == at("2026-03-29 12:00")


@pytest.mark.slow
@given(
    st.integers(1, 5000),
    st.integers(0, 4999),
    st.integers(FIRST // SECOND + DAY, LAST // SECOND - DAY),
)
def test_clock_aligned_instants_are_multiples_of_the_interval(interval: int, phase: int, after: int) -> None:
    phase %= interval
    rule = compile_rule(Every(interval, count_from="clock", phase=phase))
    found = rule.next(after * SECOND, 0)
    assert found is not None
    assert 0 < found - after * SECOND <= interval * SECOND
    assert found // SECOND % interval == phase


CATCH_UP: list[When] = [
    Cron("* * * * *", tz="Europe/Riga"),
    Cron("*/7 9-17 * * MON-FRI", tz="America/New_York"),
    Cron("*/20 * * * * *"),
    Cron("30 3 * * *", tz="Europe/Riga"),
    Cron("30 3 * * *", tz="Europe/Riga", dst_fold="both"),
    Cron("0 0 1 * *", tz="Africa/Cairo"),
    Daily("01:45", tz="Australia/Lord_Howe", dst_fold="second"),
    Every("45m", count_from="clock", tz="Pacific/Chatham"),
    Every("3h", count_from="clock", tz="Antarctica/Troll"),
    Every("47m"),
    Every("11h", count_from="end"),
]


@pytest.mark.slow
def test_latest_and_count_equal_a_walk(subtests: pytest.Subtests) -> None:
    for when in CATCH_UP:
        with subtests.test(when=when):
            rule, chance = compile_rule(when), Random(4)
            for start in (at("2026-03-20 00:00"), at("2026-10-20 00:00"), at("2026-04-02 00:00")):
                for _ in range(8):
                    after = start + chance.randrange(12 * DAY)
                    until = after + chance.choice([SECOND, HOUR, 5 * HOUR, 2 * DAY]) + chance.randrange(SECOND)
                    anchor = after - chance.randrange(DAY)
                    among = walk(rule, after, until, anchor)
                    assert rule.latest(after, until, anchor) == (among[-1] if among else None)
                    assert rule.count(after, until, anchor, 10**9) == len(among)
                    assert rule.count(after, until, anchor, 3) == min(3, len(among))
                    assert rule.latest(until, after, anchor) is None
                    assert rule.count(until, after, anchor, 3) == 0


@pytest.mark.parametrize(
    ("expression", "most"),
    [("* * * * *", 10), ("* * * * * *", 60), ("0 3 * * *", 10), ("0 0 1 * *", 15), ("0 0 29 2 *", 25)],
)
def test_ninety_missed_days_are_not_walked(expression: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    searches: list[datetime] = []
    next_wall = CronExpression.next_wall

    def counted(self: CronExpression, start: datetime) -> datetime | None:
        searches.append(start)
        return next_wall(self, start)

    rule = compile_rule(Cron(expression, tz="Europe/Riga"))
    monkeypatch.setattr(CronExpression, "next_wall", counted)
    now = at("2026-11-15 05:43:21")
    found = rule.latest(now - 90 * DAY, now, now)
    assert len(searches) <= most
    monkeypatch.undo()
    assert found is None or (found <= now and (rule.next(found, found) or LAST) > now)
    assert (found is None) == (expression == "0 0 29 2 *")


def test_a_rare_day_is_not_searched_again_in_every_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    searches: list[datetime] = []
    next_wall = CronExpression.next_wall

    def counted(self: CronExpression, start: datetime) -> datetime | None:
        searches.append(start)
        return next_wall(self, start)

    rule = compile_rule(Cron("0 0 */28 2 SUN#5", tz="Europe/Riga"))
    monkeypatch.setattr(CronExpression, "next_wall", counted)
    assert rule.next(at("2033-01-01 00:00"), 0) == at("2060-02-28 22:00")
    assert len(searches) <= 2


EDGES: list[When] = [
    Cron("* * * * * *", tz="Europe/Riga"),
    Cron("0 0 29 2 *", tz="Pacific/Kiritimati"),
    Cron("0 0 1 1 *", tz="Pacific/Pago_Pago"),
    Daily("03:00", tz="America/New_York"),
    Every("1w", count_from="clock", tz="Europe/Riga"),
    Every("300d"),
]


def test_the_end_of_the_calendar_raises_no_error(subtests: pytest.Subtests) -> None:
    for when in EDGES:
        with subtests.test(when=when):
            rule = compile_rule(when)
            assert rule.next(LAST, LAST) is None
            assert rule.next(2**60, 2**60) is None
            for after in (LAST - 1, LAST - SECOND, LAST - DAY, LAST - 400 * DAY, LAST - 5 * 365 * DAY):
                found = rule.next(after, after)
                assert found is None or after < found <= LAST
            if isinstance(rule, WallRule):
                first = rule.next(-(2**60), 0)
                assert first is not None
                assert first >= FIRST
                assert all(one < another for one, another in pairwise(walk(rule, first, first + 2 * HOUR)))
            assert rule.latest(LAST - DAY, 2**60, LAST) is None or isinstance(rule, WallRule)
