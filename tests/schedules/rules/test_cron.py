"""Cron expressions: what is accepted, what is refused and where, and the search for the next wall time."""

from datetime import date, datetime, timedelta
from random import Random
from typing import Any

import pytest
from cronsim import CronSim, CronSimError

from sereno.errors import InvalidSchedule
from sereno.schedules.rules.cron import LONGEST, NICKNAMES, CronExpression, canonical


def wall(*parts: int) -> datetime:
    return datetime(*parts)  # type: ignore[arg-type]  # noqa: DTZ001 - wall time


def refusal(expression: Any) -> str:
    with pytest.raises(InvalidSchedule) as caught:
        CronExpression(expression)
    return str(caught.value)


CANONICAL = [
    ("0 3 * * *", "0 3 * * *"),
    ("  0\t3  * *\n* ", "0 3 * * *"),
    ("0\u00a03 * * *", "0 3 * * *"),
    ("30 9 * * mon-Fri", "30 9 * * MON-FRI"),
    ("0 0 1 jan,FEB *", "0 0 1 JAN,FEB *"),
    ("0 0 l * *", "0 0 L * *"),
    ("*/10 0 9 * * 5l", "*/10 0 9 * * 5L"),
    ("0 0 lw * mon#2", "0 0 LW * MON#2"),
    ("05 007 * * *", "05 007 * * *"),
    ("0-59/20,7 */24 1/10 * 0-7", "0-59/20,7 */24 1/10 * 0-7"),
    ("@daily", "0 0 * * *"),
    (" @MidNight", "0 0 * * *"),
    ("@Hourly", "0 * * * *"),
    ("@weekly", "0 0 * * 0"),
    ("@monthly", "0 0 1 * *"),
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
]


def test_an_expression_has_one_canonical_form(subtests: pytest.Subtests) -> None:
    for written, meant in CANONICAL:
        with subtests.test(written=written, meant=meant):
            assert canonical(written) == meant
            assert CronExpression(written).text == meant
            assert canonical(meant) == meant


FIELDS = "write 5 (minute, hour, day of month, month, day of week), or 6 with seconds first"


REFUSALS = [
    ("0 25 * * *", "hour 25 is out of range 0 to 23", 2),
    ("60 * * * *", "minute 60 is out of range 0 to 59", 0),
    ("60 * * * * *", "second 60 is out of range 0 to 59", 0),
    ("0 0 0 * *", "day of month 0 is out of range 1 to 31", 4),
    ("0 0 1,2,32 * *", "day of month 32 is out of range 1 to 31", 8),
    ("0 0 * 13 *", "month 13 is out of range 1 to 12", 6),
    ("0 0 * * 8", "day of week 8 is out of range 0 to 7", 8),
    ("0 0 * * 9L", "day of week 9 is out of range 0 to 7", 8),
    ("0 0 * * 9#1", "day of week 9 is out of range 0 to 7", 8),
    ("0 5-25 * * *", "hour 25 is out of range 0 to 23", 4),
    ("0 0 * * FRI-MON", "day of week FRI-MON runs backwards: write two ranges", 8),
    ("0 0 * * FRI-SUN", "day of week FRI-SUN runs backwards: write 7 for a Sunday at the end", 8),
    ("0 22-4 * * *", "hour 22-4 runs backwards: write two ranges", 2),
    ("*/0 * * * *", "minute step 0 is out of range 1 to 60", 2),
    ("*/90 * * * *", "minute step 90 is out of range 1 to 60", 2),
    ("0 */25 * * *", "hour step 25 is out of range 1 to 24", 4),
    ("*/ * * * *", "minute step is missing", 2),
    ("*/5/5 * * * *", 'minute step "5/5" is not a number', 2),
    ("*/x * * * *", 'minute step "X" is not a number', 2),
    ("1,,2 * * * *", "minute is missing", 2),
    ("1, * * * *", "minute is missing", 2),
    ("1- * * * *", "minute is missing", 2),
    ("-1 * * * *", "minute is missing", 0),
    ("1--100000000 * * * *", 'minute "-100000000" is not a number', 2),
    ("*-5 * * * *", 'minute "*" is not a number', 0),
    ("H * * * *", 'minute "H" is not a number', 0),
    ("0 0 15W * *", 'day of month "15W" is not a number', 4),
    ("0 0 ? * MON", 'day of month "?" is not known: write "*" for any', 4),
    ("0 0 * FOO *", 'month "FOO" is not a number or a name such as FEB', 6),
    ("0 0 * * MONDAY", 'day of week "MONDAY" is not a number or a name such as MON', 8),
    ("0 0 L/2 * *", "L is one day of a month and takes no step", 5),
    ("0 0 * * MON#2/2", "MON#2 is one day of a month and takes no step", 13),
    ("0 0 * * MON#6", "a weekday comes 1 to 5 times in a month, not 6", 12),
    ("0 0 * * MON#", "a weekday comes 1 to 5 times in a month, not nothing", 12),
    ("0 0 * * FRIL", "day of week FRIL is not known: write 5L for the last Friday", 8),
    ("0 0 * * L", "day of week L is not known: write 5L for the last Friday", 8),
    ("", f"it has 0 fields: {FIELDS}", 0),
    ("0 3 * *", f"it has 4 fields: {FIELDS}", 7),
    ("0 0 3 1 1 * 2027", f"it has 7 fields: {FIELDS}", 12),
    ("*/99999999999999999999 * * * *", "minute step 99999999999999999999 is out of range 1 to 60", 2),
]


def test_a_refusal_names_the_fault_and_points_at_it(subtests: pytest.Subtests) -> None:
    for expression, problem, position in REFUSALS:
        with subtests.test(expression=expression, problem=problem, position=position):
            first, shown, pointer = refusal(expression).split("\n")
            assert first == f'"{expression}" is not a cron expression: {problem}'
            assert shown == f" {expression}"
            assert pointer == " " * (position + 1) + "^"


def test_an_expression_that_never_matches_is_refused(subtests: pytest.Subtests) -> None:
    for expression in ["0 0 30 2 *", "0 0 31 2,4,6,9,11 *", "0 0 0 30 2 *", "0 0 */30 2 1#2"]:
        with subtests.test(expression=expression):
            first, shown, pointer = refusal(expression).split("\n")
            assert first == f'"{expression}" never matches: no such month has such a day'
            assert shown[len(pointer) - 1 :].split()[0] == expression.split()[-3]


def test_a_non_ascii_character_is_named_but_not_printed() -> None:
    assert refusal("0 \u0663 * * *") == (
        "\"0 ? * * *\" is not a cron expression: the character '\\u0663' is not allowed\n 0 ? * * *\n   ^"
    )
    assert "\x1b" not in refusal("0 \x1b[2J * * *")
    assert "\x00" not in refusal("0 3\x00 * * *")
    assert "\\u2013" in refusal("1\u20135 * * * *")
    assert "\\ud800" in refusal("0 \ud800 * * *")


def test_reboot_is_refused_with_a_reason() -> None:
    assert refusal("@Reboot") == (
        "@reboot is not a time: schedules are stored in the database and do not follow reboots"
    )


def test_an_unknown_nickname_is_refused_with_the_known_ones() -> None:
    assert refusal("@fortnightly").startswith("'@fortnightly' is not a nickname: use one of @hourly, @daily")
    assert "@every 5m" in refusal("@every 5m")


HUGE = [
    "x" * 10_000,
    "*," * 5_000 + "* * * * *",
    "9" * 400 + " * * * *",
    "*/" + "9" * 400 + " * * * *",
    "0-" + "9" * 400 + " * * * *",
    "0 0 * * 1#" + "9" * 400,
    "0 0 * * " + "9" * 400 + "L",
    "1" * 5_000,
    "," * 400 + " * * * *",
    "/" * 400 + " * * * *",
    "-" * 400 + " * * * *",
    "* " * 200,
    "@" + "x" * 450,
    "\u0660" * 400,
    5,
    None,
    b"0 3 * * *",
    ["0", "3", "*", "*", "*"],
]


def test_a_huge_expression_is_refused_with_a_short_message(subtests: pytest.Subtests) -> None:
    for expression in HUGE:
        with subtests.test(expression=expression):
            assert len(refusal(expression)) < 500


def test_a_long_expression_is_shown_around_the_fault() -> None:
    minutes = ",".join(map(str, range(60)))
    first, shown, pointer = refusal(f"{minutes},60 * * * *").split("\n")
    assert first.endswith("minute 60 is out of range 0 to 59")
    assert shown[len(pointer) - 1 :] == "60 * * * *"
    assert len(shown) < 130


def test_every_value_spelled_out_is_within_the_length_limit() -> None:
    fields = [range(60), range(60), range(24), range(1, 32), range(1, 13), range(8)]
    text = " ".join(",".join(map(str, values)) for values in fields)
    assert len(text) < LONGEST
    assert CronExpression(text).next_wall(wall(2026, 1, 1, 0, 0, 1)) == wall(2026, 1, 1, 0, 0, 1)


WILDCARDS = [
    ("0 3 * * *", False),
    ("0,30 9-17 * * *", False),
    ("0 0-23 * * *", False),
    ("* 3 * * *", True),
    ("*/10 3 * * *", True),
    ("0 * * * *", True),
    ("0 */2 * * *", True),
    ("0 0 3 * * *", True),
    ("0 3 */2 * *", False),
]


def test_wildcard_expressions_are_recognised(subtests: pytest.Subtests) -> None:
    for expression, expected in WILDCARDS:
        with subtests.test(expression=expression, expected=expected):
            assert CronExpression(expression).is_wildcard is expected


NEXT_TIMES = [
    ("0 3 * * *", wall(2026, 1, 1), wall(2026, 1, 1, 3)),
    ("0 3 * * *", wall(2026, 1, 1, 3), wall(2026, 1, 1, 3)),
    ("0 3 * * *", wall(2026, 1, 1, 3, 0, 0, 1), wall(2026, 1, 2, 3)),
    ("0 3 * * *", wall(2026, 12, 31, 3, 0, 1), wall(2027, 1, 1, 3)),
    ("59 23 31 12 *", wall(2026, 12, 31, 23, 59, 0, 1), wall(2027, 12, 31, 23, 59)),
    ("0 0 29 2 *", wall(2026, 1, 1), wall(2028, 2, 29)),
    ("0 0 29 2 *", wall(2096, 3, 1), wall(2104, 2, 29)),
    ("0 0 L * *", wall(2027, 2, 1), wall(2027, 2, 28)),
    ("0 0 LW * *", wall(2026, 5, 1), wall(2026, 5, 29)),
    ("0 0 * * 5L", wall(2026, 5, 1), wall(2026, 5, 29)),
    ("0 0 * * 1#2", wall(2026, 5, 1), wall(2026, 5, 11)),
    ("0 0 13 * FRI", wall(2026, 5, 9), wall(2026, 5, 13)),
    ("0 0 13 * FRI", wall(2026, 5, 14), wall(2026, 5, 15)),
    ("0 0 */2 * FRI", wall(2026, 5, 2), wall(2026, 5, 15)),
    ("20,40 * * * * *", wall(2026, 1, 1, 0, 0, 21), wall(2026, 1, 1, 0, 0, 40)),
    ("20,40 * * * * *", wall(2026, 1, 1, 0, 59, 41), wall(2026, 1, 1, 1, 0, 20)),
    ("0 0 1 1 *", wall(9999, 1, 2), None),
    ("* * * * *", wall(9999, 12, 31, 23, 59, 1), None),
]


def test_the_next_wall_time_is_found(subtests: pytest.Subtests) -> None:
    for expression, start, found in NEXT_TIMES:
        with subtests.test(expression=expression, start=start, found=found):
            assert CronExpression(expression).next_wall(start) == found


def test_the_search_gives_up_after_fifty_years() -> None:
    """A 29 February on a fifth Sunday recurs every 28 years, or 40 across a century."""
    rare = CronExpression("0 0 */28 2 SUN#5")
    assert rare.next_wall(wall(2033, 1, 1)) == wall(2060, 2, 29)
    assert rare.next_wall(wall(2061, 1, 1)) == wall(2088, 2, 29)
    assert rare.next_wall(wall(2089, 1, 1)) == wall(2128, 2, 29)


def random_field(chance: Random, low: int, high: int) -> str:
    first = chance.randint(low, high)
    last = chance.randint(first, high)
    return chance.choice(
        [
            "*",
            f"*/{chance.randint(1, high - low + 1)}",
            str(first),
            f"{first}-{last}",
            f"{first}-{last}/{chance.randint(1, 9)}",
            f"{first}/{chance.randint(1, 9)}",
            f"{first},{last}",
        ]
    )


def random_expression(chance: Random) -> str:
    fields = [random_field(chance, low, high) for low, high in ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))]
    if chance.random() < 0.3:
        fields[2] = chance.choice(["L", "LW", "1,L", "L,LW,5"])
    if chance.random() < 0.3:
        fields[4] = chance.choice(["MON#1", "5L", "MON-FRI", "SUN,3#5", "0#2,7L", "7"])
    if chance.random() < 0.3:
        fields.insert(0, random_field(chance, 0, 59))
    return " ".join(fields)


@pytest.mark.slow
def test_the_search_agrees_with_cronsim_without_clock_changes() -> None:
    chance = Random(2)
    compared = 0
    for _ in range(1200):
        text = random_expression(chance)
        start = wall(2026, 1, 1) + timedelta(seconds=chance.randrange(6 * 365 * 86400))
        try:
            expression, walk = CronExpression(text), CronSim(text, start)
        except (InvalidSchedule, CronSimError):
            continue
        at = start
        for _ in range(4):
            found = expression.next_wall(at + timedelta(seconds=1))
            at = next(walk)
            assert found == at, f"{text} after {start}"
            compared += 1
    assert compared > 4000


@pytest.mark.slow
def test_nothing_is_accepted_that_cronsim_refuses() -> None:
    """For any characters: nothing is accepted that cronsim refuses, and every expression can be explained."""
    chance = Random(3)
    accepted = 0
    for _ in range(2000):
        text = random_expression(chance)
        if chance.random() < 0.5:
            place = chance.randrange(len(text))
            text = text[:place] + chance.choice("0123456789*/,-#LW AMON") + text[place + 1 :]
        try:
            expression = CronExpression(text)
        except InvalidSchedule:
            continue
        accepted += 1
        # Raises what cronsim refuses.
        CronSim(text, wall(2026, 1, 1))
        assert expression.next_wall(wall(2026, 1, 1)) is not None, text
        assert expression.explain(), text
    assert accepted > 800


def test_every_day_of_the_calendar_can_be_searched() -> None:
    assert CronExpression("0 0 * * *").next_wall(datetime.combine(date.max, wall(1, 1, 1).time())) == wall(9999, 12, 31)


def test_nicknames_are_expressions() -> None:
    assert all(CronExpression(meant).text == meant for meant in NICKNAMES.values())
    assert repr(CronExpression("@daily")) == "CronExpression('0 0 * * *')"
