"""Time zones: every segment of constant offset begins and ends at a change of the clock."""

import os
import struct
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest

from sereno.errors import InvalidSchedule
from sereno.zones import BEGINNING, FOREVER, SECOND, VERSION, Zone, ZoneSegment, instant, moment, names, zone

HOUR = 3600 * SECOND


def at(*parts: int) -> int:
    return instant(datetime(*parts, tzinfo=UTC))  # type: ignore[misc,arg-type]


def offset_of(name: str, moment_: int) -> int:
    offset = moment(moment_).astimezone(zone(name).info).utcoffset()
    assert offset is not None
    return offset // timedelta(microseconds=1)


def assert_agrees_with_zoneinfo(name: str, segment: ZoneSegment) -> None:
    """Check that the offsets on both sides of both ends are those of zoneinfo."""
    label = f"{name} {segment}"
    for end, before, after in (
        (segment.start, segment.offset_before, segment.offset),
        (segment.end, segment.offset, segment.offset_after),
    ):
        if end in {BEGINNING, FOREVER}:
            assert before == after, label
        else:
            assert before != after, label
            assert (offset_of(name, end - 1), offset_of(name, end)) == (before, after), label


@pytest.mark.parametrize("step", [8, pytest.param(1, marks=pytest.mark.slow)])
def test_segments_of_all_zones_agree_with_zoneinfo_and_have_no_gaps(step: int) -> None:
    for name in sorted(names())[::step]:
        known, now = zone(name), at(2024, 1, 1)
        previous = None
        while now < at(2030, 1, 1):
            segment = known.segment(now)
            assert segment.start <= now < segment.end
            assert_agrees_with_zoneinfo(name, segment)
            if previous is not None:
                assert (previous.end, previous.offset, previous.offset_after) == (
                    segment.start,
                    segment.offset_before,
                    segment.offset,
                ), name
            previous, now = segment, segment.end


@pytest.mark.slow
@pytest.mark.parametrize("year", [2005, 2031])
def test_two_samples_a_day_agree_with_zoneinfo(year: int) -> None:
    """For every zone, in a year that some files list and in one that none does."""
    for name in sorted(names()):
        clock, known, segment = zone(name).info, zone(name), zone(name).segment(at(year, 1, 1))
        for day in range(365):
            for hour in (0, 12):
                moment_ = datetime(year, 1, 1, hour, tzinfo=UTC) + timedelta(day)
                offset = moment_.astimezone(clock).utcoffset()
                sample = instant(moment_)
                segment = segment if sample < segment.end else known.segment(sample)
                assert offset == timedelta(microseconds=segment.offset), (name, moment_)


@pytest.mark.slow
def test_random_instants_of_four_centuries_are_in_their_segment() -> None:
    rng = Random(1)
    all_names = sorted(names())
    for _ in range(600):
        name, when = rng.choice(all_names), rng.randrange(at(1900, 1, 2), at(2300, 1, 1))
        segment = zone(name).segment(when)
        assert segment.start <= when < segment.end
        assert segment.offset == offset_of(name, when), (name, moment(when))
        assert_agrees_with_zoneinfo(name, segment)


CHANGES = [
    ("Australia/Lord_Howe", at(2026, 10, 3, 15, 30), 10.5, 11),
    ("Australia/Lord_Howe", at(2026, 4, 4, 15), 11, 10.5),
    ("Antarctica/Troll", at(2026, 3, 29, 1), 0, 2),
    ("Antarctica/Troll", at(2026, 10, 25, 1), 2, 0),
    ("Pacific/Apia", at(2011, 12, 30, 10), -10, 14),
    ("Pacific/Chatham", at(2026, 9, 26, 14), 12.75, 13.75),
    ("Africa/Monrovia", at(1972, 1, 7, 0, 44, 30), -(44 * 60 + 30) / 3600, 0),
    ("Antarctica/Troll", at(2005, 3, 27, 1), 0, 2),
    ("Asia/Gaza", at(2086, 10, 25, 23), 3, 2),
    ("Europe/Riga", at(9998, 3, 29, 1), 2, 3),
]


def test_changes_of_every_size_are_found_to_the_second(subtests: pytest.Subtests) -> None:
    for name, change, before, after in CHANGES:
        with subtests.test(name=name, change=change, before=before, after=after):
            later, earlier = zone(name).segment(change), zone(name).segment(change - 1)
            assert (earlier.end, later.start) == (change, change)
            assert (earlier.offset, later.offset) == (before * HOUR, after * HOUR)
            assert (earlier.offset_after, later.offset_before) == (later.offset, earlier.offset)


def test_a_zone_that_never_changes_is_one_segment() -> None:
    for name in ("UTC", "Etc/GMT+5"):
        assert zone(name).is_fixed
        assert zone(name).segment(0)[:2] == (BEGINNING, FOREVER)
    assert zone("Asia/Tokyo").segment(at(2026, 1, 1)).end == FOREVER
    assert zone("Europe/Riga").segment(BEGINNING).start == BEGINNING
    assert zone("Europe/Riga").segment(at(9999, 12, 30)).end == FOREVER
    assert not zone("Europe/Riga").is_fixed


def test_a_file_without_listed_changes_follows_its_rule(subtests: pytest.Subtests) -> None:
    """No current zone has such a file, but the format allows it: no times, one type, and the rule at the end."""
    for rule, january, july in [
        (b"CET-1CEST,M3.5.0,M10.5.0/3", at(2026, 3, 29, 1), at(2026, 10, 25, 1)),
        (b"XXX3YYY2,0/0,J365/25", FOREVER, FOREVER),
        (b"XXX3", FOREVER, FOREVER),
    ]:
        with subtests.test(rule=rule, january=january, july=july):
            part = (
                b"TZif2" + bytes(15) + struct.pack(">6l", 0, 0, 0, 0, 1, 4) + struct.pack(">lbb", 0, 0, 0) + b"XXX\x00"
            )
            made_up = Zone("Made/Up", part + part + b"\n" + rule + b"\n")
            assert made_up.segment(at(2026, 1, 1)).end == january
            assert made_up.segment(at(2026, 7, 1)).end == july
            assert made_up.segment(at(2026, 7, 1)).offset == made_up.segment(at(2031, 7, 1)).offset


def test_a_zone_is_loaded_once() -> None:
    assert zone("Europe/Riga") is zone("Europe/Riga")
    assert repr(zone("Europe/Riga")) == "Zone(Europe/Riga)"


def test_the_data_of_the_package_is_used_and_not_that_of_the_system() -> None:
    program = (
        "from sereno.zones import zone, instant, VERSION; from datetime import UTC, datetime;"
        "print(zone('Europe/Riga').segment(instant(datetime(2026, 7, 1, tzinfo=UTC))).offset, VERSION)"
    )
    environment = {**os.environ, "PYTHONTZPATH": "/nowhere", "TZ": "Asia/Tokyo"}
    printed = subprocess.check_output([sys.executable, "-c", program], env=environment, encoding="utf-8")
    assert printed.split() == [str(3 * HOUR), VERSION]


def test_names_are_those_of_the_package() -> None:
    assert {"UTC", "Europe/Riga", "America/Argentina/Buenos_Aires"} <= names()
    assert len(names()) > 500


UNKNOWN_ZONES: list[tuple[Any, str]] = [
    ("Europe/Rga", "did you mean Europe/Riga"),
    ("europe/riga", "did you mean Europe/Riga?"),
    ("riga", "did you mean Europe/Riga?"),
    ("Sao Paulo", "did you mean America/Sao_Paulo?"),
    ("Xq", "use a name of the IANA database, such as Europe/Riga"),
    ("", "use a name of the IANA database"),
    ("../../../etc/passwd", "there is no time zone '../../../etc/passwd'"),
    ("/usr/share/zoneinfo/UTC", "there is no time zone"),
    ("Europe/../Europe/Riga", "there is no time zone"),
    ("Europe", "there is no time zone"),
    ("Europe/Riga\x00", "there is no time zone 'Europe/Riga\\x00'"),
    ("Europe/R\u00edga", "there is no time zone 'Europe/R\\xedga'"),
    ("\ud800", "there is no time zone"),
    ("E" * 10_000, "not a text of 10000 characters"),
    (None, "tz is the name of a time zone such as Europe/Riga, not NoneType"),
    (5, "not int"),
    (["UTC"], "not list"),
    (b"UTC", "not bytes"),
]


def test_an_unknown_zone_is_refused_with_a_suggestion(subtests: pytest.Subtests) -> None:
    for wrong, message in UNKNOWN_ZONES:
        with subtests.test(wrong=repr(wrong)[:30], message=message):
            with pytest.raises(InvalidSchedule) as refusal:
                zone(wrong)
            assert message in str(refusal.value)
            assert len(str(refusal.value)) < 300
            if isinstance(wrong, str) and len(wrong) < 100:
                assert VERSION in str(refusal.value)
