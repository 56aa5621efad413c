"""Recipients, addresses and preferences from SQL: the same rows and the same refusals as from Python."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sereno import QuietHours, Sereno
from sereno.errors import InvalidArguments
from sereno.notifications.recipients.quiet_hours import checked, quiet_until
from tests.facts import one
from tests.notifications.test_notify_from_sql import rows, without

# Recipients and addresses


def test_sql_writes_the_same_recipients_and_addresses_as_python(app: Sereno, connection: psycopg.Connection) -> None:
    app.recipients.upsert("p", {"email": "p@example.org"}, locale="lv", zone="Europe/Riga", data={"n": 1}, tenant="r")
    number = one(connection, "select sereno.put_recipient('s', 'r', 'lv', 'Europe/Riga', '{\"n\": 1}')")
    address = one(connection, "select sereno.put_address('s', 'email', 'p@example.org', tenant => 'r')")
    for table, id_, names in (
        ("recipients", number, ["id", "key", "created_at", "changed_at"]),
        ("addresses", address, ["id", "recipient_id", "created_at", "changed_at"]),
    ):
        python, sql = rows(connection, table)
        assert sql["id"] == id_
        assert without(python, *names) == without(sql, *names)

    assert one(connection, "select sereno.put_recipient('s', 'r', locale => 'es')") == number
    (_, sql) = rows(connection, "recipients")
    assert (sql["locale"], sql["zone"], sql["data"]) == ("es", "Europe/Riga", {"n": 1})


def test_an_address_given_again_is_active_unless_it_was_unsubscribed(
    app: Sereno, connection: psycopg.Connection
) -> None:
    one(connection, "select sereno.put_recipient('a')")
    put = "select sereno.put_address('a', 'email', 'x', keys => %s)"
    first = one(connection, put, '{"k": 1}')
    connection.execute("update sereno.addresses set state = 'invalid', reason = 'gone'")
    assert one(connection, put, None) == first
    (row,) = rows(connection, "addresses")
    assert (row["state"], row["reason"], row["keys"]) == ("active", None, {"k": 1})
    assert app.recipients.unsubscribe("a", "email", "x")
    assert one(connection, put, "{}") == first
    (row,) = rows(connection, "addresses")
    assert (row["state"], row["reason"], row["keys"]) == ("unsubscribed", "by the recipient", {"k": 1})


INVALID_RECIPIENTS = [
    ("put_recipient(null)", "a recipient needs a key"),
    ("put_recipient('')", 'key "" must be text'),
    ("put_recipient('x', tenant => '')", 'tenant "" must be text'),
    ("put_recipient('x', data => '[]')", "data of recipient x must be an object"),
    ("put_recipient('x', zone => 'Europe/Rigaa')", 'there is no time zone "Europe/Rigaa"'),
    ("put_recipient('x', zone => 'europe/riga')", 'there is no time zone "europe/riga"'),
    ("put_recipient('x', zone => 'XYZ3')", 'there is no time zone "XYZ3"'),
    ("put_recipient('x', zone => '3')", 'there is no time zone "3"'),
    ("put_recipient('x', zone => '')", 'there is no time zone ""'),
    ("put_address('missing', 'email', 'x')", 'there is no recipient "missing"'),
    ("put_address('a', 'email', 'x', tenant => 'other')", 'there is no recipient "a"'),
    ("put_address('a', 'email', null)", "an address needs a channel and a text"),
    ("put_address('a', null, 'x')", "an address needs a channel and a text"),
    ("put_address('a', 'email', '')", 'address "" must be text of 1 to 2000 characters'),
    ("put_address('a', 'email', 'x', keys => '[]')", "keys of an address of email must be an object"),
    ("put_address('a', 'email', 'x', state => 'new')", 'an address cannot be "new"'),
    ("put_preference('missing', wanted => true)", 'there is no recipient "missing"'),
    ("put_preference('a', category => '', wanted => true)", 'category "" must be text'),
    ("put_preference('a', clear => array['condition'])", "clear names preferences to reset"),
    ("put_preference('a', wanted => true, clear => array['wanted'])", "clear names preferences to reset"),
    ("put_preference('a', filter => 'null')", "a filter is an object, not null"),
    ("put_preference('a', quiet => '5')", "quiet hours have start, end"),
    ("put_preference('a', quiet => '{\"start\": \"1:00\"}')", "are times of day"),
    ("put_preference('a', digest => '8 days')", "messages are collected for 7 days at most, not for 8 days"),
    ("put_preference('a', digest => '-1 hour')", "messages are collected for 7 days at most, not for -01:00:00"),
]


def test_invalid_recipients_are_refused_with_a_hint(connection: psycopg.Connection, subtests: pytest.Subtests) -> None:
    for call, complaint in INVALID_RECIPIENTS:
        with subtests.test(call=call):
            one(connection, "select sereno.put_recipient('a')")
            with pytest.raises(psycopg.errors.InvalidParameterValue) as refusal:
                connection.execute(f"select sereno.{call}".encode())
            assert complaint in str(refusal.value.diag.message_primary)
            assert refusal.value.diag.message_hint
            assert len(rows(connection, "recipients")) == 1
            assert rows(connection, "addresses") == rows(connection, "preferences") == []


def test_zones_are_checked_and_the_session_zone_is_unchanged(
    connection: psycopg.Connection, subtests: pytest.Subtests
) -> None:
    for zone in ["UTC", "Europe/Riga", "Etc/GMT+3", "EST5EDT", "America/Argentina/Buenos_Aires"]:
        with subtests.test(zone=zone):
            connection.execute("set timezone = 'America/Lima'")
            assert one(connection, "select sereno.put_recipient('a', zone => %s)", zone)
            assert one(connection, "show timezone") == "America/Lima"


# Preferences


def test_sql_writes_the_same_preferences_as_python(app: Sereno, connection: psycopg.Connection) -> None:
    condition = {"amount": {"min": 5}}
    for tenant in (None, "r"):
        one(connection, "select sereno.put_recipient('a', %s)", tenant)
        for key in ("a", None):
            app.recipients.prefer(
                key,
                tenant=tenant,
                category="c",
                condition=condition,
                quiet=QuietHours("22:00", "8:00"),
                digest="1h30m",
            )
            python = rows(connection, "preferences")[-1]
            connection.execute("delete from sereno.preferences where id = %s", [python["id"]])
            one(
                connection,
                "select sereno.put_preference(%s, tenant => %s, category => 'c', filter => %s, quiet => %s, "
                "digest => '1 hour 30 minutes')",
                key,
                tenant,
                json.dumps(condition),
                '{"start": "22:00", "end": "8:00"}',
            )
            assert without(rows(connection, "preferences")[-1], "id", "changed_at") == without(
                python, "id", "changed_at"
            )


def test_given_aspects_change_and_the_others_stay(connection: psycopg.Connection) -> None:
    one(connection, "select sereno.put_recipient('a')")
    put = "select sereno.put_preference('a', event => 'e', {})".format
    number = one(connection, put("wanted => false"))
    assert one(connection, put("quiet => '[]'")) == number
    assert one(connection, put("filter => '{}', wanted => true")) == number
    (row,) = rows(connection, "preferences")
    assert (row["wanted"], row["filter"], row["condition"], row["quiet"]) == (True, {}, "true", [])
    assert one(connection, put("clear => array['filter', 'wanted']")) == number
    (row,) = rows(connection, "preferences")
    assert (row["wanted"], row["filter"], row["condition"], row["quiet"]) == (None, None, None, [])
    assert one(connection, put("clear => array['quiet'], digest => '0'")) == number
    (row,) = rows(connection, "preferences")
    assert (row["quiet"], row["digest_seconds"]) == (None, 0)
    assert one(connection, put("clear => array['digest']")) is None
    assert rows(connection, "preferences") == []


clock = st.sampled_from(["0:00", "00:00", "8:00", "12:00", "23:59", " 22:30", "24:00", "8:60", "noon", "", "00:01"])
day = st.sampled_from(["monday", "Tue", "wed", " THURSDAY", "fri", "saturday", "sun", "x", ""])
spans = st.lists(st.tuples(clock, clock, st.none() | st.lists(day, max_size=7)), max_size=4)


def _python(given_spans: Sequence[tuple[str, str, list[str] | None]]) -> list[tuple[str, str, list[str] | None]] | None:
    try:
        quiet = checked([QuietHours(start, end, days) for start, end, days in given_spans])
    except InvalidArguments:
        return None
    return [(each.start, each.end, None if each.days is None else list(each.days)) for each in quiet]


WEEK = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
HALVES: list[tuple[str, str, list[str] | None]] = [("0:00", "12:00", None), ("12:00", "0:00", WEEK)]


@pytest.mark.slow
@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(spans | st.just(HALVES) | st.just([*HALVES[:1], ("12:00", "0:00", WEEK[:6])]) | st.just([HALVES[0]] * 51))
def test_sql_checks_quiet_hours_like_python(
    connection: psycopg.Connection, given_spans: list[tuple[str, str, list[str] | None]]
) -> None:
    raw = msgspec.json.encode([{"start": start, "end": end, "days": days} for start, end, days in given_spans])
    try:
        found = one(connection, "select sereno.quiet_spans(%s::jsonb)", raw.decode())
    except psycopg.errors.InvalidParameterValue:
        assert _python(given_spans) is None
    else:
        named = [
            (each["start"], each["end"], each["days"] and [WEEK[number - 1] for number in each["days"]])
            for each in found
        ]
        assert named == _python(given_spans)


@pytest.mark.slow
def test_sql_finds_the_end_of_quiet_hours_like_python(connection: psycopg.Connection) -> None:
    """In a week without a clock change, for each hour: the SQL decides when a delivery is due."""
    nights = QuietHours("22:00", "08:00", ["friday", "saturday"])
    for quiet in (QuietHours("13:00", "15:30"), QuietHours("22:00", "08:00"), nights):
        given_span = msgspec.json.encode(quiet).decode()
        for hour in range(7 * 24):
            moment = datetime(2026, 6, 1, tzinfo=UTC) + timedelta(hours=hour)
            query = "select sereno.quiet_until(sereno.quiet_spans(%s::jsonb), 'Europe/Riga', %s)"
            found = one(connection, query, given_span, moment)
            assert found == quiet_until(quiet, "Europe/Riga", moment), f"{quiet} at {moment}"
