"""A preview shows the next instants, with a note at clock changes."""

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from sereno.errors import InvalidArguments, InvalidSchedule
from sereno.schedules.rules.preview import Instant, preview
from sereno.schedules.rules.when import Cron, Daily, Every, Once, When

RIGA = "Europe/Riga"


def after(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def lines(when: When, start: str, n: int = 3, **options: Any) -> list[str]:
    found = preview(when, after(start), n, **options)
    return [f"{one.local:%m-%d %H:%M %z} {one.note}".strip() for one in found]


def test_an_instant_is_shown_in_utc_and_in_the_rules_zone() -> None:
    first, second = preview(Daily("09:00", tz=RIGA), after("2026-10-24 00:00"), n=2)
    assert first == Instant(after("2026-10-24 06:00"), after("2026-10-24 06:00").astimezone(ZoneInfo(RIGA)), "")
    assert (first.at.tzinfo, first.local.hour, first.local.utcoffset()) == (UTC, 9, timedelta(hours=3))
    assert (second.at.hour, second.local.hour, second.local.utcoffset()) == (7, 9, timedelta(hours=2))
    assert str(first.local.tzinfo) == RIGA


TWICE = "the clock goes back: this time comes twice, runs on"


NOTES: list[tuple[When, str, list[str]]] = [
    (
        Cron("30 3 * * *", tz=RIGA),
        "2026-03-28 00:00",
        ["03-28 03:30 +0200", "03-29 04:00 +0300 03:30 does not exist on this day: runs at 04:00", "03-30 03:30 +0300"],
    ),
    (
        Cron("30 3 * * *", tz=RIGA, dst_gap="skip"),
        "2026-03-28 00:00",
        ["03-28 03:30 +0200", "03-30 03:30 +0300", "03-31 03:30 +0300"],
    ),
    (
        Cron("0,30 3 * * *", tz=RIGA),
        "2026-03-29 00:00",
        [
            "03-29 04:00 +0300 03:00 and others do not exist on this day: one run at 04:00",
            "03-30 03:00 +0300",
            "03-30 03:30 +0300",
        ],
    ),
    (Cron("0 4 * * *", tz=RIGA), "2026-03-28 12:00", ["03-29 04:00 +0300", "03-30 04:00 +0300", "03-31 04:00 +0300"]),
    (
        Daily("03:00:30", tz=RIGA),
        "2026-03-28 12:00",
        [
            "03-29 04:00 +0300 03:00:30 does not exist on this day: runs at 04:00",
            "03-30 03:00 +0300",
            "03-31 03:00 +0300",
        ],
    ),
    (
        Cron("30 23 * * *", tz="America/Godthab"),
        "2026-03-28 12:00",
        [
            "03-29 00:00 -0100 23:30 does not exist on 2026-03-28: runs at 00:00",
            "03-29 23:30 -0100",
            "03-30 23:30 -0100",
        ],
    ),
    (
        Daily("09:00", tz="Pacific/Apia"),
        "2011-12-29 12:00",
        [
            "12-29 09:00 -1000",
            "12-31 00:00 +1400 09:00 does not exist on 2011-12-30: runs at 00:00",
            "12-31 09:00 +1400",
        ],
    ),
    (
        Cron("30 3 * * *", tz=RIGA),
        "2026-10-24 12:00",
        [f"10-25 03:30 +0300 {TWICE} the first pass", "10-26 03:30 +0200", "10-27 03:30 +0200"],
    ),
    (
        Cron("30 3 * * *", tz=RIGA, dst_fold="second"),
        "2026-10-24 12:00",
        [f"10-25 03:30 +0200 {TWICE} the second pass", "10-26 03:30 +0200", "10-27 03:30 +0200"],
    ),
    (
        Cron("30 3 * * *", tz=RIGA, dst_fold="both"),
        "2026-10-24 12:00",
        [
            f"10-25 03:30 +0300 {TWICE} both passes, this is the first",
            f"10-25 03:30 +0200 {TWICE} both passes, this is the second",
            "10-26 03:30 +0200",
        ],
    ),
    (
        Cron("0 * * * *", tz=RIGA),
        "2026-10-25 00:00",
        [f"10-25 03:00 +0200 {TWICE} both passes, this is the second", "10-25 04:00 +0200", "10-25 05:00 +0200"],
    ),
    (Cron("0 * * * *", tz=RIGA), "2026-03-29 00:00", ["03-29 04:00 +0300", "03-29 05:00 +0300", "03-29 06:00 +0300"]),
    (
        Every("1h", count_from="end"),
        "2026-01-01 00:00",
        [
            "01-01 01:00 +0000",
            "01-01 02:00 +0000 at the earliest: counted from the end of the previous run",
            "01-01 03:00 +0000 at the earliest: counted from the end of the previous run",
        ],
    ),
    (Every("1d", tz=RIGA), "2026-03-28 12:00", ["03-29 15:00 +0300", "03-30 15:00 +0300", "03-31 15:00 +0300"]),
]


def test_a_note_describes_the_clock_change(subtests: pytest.Subtests) -> None:
    for when, start, expected in NOTES:
        with subtests.test(when=when, start=start, expected=expected):
            assert lines(when, start) == expected


def test_a_rule_that_ends_is_shown_to_its_end() -> None:
    once = Once(after("2027-01-08 09:00"))
    assert lines(once, "2026-01-01 00:00") == ["01-08 09:00 +0000"]
    assert lines(once, "2027-01-08 09:00") == []
    assert len(preview(Daily("03:00", tz=RIGA), after("9999-12-29 00:00"), n=10)) == 1
    assert len(preview(Daily("23:00"), after("9999-12-29 12:00"), offset=300 * 86_400_000_000)) == 1


def test_the_earliest_and_the_latest_time_can_be_previewed() -> None:
    for when in (Every("1h", tz=RIGA), Daily("03:00", tz=RIGA), Cron("0 0 1 1 *", tz="Pacific/Kiritimati")):
        assert preview(when, datetime.min.replace(tzinfo=UTC))[0].at.year >= 1900
        assert preview(when, datetime.max.replace(tzinfo=UTC)) == []


def test_a_spread_moves_every_instant_by_the_schedules_offset() -> None:
    daily = Daily("09:00", spread="20m")
    assert lines(daily, "2026-01-01 09:06", offset=7 * 60_000_000) == [
        "01-01 09:07 +0000",
        "01-02 09:07 +0000",
        "01-03 09:07 +0000",
    ]


def test_an_interval_counts_from_its_anchor() -> None:
    assert lines(Every("1h"), "2026-01-01 00:20", anchor=after("2025-12-31 23:50"), n=2) == [
        "01-01 00:50 +0000",
        "01-01 01:50 +0000",
    ]


def test_a_preview_has_the_requested_number_of_instants() -> None:
    start = after("2026-01-01 00:00")
    assert len(preview(Every("1h"), start)) == 5
    assert len(preview(Cron("* * * * *"), start, n=100)) == 100
    assert preview(Every("1h"), start, n=0) == []


def test_a_preview_needs_a_time_zone_and_a_valid_rule() -> None:
    naive = after("2026-01-01 00:00").replace(tzinfo=None)
    with pytest.raises(InvalidArguments):
        preview(Every("1h"), naive)
    with pytest.raises(InvalidArguments):
        preview(Every("1h"), after("2026-01-01 00:00"), anchor=naive)
    with pytest.raises(InvalidSchedule):
        preview(Cron("0 25 * * *"), after("2026-01-01 00:00"))
