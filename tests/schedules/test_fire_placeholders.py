"""Placeholders in arguments and keys: filled in the schedule's zone, and unable to exhaust memory."""

import string
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sereno import Cron, Daily, Every, InvalidSchedule, Sereno
from sereno.jobs.task_handle import Task
from sereno.schedules.fire_job import fire_job, local
from sereno.schedules.fire_placeholders import DIRECTIVES, LONGEST_FORMAT, check_names, filled, has_names
from sereno.schedules.rules.when import When, encode
from sereno.zones import instant, zone
from tests.facts import advance, one

AT = datetime(2026, 3, 1, 2, 5, 9, tzinfo=zone("America/Sao_Paulo").info)


@pytest.fixture
def work(app: Sereno) -> Task[..., None]:
    @app.task
    def work(name: str) -> None: ...

    return work


PLACEHOLDERS = [
    ("{fire:%Y-%m}", "2026-03"),
    ("{fire:%Y-%m-%d %H:%M:%S}", "2026-03-01 02:05:09"),
    ("{fire:%G-W%V-%u}", "2026-W09-7"),
    ("{fire:%F}", "2026-03-01"),
    ("{fire:%y%j%w}", "260600"),
    ("{fire:%A %a %B %b}", "Sunday Sun March Mar"),
    ("{fire:%z}", "-0300"),
    ("{fire:100%%}", "100%"),
    ("{fire:%%B}", "%B"),
    ("{fire:Q1 of «%Y»}", "Q1 of «2026»"),
    ("{fire:}", "2026-03-01T02:05:09-03:00"),
    ("{fire}", "2026-03-01T02:05:09-03:00"),
    ("{date}", "2026-03-01"),
    ("{key}/{tenant}", "menu:{date}/r42"),
    ("{fire", "{fire"),
    ("{fires} {Date} {} {0} {date:%Y}", "{fires} {Date} {} {0} {date:%Y}"),
    ("{{date}}", "{2026-03-01}"),
]


def test_a_placeholder_becomes_the_instant_in_the_schedules_zone(subtests: pytest.Subtests) -> None:
    """A key that looks like a placeholder stays as it is: filled-in text is not expanded again."""
    for text, expected in PLACEHOLDERS:
        with subtests.test(text=text, expected=expected):
            assert filled(text, AT, "menu:{date}", "r42") == expected


def test_placeholders_are_filled_at_any_depth_and_nothing_else_changes() -> None:
    value = {"{date}": ["{key}", {"deep": ["{fire:%Y}", 1, 2.5, None, True]}], "n": 10**30}
    assert filled(value, AT, "k", None) == {
        "2026-03-01": ["k", {"deep": ["2026", 1, 2.5, None, True]}],
        "n": 10**30,
    }
    assert filled("[{tenant}]", AT, "k", None) == "[]"


@pytest.mark.slow
def test_every_directive_matches_pythons_strftime(subtests: pytest.Subtests) -> None:
    for letter in sorted(DIRECTIVES):
        with subtests.test(letter=letter):
            for day in range(400):
                at = AT + timedelta(days=day, hours=7 * day)
                assert filled(f"{{fire:%{letter}}}", at, "k", None) == at.strftime(f"%{letter}")


class Elsewhere(datetime):
    """A host with a German locale."""

    def strftime(self, pattern: str) -> str:
        return {"%A": "Sonntag", "%a": "So", "%B": "März", "%b": "Mär"}.get(pattern) or super().strftime(pattern)


def test_the_locale_of_a_host_changes_nothing() -> None:
    """Two schedulers on two hosts make the same unique key."""
    there = Elsewhere(2026, 3, 1, 2, 5, tzinfo=UTC)
    assert there.strftime("%A") == "Sonntag"
    assert filled("{fire:%A %a %d %B %b}", there, "k", None) == "Sunday Sun 01 March Mar"


UNKNOWN_FORMATS = [
    "{fire:%999999999d}",
    "{fire:%-d}",
    "{fire:%_d}",
    "{fire:%0100d}",
    "{fire:%Ey}",
    "{fire:%c}",
    "{fire:%n}",
    "{fire:%s}",
    "{fire:%Z}",
    "{fire:%}",
    "{fire:%Y%}",
    "{fire:%\n}",
    "{fire:%é}",
    "{fire:" + "x" * (LONGEST_FORMAT + 1) + "}",
]


def test_an_unknown_format_is_refused_when_stored_and_when_fired(subtests: pytest.Subtests) -> None:
    for text in UNKNOWN_FORMATS:
        with subtests.test(text=text):
            for value in (text, {"a": [text]}, {text: 1}):
                with pytest.raises(InvalidSchedule):
                    check_names(value)
            with pytest.raises(InvalidSchedule):
                filled(text, AT, "k", None)


def test_a_refusal_is_short_and_lists_the_known_directives() -> None:
    with pytest.raises(InvalidSchedule, match=r"%Q is not a known directive; use one of %% %A"):
        check_names("{fire:%Q}")
    with pytest.raises(InvalidSchedule) as refused:
        check_names("{fire:" + "y" * 100_000 + "}")
    assert len(str(refused.value)) < 200


@pytest.mark.slow
@given(st.text(alphabet=string.ascii_letters + "%{}:- \n0123456789é", max_size=60))
def test_any_text_is_filled_or_refused_and_grows_little(text: str) -> None:
    try:
        check_names(text)
    except InvalidSchedule:
        with pytest.raises(InvalidSchedule):
            filled(text, AT, "k", "t")
        return
    done = filled(text, AT, "k", "t")
    assert len(done) <= 20 * len(text) + 30
    assert has_names(text) or done == text


@pytest.mark.slow
@given(
    st.recursive(
        st.text() | st.integers() | st.none(),
        lambda some: st.lists(some, max_size=3) | st.dictionaries(st.text(), some, max_size=3),
        max_leaves=8,
    )
)
def test_arguments_without_placeholders_are_unchanged(value: Any) -> None:
    text = msgspec.json.encode(value).decode()
    if not has_names(text):
        assert filled(value, AT, "k", None) == value


DAYS_OF_ZONES: list[tuple[When, datetime, str]] = [
    (Daily("23:30", tz="America/Sao_Paulo"), datetime(2026, 3, 1, 2, 30, tzinfo=UTC), "2026-02-28 23:30"),
    (Cron("30 2 * * *", tz="Europe/Riga"), datetime(2026, 3, 29, 1, 0, tzinfo=UTC), "2026-03-29 04:00"),
    (Every("1h"), datetime(2026, 3, 1, 2, 30, tzinfo=UTC), "2026-03-01 02:30"),
]


def test_the_day_is_that_of_the_zone(subtests: pytest.Subtests) -> None:
    for when, at, expected in DAYS_OF_ZONES:
        with subtests.test(when=when, at=at, expected=expected):
            assert f"{local(encode(when).decode(), instant(at)):%Y-%m-%d %H:%M}" == expected


def test_placeholders_use_the_rules_instant_without_the_spread(
    app: Sereno, work: Task[..., None], connection: psycopg.Connection
) -> None:
    """Spread over the night, all accounts still reconcile the same day."""
    for number in range(20):
        app.schedules.upsert(
            f"k{number}", work.job("{date} {fire:%H:%M}"), Daily("23:30", tz="Asia/Kolkata", spread="4h")
        )
    advance(connection, 2 * 86400)
    app.schedules.tick()
    names = {row[0] for row in connection.execute("select args ->> 'name' from sereno.jobs")}
    assert one(connection, "select count(distinct planned_at) from sereno.jobs") > 10
    assert {name.split()[1] for name in names} == {"23:30"}
    assert len(names) <= 2


def test_a_job_has_only_the_options_of_its_schedule() -> None:
    details = {
        "key": "k",
        "task": "t",
        "args": {"n": "{date}"},
        "queue": "q",
        "priority": 3,
        "tenant": None,
        "trace": None,
        "tags": ["x"],
        "unique_key": "{key}:{date}",
        "unique_for": None,
        "unique_forever": True,
        "on_conflict": "keep",
        "expires_after": 60.0,
    }
    job = fire_job(details, encode(Daily("03:00")).decode(), instant(datetime(2026, 3, 1, 3, tzinfo=UTC)), 0)
    assert job == {
        "task": "t",
        "args": {"n": "2026-03-01"},
        "queue": "q",
        "priority": 3,
        "tags": ["x"],
        "unique_key": "k:2026-03-01",
        "unique_forever": True,
        "on_conflict": "keep",
        "by_rules": True,
        "expires_at": datetime(1970, 1, 1, 0, 1, tzinfo=UTC),
    }


def test_sql_and_python_agree_on_what_has_placeholders(
    app: Sereno, work: Task[..., None], connection: psycopg.Connection
) -> None:
    for number, text in enumerate(["{date}", "{fire}", "{fire:%Y}", "{key}", "{tenant}", "plain", "{Date}", "{fire:"]):
        app.schedules.upsert(f"python{number}", work.job(text), Every("1h"))
        connection.execute(
            "select sereno.schedule(%s, 'work', jsonb_build_object('name', %s::text), every => interval '1 hour')",
            [f"sql{number}", text],
        )
    pairs = connection.execute(
        "select p.args ->> 'name', p.templated, s.templated from sereno.schedules p "
        "join sereno.schedules s on s.key = replace(p.key, 'python', 'sql') where p.key like 'python%'"
    ).fetchall()
    assert len(pairs) == 8
    # Either may report placeholders where there are none; neither may miss one.
    named = {"{date}", "{fire}", "{fire:%Y}", "{key}", "{tenant}"}
    assert {text for text, python, sql in pairs if python and sql} >= named
    assert "plain" not in {text for text, python, sql in pairs if python or sql}
