"""Notifications from SQL: triggers, migrations and other languages write the same rows as Python."""

import json
import logging
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from threading import Barrier
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sereno import Content, Digest, Limit, Recipient, Sereno, Throttle, in_app
from sereno.database.migrate import migrate
from sereno.database.statement import run
from sereno.jobs.limits import store as limits
from sereno.notifications import event_types
from sereno.notifications.event import EventDefinition
from tests.facts import auntil, one
from tests.notifications.conftest import Pager, States, Tender

T1 = '{"code": "T1", "region": "RM", "amount": 100}'
NOTIFY = "select sereno.notify('tender.published', %s::jsonb, \"to\" => array['user:7'], subject => 'T1')"
FULL: dict[str, Any] = {
    "category": "tenders",
    "opt_in": True,
    "ttl": "2h",
    "throttle": Throttle(3, per="1h"),
    "digest": Digest("15m", key="region"),
}

Row = dict[str, Any]


def declare(app: Sereno, connection: psycopg.Connection) -> None:
    """Declare the event types, as a worker does when it starts."""
    notifications = app.notifications
    run(connection, event_types.declare(notifications.definitions.values(), notifications.channels.resolve))


def rows(connection: psycopg.Connection, table: str) -> list[Row]:
    return [row for (row,) in connection.execute(f"select to_jsonb(t) from sereno.{table} t order by id".encode())]


# Later than any time computed from now.
FAR = datetime(2100, 1, 1, tzinfo=UTC)


def without(row: Row, *names: str) -> Row:
    return {name: value for name, value in row.items() if name not in names}


def from_now(row: Row, due: str, end: str = "") -> Row:
    """Normalise times: two rows are not created in the same microsecond, so only distant due times are compared."""
    at = {name: datetime.fromisoformat(row[name]) for name in ("created_at", due, end) if row.get(name)}
    alike: Row = {} if at[due] >= FAR else {due: at[due] >= at["created_at"]}
    return without(row, "created_at") | alike | ({end: at[end] - at[due]} if end in at else {})


# Events


@pytest.mark.slow
async def test_an_event_from_sql_reaches_the_named_recipients(
    app: Sereno, connection: psycopg.Connection, pager: Pager, states: States
) -> None:
    published = app.event("tender.published", Tender, channels=[pager, in_app])

    @published.template()
    def _(tender: Tender, to: Recipient) -> Content:
        return Content(f"Tender {tender.code} for {to.key}", "new")

    one(connection, "select sereno.put_recipient('user:7', zone => 'Europe/Riga')")
    one(connection, "select sereno.put_address('user:7', 'pager', 'a7')")
    async with app.working():
        number = one(connection, NOTIFY, T1)
        await auntil(lambda: states() == [("user:7", "in_app", "delivered", None), ("user:7", "pager", "sent", None)])
    assert [(message.address, message.title) for message in pager.sent] == [("a7", "Tender T1 for user:7")]
    status = published.status("T1")
    assert status is not None
    assert (status.id, status.state) == (number, "sent")


def test_a_rolled_back_event_leaves_no_rows(app: Sereno, connection: psycopg.Connection) -> None:
    app.event("tender.published", Tender, channels=[in_app])
    declare(app, connection)
    with connection.transaction(force_rollback=True):
        one(connection, NOTIFY, T1)
        assert len(rows(connection, "events")) == len(rows(connection, "jobs")) == 1
    assert rows(connection, "events") == rows(connection, "jobs") == []


def test_a_duplicate_event_returns_the_first_id_in_sql_and_python(app: Sereno, connection: psycopg.Connection) -> None:
    published = app.event("tender.published", Tender, channels=[in_app])
    declare(app, connection)
    first = one(connection, NOTIFY, T1)
    assert one(connection, NOTIFY, T1) == first
    assert published.notify(Tender("T1"), subject="T1") == first
    assert len(rows(connection, "jobs")) == 1
    other = one(connection, "select sereno.notify('tender.published', %s, subject => 'T1', tenant => 'b')", T1)
    assert published.notify(Tender("T1"), subject="T1", tenant="b") == other != first
    assert one(connection, "select sereno.notify('tender.published', %s)", T1) != one(
        connection, "select sereno.notify('tender.published', %s)", T1
    )


def test_concurrent_duplicates_create_one_event(app: Sereno, connection: psycopg.Connection, database_url: str) -> None:
    app.event("tender.published", Tender, channels=[in_app])
    declare(app, connection)
    barrier = Barrier(4)

    def call(_: int) -> list[int]:
        with psycopg.connect(database_url, autocommit=True) as own:
            barrier.wait()
            return [
                one(own, "select sereno.notify('tender.published', '{}', subject => 's', key => %s)", str(number))
                for number in range(20)
            ]

    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(call, range(4)))
    assert all(result == results[0] for result in results)
    assert len(set(results[0])) == len(rows(connection, "events")) == len(rows(connection, "jobs")) == 20


OPTIONS_OF_EVENTS: dict[str, Row] = {"plain": {}, "full": FULL, "critical": {"critical": True, "digest": Digest("1m")}}
OPTIONS_OF_CALLS: list[Row] = [
    {},
    {"tenant": "r42", "at": datetime(2101, 2, 3, 4, 5, tzinfo=UTC), "ttl": "90m", "trace": "order-7"},
]


@pytest.mark.slow
@pytest.mark.parametrize("limited", [False, True], ids=["", "limited"])
def test_sql_writes_the_same_event_rows_as_python(
    app: Sereno, connection: psycopg.Connection, pager: Pager, limited: bool, subtests: pytest.Subtests
) -> None:
    if limited:
        app.queue("notifications", concurrency=Limit(3, key="{tenant}"))
    events = {
        name: app.event(name, Tender, channels=[pager.then(in_app, after="20m"), "telephone"], **options)
        for name, options in OPTIONS_OF_EVENTS.items()
    }
    declare(app, connection)
    if limited:
        run(connection, limits.declare(app.registry, "test"))
    for name, event in events.items():
        for options in OPTIONS_OF_CALLS:
            with subtests.test(name=name, options=options):
                event.notify(Tender("T1"), to=["b", "a", "b"], key="1", conn=connection, **options)
                connection.execute(
                    "select sereno.notify(%s, %s, array['b', 'a', 'b'], key => '2', tenant => %s, at => %s,"
                    " trace => %s, ttl => %s)",
                    [name, T1, *map(options.get, ("tenant", "at", "trace")), "90 minutes" if options else None],
                )
                check_event_rows(connection, limited=limited)
            connection.execute("truncate sereno.events, sereno.jobs")


def check_event_rows(connection: psycopg.Connection, *, limited: bool) -> None:
    """Compare the event and the job of Python with those of SQL."""
    ours, theirs = (
        from_now(without(row, "id", "key", "unchecked"), "due_at", "expires_at") for row in rows(connection, "events")
    )
    assert ours == theirs
    assert ours["note"].startswith("telephone")
    python, sql = rows(connection, "jobs")
    assert (python["args"], sql["args"]) == tuple({"event": row["id"]} for row in rows(connection, "events"))
    assert (sql["keys"] is not None) is limited
    python, sql = (from_now(without(row, "id", "args", "ready_seq"), "run_at") for row in (python, sql))
    assert python == sql


async def test_a_payload_of_the_wrong_shape_creates_no_deliveries(
    app: Sereno, connection: psycopg.Connection, pager: Pager, caplog: pytest.LogCaptureFixture
) -> None:
    app.event("tender.published", Tender, channels=[pager])
    caplog.set_level(logging.WARNING, "sereno")
    async with app.working():
        wrong = one(connection, NOTIFY, '{"code": "T1", "amount": "canary-5c"}')
        await auntil(lambda: one(connection, "select matched_at from sereno.events where id = %s", wrong))
    note = one(connection, "select note from sereno.events where id = %s", wrong)
    assert note.startswith("payload of the wrong shape: event tender.published: ")
    assert "$.amount" in note
    assert one(connection, "select count(*) from sereno.deliveries") == 0
    assert one(connection, "select count(*) from sereno.jobs where task = %s", "sereno.fan_out") == 0
    (record,) = (each for each in caplog.records if getattr(each, "event", None) == "event.refused")
    assert f"event {wrong} (tender.published)" in record.getMessage()
    assert "canary" not in caplog.text


@pytest.mark.slow
async def test_payloads_written_by_python_are_not_checked_again(
    app: Sereno, connection: psycopg.Connection, pager: Pager, states: States
) -> None:
    published = app.event("tender.published", Tender, channels=[pager])
    published.notify(Tender("T1"), to="user:7")
    connection.execute("""update sereno.events set payload = '{"name": "as an earlier version had it"}'""")
    async with app.working():
        await auntil(lambda: states() == [("user:7", "pager", "skipped", "no active address")])


@pytest.mark.slow
async def test_a_trigger_notifies_in_the_transaction_of_its_row(
    app: Sereno, connection: psycopg.Connection, pager: Pager, states: States
) -> None:
    app.event("tender.published", Tender, channels=[in_app])
    connection.execute("create table tenders (code text primary key, amount integer)")
    connection.execute(
        "create function tell() returns trigger language plpgsql as $$ begin "
        "perform sereno.notify('tender.published', jsonb_build_object('code', new.code, 'amount', new.amount), "
        "\"to\" => array['user:7'], subject => new.code); return new; end $$"
    )
    connection.execute("create trigger tell after insert on tenders for each row execute function tell()")
    async with app.working():
        connection.execute("insert into tenders values ('T1', 9), ('T2', 12)")
        with connection.transaction(force_rollback=True):
            connection.execute("insert into tenders values ('T3', 1)")
        await auntil(lambda: states() == [("user:7", "in_app", "delivered", None)] * 2)
    inbox = await app.inbox.alist("user:7")
    assert sorted(row.data["code"] for row in inbox) == ["T1", "T2"]


INVALID_EVENTS = [
    ("'nothing', '{}'", 'no event "nothing" is declared: start a worker of the application that declares it once'),
    ("null, '{}'", "is declared: start a worker"),
    ("'e', null", "the payload must be an object with named fields, not null"),
    ("'e', 'null'", "the payload must be an object with named fields, not null"),
    ("'e', '[1]'", "the payload must be an object with named fields, not [1]"),
    ("'e', jsonb_build_object('a', repeat('x', 66000))", "the limit is 65536"),
    ("'e', '{}', '{}'", '"to" is empty'),
    ("'e', '{}', array[null]", 'a key in "to" is null'),
    ("'e', '{}', array['a', '']", 'to "" must be text of 1 to 500 characters'),
    ("'e', '{}', array_fill('a'::text, array[10001])", "10001 recipients by name, at most 10000"),
    ("'e', '{}', subject => ''", 'subject "" must be text of 1 to 500 characters'),
    ("'e', '{}', key => repeat('x', 501)", "must be text of 1 to 500 characters"),
    ("'e', '{}', tenant => ''", 'tenant "" must be text'),
    ("'e', '{}', at => 'infinity'", "at is out of range"),
    ("'e', '{}', ttl => '-1 second'", "ttl must be finite and not negative"),
    ("'gathered', '{\"code\": [1]}'", 'collected by the field "code", which is an array here'),
]


def test_invalid_events_are_refused_with_a_hint(
    app: Sereno, connection: psycopg.Connection, subtests: pytest.Subtests
) -> None:
    app.event("e", Tender, channels=[in_app])
    app.event("gathered", Tender, channels=[in_app], digest=Digest("1m", key="code"))
    declare(app, connection)
    for arguments, complaint in INVALID_EVENTS:
        with subtests.test(arguments=arguments):
            with pytest.raises(psycopg.errors.InvalidParameterValue) as refusal:
                connection.execute(f"select sereno.notify({arguments})".encode())
            assert complaint in str(refusal.value.diag.message_primary)
            assert refusal.value.diag.message_hint
            assert rows(connection, "events") == rows(connection, "jobs") == []


def test_ten_thousand_recipients_can_be_named(app: Sereno, connection: psycopg.Connection) -> None:
    app.event("e", Tender, channels=[in_app])
    declare(app, connection)
    named = "array(select 'user:' || n from generate_series(1, 10000) n)"
    number = one(connection, f"select sereno.notify('e', '{{}}', {named})")
    assert one(connection, "select cardinality(audience) from sereno.events where id = %s", number) == 10_000


text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=12)
numbers = (
    st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.decimals(-9999, 9999, places=4).map(float)
)


@pytest.mark.slow
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(text, numbers, st.booleans(), st.none(), st.just(...), st.just("x" * 600)), text.filter(bool))
def test_digest_keys_are_the_same_in_sql_and_python(connection: psycopg.Connection, value: Any, field: str) -> None:
    definition = EventDefinition(
        "tender.published",
        dict[str, Any],
        channels=[],
        category=None,
        critical=False,
        opt_in=False,
        ttl=None,
        digest=Digest("1m", key=field),
    )
    payload = json.dumps({} if value is ... else {field: value}, ensure_ascii=False)
    stored, made = connection.execute(
        "select p::text, sereno.digest_key('tender.published', %s, p) from (select %s::jsonb) as s(p)", [field, payload]
    ).fetchall()[0]
    assert made == definition.digest_key(stored.encode())


# Event types


def test_a_declaration_is_written_once_and_the_last_one_wins(
    app: Sereno, connection: psycopg.Connection, database_url: str
) -> None:
    app.event("b", Tender, channels=[in_app], category="one")
    app.event("a", Tender, channels=[in_app, "telephone"], **FULL)
    declare(app, connection)
    versions = "select array_agg(array[name, xmin::text] order by name) from sereno.event_types"
    before = one(connection, versions)
    declare(app, connection)
    assert one(connection, versions) == before
    stored = one(connection, "select definition from sereno.event_types where name = 'a'")
    assert stored == {
        "channels": ["in_app"],
        "note": "telephone: not active here, delivered to the inbox instead",
        "category": "tenders",
        "critical": False,
        "opt_in": True,
        "ttl": 7200.0,
        "throttle": {"most": 3, "seconds": 3600.0},
        "digest": {"key": "region", "seconds": 900.0},
    }
    newer = Sereno(database_url)
    newer.event("b", Tender, channels=[in_app], category="two")
    declare(newer, connection)
    assert one(connection, "select definition ->> 'category' from sereno.event_types where name = 'b'") == "two"
    assert one(connection, "select count(*) from sereno.event_types") == 2
    newer.close()


async def test_a_starting_worker_declares_its_event_types(app: Sereno, connection: psycopg.Connection) -> None:
    app.event("tender.published", Tender, channels=[in_app])
    async with app.working():
        assert one(connection, "select array_agg(name) from sereno.event_types") == ["tender.published"]


def test_an_application_without_events_writes_nothing(app: Sereno) -> None:
    assert list(event_types.declare([], app.channels.resolve)) == []


# Independent of the caller's search path and schema


@pytest.mark.slow
def test_functions_work_in_another_schema_without_a_search_path(empty_database_url: str) -> None:
    with psycopg.connect(empty_database_url, autocommit=True) as own:
        migrate(own, "other_app")
        app = Sereno(empty_database_url, schema="other_app")
        app.event("e", Tender, channels=[in_app], digest=Digest("1m", key="amount"))
        notifications = app.notifications
        run(own, event_types.declare(notifications.definitions.values(), notifications.channels.resolve), "other_app")
        own.execute("set search_path = ''")
        one(own, "select other_app.put_recipient('a', zone => 'Europe/Riga')")
        one(own, "select other_app.put_address('a', 'email', 'a@example.org')")
        one(own, """select other_app.put_preference('a', filter => '{"a": {"contains": "b"}}', quiet => '[]')""")
        one(own, """select other_app.notify('e', '{"code": "1", "amount": 1.5}', array['a'])""")
        assert one(own, "select digest from other_app.events") == "e:1.5"
        assert one(own, "select task from other_app.jobs") == "sereno.fan_out"
        with pytest.raises(psycopg.Error) as refusal:
            one(own, "select other_app.notify('x', '{}')")
        assert "other_app.event_types" in str(refusal.value.diag.message_hint)
        app.close()
