"""Events for a topic reach its subscribers, each of them once, and those alone."""

from datetime import timedelta
from typing import Any

import psycopg
import pytest

from sereno import QuietHours, Sereno
from sereno.database.statement import run
from sereno.errors import InvalidArguments
from sereno.notifications import event_types, events
from sereno.notifications.deliveries.send_jobs import ONCE
from sereno.notifications.why import why_event, why_notification
from tests.database.plans import Access, accesses, plan
from tests.facts import one
from tests.monitoring.verify_steps import broken
from tests.notifications.conftest import Pager, States, Tender

TOPIC = "tender:r42"


def write_recipients(app: Sereno, *keys: str, tenant: str | None = None) -> None:
    for key in keys:
        app.recipients.upsert(key, {"pager": key}, tenant=tenant)


def test_subscriptions_are_counted_once_and_listed_in_pages(app: Sereno) -> None:
    write_recipients(app, "ada", "bob", "cyd")
    write_recipients(app, "ada", tenant="b")
    topics = app.topics
    assert topics.subscribe(TOPIC, "ada") == 1
    assert topics.subscribe(TOPIC, ["ada", "bob", "cyd", "bob"]) == 2
    assert topics.subscribe("tender:r7", "ada") == topics.subscribe("50%", "ada") == 1
    assert topics.subscribe(TOPIC, "ada", tenant="b") == 1
    first = topics.subscribers(TOPIC, most=2)
    assert [line.recipient for line in first] == ["cyd", "bob"]
    assert [line.recipient for line in topics.subscribers(TOPIC, before=first[-1].id)] == ["ada"]
    assert topics.of("ada") == ["50%", TOPIC, "tender:r7"]
    assert topics.of("ada", after="50%", most=1) == topics.of("ada", tenant="b") == [TOPIC]
    assert topics.of("nobody") == []
    counts: list[tuple[dict[str, Any], list[tuple[str, int]]]] = [
        ({}, [("50%", 1), (TOPIC, 3), ("tender:r7", 1)]),
        ({"most": 1}, [("50%", 1)]),
        ({"after": TOPIC}, [("tender:r7", 1)]),
        ({"pattern": "tender:*"}, [(TOPIC, 3), ("tender:r7", 1)]),
        ({"pattern": "*r7"}, [("tender:r7", 1)]),
        ({"pattern": "5_*"}, []),
        ({"pattern": "50%"}, [("50%", 1)]),
        ({"tenant": "b"}, [(TOPIC, 1)]),
    ]
    for options, expected in counts:
        assert [(line.topic, line.subscribers) for line in topics.list(**options)] == expected, options
    assert topics.unsubscribe(TOPIC, ["ada", "nobody"]) == 1
    assert topics.unsubscribe(TOPIC, "ada") == 0
    assert topics.of("ada", tenant="b") == [TOPIC]


def test_recipients_must_exist_and_are_subscribed_together_or_not_at_all(app: Sereno) -> None:
    write_recipients(app, "ada")
    with pytest.raises(InvalidArguments, match="there is no recipient 'bob', 'cyd': create it first"):
        app.topics.subscribe(TOPIC, ["ada", "cyd", "bob"])
    assert app.topics.of("ada") == []
    for topic, recipients in (("", "ada"), ("t" * 501, "ada"), ("a\x00", "ada"), (TOPIC, ""), (TOPIC, ["a"] * 10_001)):
        with pytest.raises(InvalidArguments):
            app.topics.subscribe(topic, recipients)


def test_a_subscription_is_written_in_the_transaction_of_the_caller(app: Sereno) -> None:
    write_recipients(app, "ada")
    with psycopg.connect(app.url) as own:
        assert app.topics.subscribe(TOPIC, "ada", conn=own) == 1
        own.rollback()
    assert app.topics.of("ada") == []


def test_a_deleted_recipient_has_no_subscriptions(app: Sereno, connection: psycopg.Connection) -> None:
    write_recipients(app, "ada", "bob")
    app.topics.subscribe(TOPIC, ["ada", "bob"])
    assert app.recipients.delete("ada")
    assert [line.recipient for line in app.topics.subscribers(TOPIC)] == ["bob"]
    assert one(connection, "select count(*) from sereno.subscriptions") == 1


async def test_an_event_for_a_topic_reaches_the_subscribers_who_want_it(
    app: Sereno, connection: psycopg.Connection, pager: Pager, states: States
) -> None:
    published = app.event("tender.published", Tender, channels=[pager])
    keys = ["ada", "bob", "cyd", "dan", "eve"]
    for key in [*keys, "zoe"]:
        await app.recipients.aupsert(key, {"pager": key})
    await app.recipients.aupsert("other", {"pager": "other"}, tenant="b")
    await app.topics.asubscribe(TOPIC, keys)
    await app.topics.asubscribe(TOPIC, "other", tenant="b")
    await app.recipients.aprefer("bob", wanted=False)
    await app.recipients.aprefer("cyd", condition={"region": "X"})
    now = one(connection, "select sereno.now() at time zone 'UTC'")
    hours = QuietHours(f"{now - timedelta(hours=1):%H:%M}", f"{now + timedelta(hours=1):%H:%M}")
    await app.recipients.aprefer("dan", quiet=hours)
    event = await published.anotify(Tender("T1"), to=f"topic:{TOPIC}")
    assert await app.notifications.fanout.fan_out(event) == 3
    # Who leaves the topic before the message is sent does not get it.
    await app.topics.aunsubscribe(TOPIC, "eve")
    await app.notifications.sender.deliver(1, "pager", "", ONCE)
    assert [message.address for message in pager.sent] == ["ada"]
    found = {(key, state): reason for key, _, state, reason in states()}
    assert found.keys() == {("ada", "sent"), ("dan", "pending"), ("eve", "skipped")}
    assert found["eve", "skipped"] == "not subscribed"


def test_a_topic_in_an_audience_stands_alone(app: Sereno, connection: psycopg.Connection, pager: Pager) -> None:
    published = app.event("tender.published", Tender, channels=[pager])
    run(connection, event_types.declare(app.notifications.definitions.values(), app.channels.resolve))
    call = 'select sereno.notify(\'tender.published\', \'{"code": "T"}\', "to" => %s)'
    for to in (["topic:a", "ada"], ["topic:a", "topic:b"], ["topic:"], [f"topic:{'t' * 500}"]):
        with pytest.raises(InvalidArguments):
            published.notify(Tender("T1"), to=to)
        with pytest.raises(psycopg.errors.InvalidParameterValue):
            connection.execute(call, [to])
    published.notify(Tender("T1"), to=[f"topic:{TOPIC}"])
    connection.execute(call, [[f"topic:{TOPIC}"]])
    rows = connection.execute("select topic, audience from sereno.events").fetchall()
    assert rows == [(TOPIC, None)] * 2


def test_subscriptions_from_sql_are_those_of_python(app: Sereno, connection: psycopg.Connection) -> None:
    write_recipients(app, "ada")
    write_recipients(app, "ada", tenant="b")
    subscribe, unsubscribe = "select sereno.subscribe(%s, %s, %s)", "select sereno.unsubscribe(%s, %s, %s)"
    assert one(connection, subscribe, TOPIC, "ada", None) is True
    assert one(connection, subscribe, TOPIC, "ada", None) is False
    assert app.topics.subscribe(TOPIC, "ada") == 0
    assert one(connection, subscribe, TOPIC, "ada", "b") is True
    for values in ((None, "ada"), (TOPIC, None), ("", "ada"), (TOPIC, ""), (TOPIC, "nobody"), ("t" * 501, "ada")):
        with pytest.raises(psycopg.errors.InvalidParameterValue):
            connection.execute(subscribe, [*values, None])
    assert one(connection, unsubscribe, TOPIC, "ada", None) is True
    assert one(connection, unsubscribe, TOPIC, "ada", None) is False
    assert (app.topics.of("ada"), app.topics.of("ada", tenant="b")) == ([], [TOPIC])


def test_the_fan_out_of_a_topic_continues_after_its_last_chunk(
    app: Sereno, connection: psycopg.Connection, pager: Pager
) -> None:
    published = app.event("tender.published", Tender, channels=[pager])
    write_recipients(app, *(f"user:{number}" for number in range(7)))
    app.topics.subscribe(TOPIC, [f"user:{number}" for number in range(1, 7)])
    event = published.notify(Tender("T1"), to=f"topic:{TOPIC}")
    created = []
    with psycopg.connect(app.url) as crashed:
        run(crashed, events.fan_out(event, 4))
        crashed.rollback()
    for _ in range(2):
        with connection.transaction():
            step = run(connection, events.fan_out(event, 4))
        created.append((step.created, step.more))
    assert created == [(4, True), (2, False)]
    assert one(connection, "select count(distinct recipient_id) from sereno.deliveries") == 6


def test_a_fan_out_reads_only_the_subscribers_of_its_topic(app: Sereno, connection: psycopg.Connection) -> None:
    connection.execute("insert into sereno.recipients (key) select 'u' || g from generate_series(1, 20000) g")
    connection.execute(
        "insert into sereno.subscriptions (tenant, topic, recipient_id) "
        "select '', 'topic' || id % 100, id from sereno.recipients"
    )
    event = app.event("tender.published", Tender, channels=["in_app"]).notify(Tender("T"), to="topic:topic7")
    connection.execute("analyze")
    # As in `begin_fan_out`.
    connection.execute("set enable_seqscan = off; set enable_nestloop = off")
    values = {"event": event, "size": 1000, "sizes": "{}", "queue": "notifications"}
    top = plan(connection, "notifications/events", "fan_out", values)
    assert accesses(top, "subscriptions") <= {
        Access(how, "subscriptions_once", True) for how in ("Index Scan", "Index Only Scan")
    }


async def test_why_names_the_topic(app: Sereno, connection: psycopg.Connection, pager: Pager) -> None:
    published = app.event("tender.published", Tender, channels=[pager])
    for key in ("ada", "bob", "cyd"):
        await app.recipients.aupsert(key, {"pager": key})
    await app.topics.asubscribe(TOPIC, ["ada", "bob"])
    await app.recipients.aprefer("bob", wanted=False)
    event = await published.anotify(Tender("T1"), to=f"topic:{TOPIC}")
    await app.notifications.fanout.fan_out(event)
    sentences = {
        key: " ".join(run(connection, why_notification(key, "tender.published"))) for key in ("ada", "bob", "cyd")
    }
    assert "to …: it has been due since" in sentences["ada"]
    assert f"it was sent to the subscribers of {TOPIC} who wanted it, without bob" in sentences["bob"]
    assert f"is for the topic {TOPIC}, to which cyd is not subscribed" in sentences["cyd"]
    (sentence,) = run(connection, why_event(event, "cyd"))
    assert sentence == f"Event {event} is for the topic {TOPIC}, to which cyd is not subscribed."


def test_a_subscription_in_another_tenant_is_reported(app: Sereno, connection: psycopg.Connection) -> None:
    write_recipients(app, "ada", tenant="b")
    app.topics.subscribe(TOPIC, "ada", tenant="b")
    assert broken(app) == {}
    connection.execute("update sereno.subscriptions set tenant = 'c'")
    assert broken(app) == {"subscriptions_scoped": [one(connection, "select id from sereno.recipients")]}
