"""Quiet hours: when they end, also across clock changes."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sereno.errors import InvalidArguments
from sereno.notifications.recipients.quiet_hours import DAYS, MOST_SPANS, QuietHours, checked, quiet_until
from sereno.zones import FOREVER, instant, moment, names, zone

NIGHT = QuietHours("22:00", "08:00")
MINUTE = timedelta(minutes=1)


def local(zone_name: str, text: str, fold: int = 0) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone_name), fold=fold)


def until(quiet: QuietHours | list[QuietHours], zone_name: str, text: str, fold: int = 0) -> str | None:
    """Local times in, local times out."""
    end = quiet_until(quiet, zone_name, local(zone_name, text, fold))
    if end is None:
        return None
    assert end.tzinfo is UTC
    return end.astimezone(ZoneInfo(zone_name)).strftime("%a %Y-%m-%d %H:%M %Z")


def test_a_night_ends_in_the_morning_of_the_recipients_zone(subtests: pytest.Subtests) -> None:
    for text, end in [
        ("2026-06-01 21:59:59.999999", None),
        ("2026-06-01 22:00", "Tue 2026-06-02 08:00 -04"),
        ("2026-06-01 23:30", "Tue 2026-06-02 08:00 -04"),
        ("2026-06-02 00:00", "Tue 2026-06-02 08:00 -04"),
        ("2026-06-02 07:59:59.999999", "Tue 2026-06-02 08:00 -04"),
        ("2026-06-02 08:00", None),
        ("2026-06-02 12:00", None),
    ]:
        with subtests.test(text=text, end=end):
            assert until(NIGHT, "America/Santiago", text) == end


def test_a_span_may_lie_within_a_day_or_end_at_midnight() -> None:
    assert until(QuietHours("13:00", "15:00"), "UTC", "2026-06-01 14:00") == "Mon 2026-06-01 15:00 UTC"
    assert until(QuietHours("13:00", "15:00"), "UTC", "2026-06-01 15:00") is None
    assert until(QuietHours("20:00", "00:00"), "UTC", "2026-06-01 21:00") == "Tue 2026-06-02 00:00 UTC"
    assert until(QuietHours("20:00", "00:00"), "UTC", "2026-06-02 00:00") is None


def test_days_are_those_on_which_a_span_starts() -> None:
    weekend = QuietHours("22:00", "10:00", days={"fri", "Saturday"})
    assert until(weekend, "Europe/Riga", "2026-06-04 23:00") is None
    assert until(weekend, "Europe/Riga", "2026-06-05 09:00") is None
    assert until(weekend, "Europe/Riga", "2026-06-05 23:00") == "Sat 2026-06-06 10:00 EEST"
    assert until(weekend, "Europe/Riga", "2026-06-07 09:00") == "Sun 2026-06-07 10:00 EEST"
    assert until(weekend, "Europe/Riga", "2026-06-07 23:00") is None


def test_spans_that_touch_or_overlap_are_one() -> None:
    spans = [QuietHours("12:00", "00:00", days=["saturday"]), QuietHours("00:00", "12:00", days=["saturday"])]
    assert until(spans, "UTC", "2026-06-06 00:00") == "Sun 2026-06-07 00:00 UTC"
    assert until([NIGHT, QuietHours("06:00", "09:00"), *spans], "UTC", "2026-06-05 23:00") == "Sun 2026-06-07 09:00 UTC"
    assert until([NIGHT, QuietHours("13:00", "14:00")], "UTC", "2026-06-05 23:00") == "Sat 2026-06-06 08:00 UTC"
    assert quiet_until([], "UTC", datetime(2026, 6, 5, tzinfo=UTC)) is None


CLOCK_CHANGES = [
    # 2026-03-29 in Riga: 03:00 becomes 04:00.
    (QuietHours("22:00", "03:30"), "2026-03-28 23:00", 0, "Sun 2026-03-29 04:00 EEST"),
    (QuietHours("22:00", "08:00"), "2026-03-28 23:00", 0, "Sun 2026-03-29 08:00 EEST"),
    (QuietHours("03:15", "05:00"), "2026-03-29 04:00", 0, "Sun 2026-03-29 05:00 EEST"),
    (QuietHours("03:15", "03:45"), "2026-03-29 04:00", 0, None),
    # 2026-10-25: 04:00 becomes 03:00.
    (QuietHours("22:00", "03:30"), "2026-10-25 03:15", 0, "Sun 2026-10-25 03:30 EEST"),
    (QuietHours("22:00", "03:30"), "2026-10-25 03:45", 0, None),
    (QuietHours("22:00", "03:30"), "2026-10-25 03:15", 1, None),
    (QuietHours("22:00", "04:00"), "2026-10-25 03:15", 0, "Sun 2026-10-25 04:00 EET"),
    (QuietHours("22:00", "04:00"), "2026-10-25 03:15", 1, "Sun 2026-10-25 04:00 EET"),
    (QuietHours("03:30", "06:00"), "2026-10-25 03:15", 0, None),
    (QuietHours("03:30", "06:00"), "2026-10-25 03:15", 1, "Sun 2026-10-25 06:00 EET"),
]


def test_at_a_clock_change_the_first_instant_counts(subtests: pytest.Subtests) -> None:
    for quiet, text, fold, end in CLOCK_CHANGES:
        with subtests.test(quiet=quiet, text=text, fold=fold, end=end):
            assert until(quiet, "Europe/Riga", text, fold) == end


def test_missing_midnights_and_days_are_skipped() -> None:
    # In Santiago the clock goes from 24:00 to 01:00; in Apia 2011-12-30 was left out.
    assert until(QuietHours("20:00", "00:00"), "America/Santiago", "2026-09-05 21:00") == "Sun 2026-09-06 01:00 -03"
    assert until(NIGHT, "Pacific/Apia", "2011-12-29 23:00") == "Sat 2011-12-31 08:00 +14"
    friday = QuietHours("09:00", "17:00", days=["friday"])
    assert until(friday, "Pacific/Apia", "2011-12-31 00:00") is None


def test_a_span_stays_quiet_when_the_clock_is_set_back_over_midnight() -> None:
    # In St. John's, one minute after midnight became 23:01 of the day before.
    sunday = QuietHours("00:00", "06:00", days=["sunday"])
    assert until(sunday, "America/St_Johns", "2010-11-06 23:30", 0) is None
    assert until(sunday, "America/St_Johns", "2010-11-06 23:30", 1) == "Sun 2010-11-07 06:00 NST"


def test_a_delivery_waits_at_most_one_week_if_a_clock_change_removes_the_gap() -> None:
    # Open on Sundays from 03:00 to 04:00, and on this Sunday there is no such hour.
    days = [day for day in DAYS if day != "sunday"]
    spans = [QuietHours("04:00", "03:00", days=days), QuietHours("04:00", "03:00", days=["sunday"])]
    spans += [QuietHours("02:00", "05:00", days=days)]
    start = local("Europe/Riga", "2026-03-22 05:00")
    end = quiet_until(spans, "Europe/Riga", start)
    assert end is not None
    assert timedelta(days=6) < end - start <= timedelta(days=8)


def spans_of(chance: Random) -> list[QuietHours]:
    found = []
    for _ in range(chance.choice([1, 1, 2, 3])):
        start, length = chance.randrange(1440), chance.choice([1, 30, 60, 90, 120, 600, 1000, 1439])
        end = (start + length) % 1440
        days = chance.choice([None, None, chance.sample(DAYS, chance.randrange(1, 7))])
        found.append(QuietHours(f"{start // 60:02}:{start % 60:02}", f"{end // 60:02}:{end % 60:02}", days))
    return found


def is_endless(spans: list[QuietHours]) -> bool:
    try:
        checked(spans)
    except InvalidArguments:
        return True
    return False


def instants(chance: Random, zone_name: str) -> Iterator[datetime]:
    """Yield instants around clock changes, and random ones."""
    at = instant(datetime(2010, 1, 1, tzinfo=UTC))
    changes = []
    while (at := zone(zone_name).segment(at).end) < min(FOREVER, instant(datetime(2030, 1, 1, tzinfo=UTC))):
        changes.append(moment(at))
    for change in chance.sample(changes, min(3, len(changes))):
        yield from (change + timedelta(minutes=chance.randrange(-1500, 1500)) for _ in range(3))
        yield change
    yield from (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=chance.randrange(10**8)) for _ in range(3))


zone_names = st.sampled_from(
    ["Europe/Riga", "America/Santiago", "Pacific/Apia", "Australia/Lord_Howe", "Africa/Casablanca", "America/St_Johns"]
) | st.sampled_from(sorted(names()))


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**32), zone_names)
def test_the_end_is_later_not_quiet_and_not_far(seed: int, zone_name: str) -> None:
    chance = Random(seed)
    spans = spans_of(chance)
    if is_endless(spans):
        return
    for at in instants(chance, zone_name):
        end = quiet_until(spans, zone_name, at)
        if end is None:
            continue
        assert at < end <= at + timedelta(days=8)
        again = quiet_until(spans, zone_name, end)
        assert again is None or again - at > timedelta(days=8)
        # The whole time until then is quiet, and leads to the same end.
        middle = at + (end - at) * chance.random()
        assert quiet_until(spans, zone_name, middle) == end or again is not None


def wall(zone_name: str, at: datetime) -> datetime:
    return at.astimezone(zone(zone_name).info).replace(tzinfo=None)


@cache
def latest_of_hour(zone_name: str, hour: datetime) -> datetime:
    """Return the latest local time that the clock shows in the minutes of this hour."""
    return max(wall(zone_name, hour + number * MINUTE) for number in range(60))


def latest_wall(zone_name: str, at: datetime) -> datetime:
    """Return the latest local time that the clock showed in the last three days, minute by minute."""
    hour = at.replace(minute=0)
    hours = (latest_of_hour(zone_name, hour - timedelta(hours=number)) for number in range(1, 73))
    minutes = (wall(zone_name, hour + number * MINUTE) for number in range(at.minute + 1))
    return max(*hours, *minutes)


def is_quiet(spans: list[QuietHours], zone_name: str, at: datetime) -> bool:
    """A slow model that checks the local time each minute, without offsets."""
    latest = latest_wall(zone_name, at)
    midnight = wall(zone_name, at).replace(hour=0, minute=0)
    for span in spans:
        start, end = span.minutes
        for day in (midnight + timedelta(days=number) for number in (-2, -1, 0, 1)):
            if span.starts_on(day.weekday()) and day + start * MINUTE <= latest < day + end * MINUTE:
                return True
    return False


MODEL_ZONES = st.sampled_from(["Europe/Riga", "America/Santiago", "Pacific/Apia", "America/St_Johns"])


@pytest.mark.slow
@pytest.mark.parametrize("examples", [12, pytest.param(500, marks=pytest.mark.storm)])
def test_it_agrees_with_a_model_that_checks_each_minute(examples: int) -> None:
    settings(max_examples=examples)(given(st.integers(0, 2**32), MODEL_ZONES)(check_with_model))()


def check_with_model(seed: int, zone_name: str) -> None:
    chance = Random(seed)
    spans = spans_of(chance)
    if is_endless(spans):
        return
    for at in instants(chance, zone_name):
        minute = at.replace(second=0, microsecond=0)
        end = quiet_until(spans, zone_name, minute)
        assert (end is not None) == is_quiet(spans, zone_name, minute)
        if end is not None:
            assert is_quiet(spans, zone_name, end - MINUTE)


def test_equal_spans_are_equal_json() -> None:
    one, other = QuietHours("9:00", " 17:30 ", ["Sun", "monday"]), QuietHours("09:00", "17:30", {"MONDAY", "sunday"})
    assert one == other
    assert hash(one) == hash(other)
    text = msgspec.json.encode(one)
    assert text == b'{"start":"09:00","end":"17:30","days":["monday","sunday"]}'
    assert msgspec.json.decode(text, type=QuietHours) == one
    assert msgspec.json.encode(NIGHT) == b'{"start":"22:00","end":"08:00"}'


INVALID_SPANS: list[tuple[Any, Any, Any, str]] = [
    ("22:00", "22:00", None, "for a whole day write two spans"),
    ("24:00", "08:00", None, 'start of quiet hours is a time of day such as "22:00", 00:00 to 23:59'),
    ("22:00", "8", None, "end of quiet hours is a time of day"),
    ("22:60", "08:00", None, "start of quiet hours is a time of day"),
    ("٢٢:00", "08:00", None, "start of quiet hours is a time of day"),
    (22, "08:00", None, "start of quiet hours is a time of day"),
    ("22:00", "08:00", [], "days is a list such as"),
    ("22:00", "08:00", "monday", "days is a list such as"),
    ("22:00", "08:00", ["lunes"], "'lunes' is not a day of the week: use monday, tuesday"),
    ("22:00", "08:00", [1], "1 is not a day of the week"),
]


def test_invalid_spans_are_refused(subtests: pytest.Subtests) -> None:
    for start, end, days, complaint in INVALID_SPANS:
        with subtests.test(start=start, end=end, days=days):
            with pytest.raises(InvalidArguments) as refusal:
                QuietHours(start, end, days)
            assert complaint in str(refusal.value)


def test_spans_that_never_end_are_refused() -> None:
    always = [QuietHours("00:00", "12:00"), QuietHours("12:00", "00:00")]
    with pytest.raises(InvalidArguments, match="turn the preference off instead"):
        checked(always)
    with pytest.raises(InvalidArguments, match="turn the preference off instead"):
        quiet_until([QuietHours("10:00", "09:59"), QuietHours("09:00", "10:30", list(DAYS))], "UTC", datetime.now(UTC))
    assert checked([*always[:1], QuietHours("12:00", "00:00", DAYS[1:])])
    with pytest.raises(InvalidArguments, match="51 spans"):
        checked([NIGHT] * (MOST_SPANS + 1))
    strange: Any = ["22:00", "08:00"]
    with pytest.raises(InvalidArguments, match="quiet hours are written"):
        checked(strange)


INVALID_INSTANTS: list[tuple[str, Any, str]] = [
    ("Europe/Rigga", datetime(2026, 1, 1, tzinfo=UTC), "did you mean Europe/Riga"),
    ("UTC", datetime(2026, 1, 1), "a datetime with a time zone"),  # noqa: DTZ001 - that is the point
    ("UTC", datetime(9999, 12, 31, tzinfo=UTC), "out of range"),
    ("UTC", datetime(1, 1, 1, tzinfo=UTC), "out of range"),
    ("UTC", "2026-01-01", "a datetime with a time zone"),
]


def test_invalid_zones_and_instants_are_refused(subtests: pytest.Subtests) -> None:
    for zone_name, at, complaint in INVALID_INSTANTS:
        with subtests.test(zone_name=zone_name, at=at), pytest.raises(InvalidArguments, match=complaint):
            quiet_until(NIGHT, zone_name, at)


def test_the_first_and_the_last_instant_are_supported(subtests: pytest.Subtests) -> None:
    for name in ["Europe/Riga", "America/Santiago", "UTC", "Pacific/Kiritimati"]:
        with subtests.test(name=name):
            for at in (datetime(1900, 1, 2, tzinfo=UTC), datetime(9999, 11, 30, tzinfo=UTC)):
                assert quiet_until(QuietHours("12:00", "11:59"), name, at) is not None
