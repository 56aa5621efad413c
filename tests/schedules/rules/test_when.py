"""Rules as users write them: a canonical form, a round trip through JSON, and refusals that name the field."""

import json
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sereno.errors import InvalidSchedule, SerenoError
from sereno.schedules.rules.when import Cron, Daily, Every, Once, When, checked, decode, describe, encode

MORNING = datetime(2027, 1, 8, 9, tzinfo=UTC)


def refusal(when: Any) -> str:
    with pytest.raises(InvalidSchedule) as caught:
        checked(when)
    return str(caught.value)


SPELLINGS: list[list[When]] = [
    [Every("5m"), Every(300), Every(300.0), Every(timedelta(minutes=5)), Every("300", count_from="plan", tz="UTC")],
    [Every("1.5s"), Every(1.5), Every("1500ms"), Every(1.5000000001)],
    [Every("1h", count_from="clock", phase="1m"), Every(3600, count_from="clock", phase=60.0)],
    [Cron("0 3 * * *"), Cron(" 0  3 * *\t* ", tz=str(b"UTC", "ascii"), spread="0s", dst_gap="shift")],
    [Cron("@daily", spread="20m"), Cron("0 0 * * *", spread=1200)],
    [Cron("0 9 * * mon"), Cron("0 9 * * MON")],
    [Daily("03:00"), Daily("3:00"), Daily("03:00:00"), Daily(" 03:00 ")],
    [Once(MORNING), Once(MORNING.astimezone(timezone(timedelta(hours=-3))))],
]


def test_equal_rules_are_equal_json(subtests: pytest.Subtests) -> None:
    for spellings in SPELLINGS:
        with subtests.test(spellings=spellings):
            assert {encode(when) for when in spellings} == {encode(spellings[0])}
            assert all(checked(when) == checked(spellings[0]) for when in spellings)
            assert hash(checked(spellings[0])) == hash(checked(spellings[-1]))


STORED: list[tuple[When, dict[str, Any]]] = [
    (Once(MORNING), {"kind": "once", "at": "2027-01-08T09:00:00Z"}),
    (Every("5m"), {"kind": "every", "interval": 300}),
    (
        Every("2h", count_from="clock", phase="30m", tz="Europe/Riga", dst_fold="both"),
        {
            "kind": "every",
            "interval": 7200,
            "count_from": "clock",
            "phase": 1800,
            "tz": "Europe/Riga",
            "dst_fold": "both",
        },
    ),
    (
        Cron("0 3 * * *", tz="America/Sao_Paulo", spread="20m", dst_gap="skip"),
        {"kind": "cron", "expression": "0 3 * * *", "tz": "America/Sao_Paulo", "spread": 1200, "dst_gap": "skip"},
    ),
    (Daily("03:00:30"), {"kind": "daily", "at": "03:00:30"}),
]


def test_a_rule_is_stored_without_its_defaults_and_comes_back(subtests: pytest.Subtests) -> None:
    for when, stored in STORED:
        with subtests.test(when=when, stored=stored):
            raw = encode(when)
            assert json.loads(raw) == stored
            for form in (raw, raw.decode(), stored, json.dumps(stored, indent=2)):
                assert decode(form) == checked(when)
            assert encode(decode(raw)) == raw


def test_only_the_first_field_may_be_positional() -> None:
    with pytest.raises(TypeError):
        Cron("0 3 * * *", "Europe/Riga")  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Every("5m", "clock")  # type: ignore[call-arg]


durations = st.one_of(
    st.integers(1, 10**10),
    st.floats(0.001, 3e10),
    st.timedeltas(timedelta(milliseconds=1), timedelta(days=300_000)),
    st.builds("{}h{}m".format, st.integers(0, 1000), st.integers(1, 59)),
)


@given(durations)
def test_checking_a_checked_rule_changes_nothing(interval: Any) -> None:
    once = checked(Every(interval))
    assert checked(once) == once
    assert decode(encode(once)) == once
    assert isinstance(once, Every)
    assert isinstance(once.interval, int | float)


@pytest.mark.slow
@settings(max_examples=30)
@given(st.datetimes(datetime(1901, 1, 1), datetime(9999, 1, 1), timezones=st.timezones()))  # noqa: DTZ001 - hypothesis
def test_an_instant_survives_its_storage(at: datetime) -> None:
    assert decode(encode(Once(at))) == Once(at.astimezone(UTC))


REFUSALS: list[tuple[Any, str]] = [
    (Every(0), "interval 0 is out of range: 1 ms to a thousand years"),
    (Every("0.5ms"), "interval '0.5ms' is out of range: 1 ms to a thousand years"),
    (Every(-5), "interval: -5 is not a duration: it must be finite and not negative"),
    (
        Every(timedelta(days=365_001)),
        "interval datetime.timedelta(days=365001) is out of range: at most a thousand",
    ),
    (Every("soon"), 'interval: "soon" is not a duration: write it like "30s"'),
    (Every("9" * 5000), "interval '9999"),
    (Every(10**5000), "interval is not a duration: it must be finite and not negative"),
    (Every("\u0663m"), "interval '\u0663m' is not a duration"),
    (Every(float("nan")), "interval: nan is not a duration"),
    (Every(True), "interval: True is not a duration"),
    (Every("5m", phase="1m"), 'phase shifts the times on the clock: it needs count_from="clock"'),
    (Every("5m", count_from="end", phase="1m"), 'it needs count_from="clock"'),
    (Every("5m", count_from="clock", phase="5m"), "phase '5m' must be shorter than the interval '5m'"),
    (Every("5m", count_from="start"), 'count_from is "plan" or "end" or "clock", not \'start\''),  # type: ignore[arg-type]
    (Every("5m", dst_gap="skip"), 'dst_gap="skip" has no effect on an interval without count_from="clock"'),
    (Every("1h", count_from="clock", dst_fold="both"), "has no effect on an interval of an hour or less"),
    (
        Cron("*/5 * * * *", dst_gap="skip"),
        'dst_gap="skip" has no effect on a cron rule with * as minute or hour, or with seconds: it follows elapsed',
    ),
    (Cron("0 0 3 * * *", dst_fold="second"), "it follows elapsed time; leave it out"),
    (Cron("0 3 * * *", dst_gap="later"), 'dst_gap is "shift" or "skip", not \'later\''),  # type: ignore[arg-type]
    (Cron("0 3 * * *", dst_fold="none"), 'dst_fold is "first" or "second" or "both"'),  # type: ignore[arg-type]
    (Cron("0 3 * * *", spread="400d"), "spread '400d' is out of range: less than 400 days"),
    (Cron("0 3 * * *", spread=-1), "spread: -1 is not a duration"),
    (Cron("0 3 * * *", tz="Europe/Rga"), "there is no time zone 'Europe/Rga' in tzdata"),
    (Cron("0 3 * *"), '"0 3 * *" is not a cron expression: it has 4 fields'),
    (Cron("0 0 31 2 *"), '"0 0 31 2 *" never matches'),
    (Daily("24:00"), "at '24:00' is not a time of day: hour 24 is out of range 0 to 23"),
    (Daily("03:60"), "at '03:60' is not a time of day: minute 60 is out of range 0 to 59"),
    (Daily("03:00:60"), "second 60 is out of range 0 to 59"),
    (Daily("3"), 'at \'3\' is not a time of day: write it like "03:00" or "03:00:30"'),
    (Daily("3:00 pm"), "at '3:00 pm' is not a time of day"),
    (Daily("\u0660\u0663:00"), "is not a time of day"),
    (Once(datetime(2027, 1, 8, 9)), "at needs a time zone: a naive time means a different instant elsewhere"),  # noqa: DTZ001
    (Once(datetime(1899, 1, 1, tzinfo=UTC)), "at 1899-01-01T00:00:00+00:00 is out of range: 1900 to 9999"),
    (Once(datetime.max.replace(tzinfo=timezone(timedelta(hours=-23)))), "is out of range: 1900 to 9999"),
    (Once(datetime.min.replace(tzinfo=timezone(timedelta(hours=23)))), "is out of range: 1900 to 9999"),
    (Once(date(2027, 1, 8)), "at is a datetime with a time zone, not datetime.date(2027, 1, 8)"),  # type: ignore[arg-type]
    (Once("2027-01-08"), "at is a datetime with a time zone, not '2027-01-08'"),  # type: ignore[arg-type]
    (None, "a schedule needs Once, Every, Cron or Daily, not None"),
    ("0 3 * * *", "a schedule needs Once, Every, Cron or Daily, not '0 3 * * *'"),
]


def test_a_refusal_names_the_field_and_a_remedy(subtests: pytest.Subtests) -> None:
    for when, text in REFUSALS:
        with subtests.test(when=when, text=text):
            assert text in refusal(when)
            assert len(refusal(when)) < 400


class Hostile:
    """Raises in every method that an error message would call."""

    def __repr__(self) -> str:
        raise ValueError("no")

    def __eq__(self, other: object) -> bool:
        raise ValueError("no")

    __hash__ = None  # type: ignore[assignment]


class BrokenZone(tzinfo):
    def utcoffset(self, _: datetime | None) -> timedelta:
        raise KeyError("no")

    dst = utcoffset
    tzname = utcoffset  # type: ignore[assignment]


FIVE = 5
STRANGE = [None, True, FIVE, -1.5, "", "x", b"x", [], {}, [1], {"a": 1}, object(), Hostile(), int, 10**5000, 1j,
           float("inf"), "\ud800", "\x00", ("a",), timedelta(-1), MORNING.replace(tzinfo=None)]  # fmt: skip


def test_any_type_in_any_field_is_refused_by_name(subtests: pytest.Subtests) -> None:
    for strange in STRANGE:
        with subtests.test(strange=strange):
            for make in (Once(MORNING), Every("5m", count_from="clock"), Cron("0 3 * * *"), Daily("03:00")):
                for name in make.__struct_fields__:
                    broken = msgspec.structs.replace(make, **{name: strange})
                    if strange is FIVE and name in {"interval", "phase", "spread"}:
                        checked(broken)
                        continue
                    with pytest.raises(InvalidSchedule) as caught:
                        checked(broken)
                    text = str(caught.value)
                    assert any(word in text for word in (name, "time zone", "cron expression")), text
                    with pytest.raises(SerenoError):
                        encode(broken)


def test_a_broken_third_party_zone_is_refused() -> None:
    assert "at has a broken time zone" in refusal(Once(datetime(2027, 1, 8, tzinfo=BrokenZone())))


GARBAGE: list[tuple[Any, str]] = [
    (b"", "a schedule's rule is a JSON object"),
    ("{", "a schedule's rule is a JSON object"),
    ("[]", "a schedule's rule is a JSON object, not []"),
    ("null", "a schedule's rule is a JSON object, not None"),
    (None, "a schedule's rule is a JSON object, not None"),
    (5, "a schedule's rule is a JSON object, not 5"),
    ("{}", 'kind is "once", "every", "cron" or "daily", not None'),
    ({"kind": "hourly"}, "or \"daily\", not 'hourly'"),
    ({"kind": ["cron"]}, "not ['cron']"),
    ({"kind": Hostile()}, "not something of type Hostile"),
    ({"kind": "cron"}, "Cron needs expression: its fields are expression, tz, spread, dst_gap, dst_fold"),
    ({"kind": "once", "at": None}, "at is a datetime with a time zone, not None"),
    ({"kind": "once", "at": "soon"}, "at 'soon' is not a time: write it like \"2027-01-08T09:00:00Z\""),
    ({"kind": "once", "at": "2027-01-08T09:00:00"}, "at needs a time zone"),
    ({"kind": "once", "at": "2027-01-08T09:00:00Z", "tz": "UTC"}, "Once has no field 'tz': its fields are at"),
    ({"kind": "every", "interval": {"hours": 1}}, "interval {'hours': 1} is not a duration"),
    ({"kind": "every", "interval": 300, 5: 5}, "Every has no field 5"),
    ({"kind": "daily", "at": 180}, "at 180 is not a time of day"),
    ('{"kind":"every","interval":1e999}', "a schedule's rule is a JSON object"),
    ('{"kind":"every","interval":' + "9" * 5000 + "}", "a schedule's rule is a JSON object"),
    ("[" * 100_000, "a schedule's rule is a JSON object"),
    ('{"a":' * 100_000, "a schedule's rule is a JSON object"),
    ("\ud800", "a schedule's rule is a JSON object"),
    (b"\xff\xfe", "a schedule's rule is a JSON object"),
]


def test_garbage_is_refused(subtests: pytest.Subtests) -> None:
    for raw, text in GARBAGE:
        with subtests.test(raw=raw, text=text):
            with pytest.raises(InvalidSchedule) as caught:
                decode(raw)
            assert text in str(caught.value)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.datetimes() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
fields = st.sampled_from(["at", "interval", "expression", "tz", "spread", "dst_gap", "dst_fold", "count_from", "phase"])


@pytest.mark.slow
@settings(max_examples=40)
@given(st.dictionaries(fields, json_values), st.sampled_from(["once", "every", "cron", "daily", 1, None]))
def test_an_arbitrary_object_is_a_rule_or_refused(made_up: dict[str, Any], kind: Any) -> None:
    try:
        rule = decode({"kind": kind, **made_up})
    except InvalidSchedule:
        return
    assert decode(encode(rule)) == rule
    assert describe(rule)


@given(st.binary() | st.text())
def test_any_bytes_are_a_rule_or_refused(raw: bytes | str) -> None:
    with pytest.raises(InvalidSchedule):
        decode(raw)


DESCRIPTIONS: list[tuple[When, str]] = [
    (Once(MORNING), "once at 2027-01-08 09:00 UTC"),
    (Once(MORNING + timedelta(seconds=5)), "once at 2027-01-08 09:00:05 UTC"),
    (Every("1m"), "every minute"),
    (Every("5m"), "every 5 minutes"),
    (Every("90m"), "every 90 minutes"),
    (Every("2h", count_from="end"), "every 2 hours (counted from the end of the last run)"),
    (Every("5m", count_from="clock"), "every 5 minutes (aligned to the clock)"),
    (
        Every("1w", count_from="clock", phase="4d", tz="Europe/Riga"),
        "every week (aligned to the clock, 4 d past it), Europe/Riga",
    ),
    (Every(0.25), "every 0.25 seconds"),
    (Every("1d", spread="20m"), "every day, spread over 20 m"),
    (Cron("30 9 * * 1-5", tz="Europe/Riga"), "at 09:30 on Monday through Friday, Europe/Riga"),
    (Cron("*/5 * * * *"), "every fifth minute of every hour, UTC"),
    (Cron("@monthly", spread="1h"), "at 00:00 on the first day of every month, UTC, spread over 1 h"),
    (Daily("3:00", tz="America/Sao_Paulo"), "every day at 03:00, America/Sao_Paulo"),
    (
        Daily("3:00", tz="CET", dst_gap="skip", dst_fold="both"),
        "every day at 03:00, CET, skipped when the clock jumps over it, on both passes where the clock goes back",
    ),
    (
        Daily("3:00", tz="Europe/Riga", dst_fold="second"),
        "every day at 03:00, Europe/Riga, on the second pass where the clock goes back",
    ),
]


def test_a_rule_is_described_as_text(subtests: pytest.Subtests) -> None:
    for when, text in DESCRIPTIONS:
        with subtests.test(when=when, text=text):
            assert describe(when) == text
