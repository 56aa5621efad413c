"""An event is cancelled half-way: what was sent stays sent, and nothing more is."""

from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from sereno import Digest, Sereno, in_app
from sereno.channels.outcome import Retryable
from sereno.database.statement import run
from sereno.errors import ConfigurationError
from sereno.notifications import events
from sereno.notifications.deliveries.send_jobs import ONCE
from sereno.notifications.event_operations import cancel_and_record
from sereno.notifications.topics import operations as topics
from tests.database.plans import accesses, plan
from tests.facts import advance, auntil, one
from tests.monitoring.verify_steps import broken, broken_inside, undone
from tests.notifications.conftest import Pager, States, Tender
from tests.roles import made

Connection = psycopg.Connection[Any]


async def test_a_broadcast_is_cancelled_half_way(
    app: Sereno, connection: Connection, pager: Pager, states: States
) -> None:
    published = app.event("tender.published", Tender, channels=[pager])
    for place in range(12):
        await app.recipients.aupsert(f"user:{place:02}", {"pager": f"a{place}"})
    event = await published.anotify(Tender("T1"), subject="T1")
    other = await published.anotify(Tender("T2"), subject="T2", to="user:00")
    with connection.transaction():
        run(connection, events.fan_out(event, 5))
    await app.notifications.sender.deliver(1, "pager", "", ONCE)
    assert len(pager.sent) == 5
    for number in (event, other):
        with connection.transaction():
            run(connection, events.fan_out(number, 6))
    found = await app.events.acancel(event)
    assert (found.changed, found.sent, found.unsent, found.total.value) == (True, 5, 6, 11)
    assert (await app.events.acancel(event)).changed is False
    # The fan-out ends, and the job skips what waits.
    assert await app.notifications.fanout.fan_out(event) == 0
    assert await app.notifications.fanout.skip_cancelled(event) == 6
    assert await app.notifications.fanout.skip_cancelled(event) == 0
    await app.notifications.sender.deliver(2, "pager", "", ONCE)
    assert [message.data["code"] for message in pager.sent[5:]] == ["T2"]
    assert (
        sorted((state, reason) for _, _, state, reason in states())
        == [("sent", None)] * 6 + [("skipped", "cancelled")] * 6
    )
    status = await published.astatus("T1")
    assert status is not None
    assert status.cancelled_at is not None
    assert status.state == "sent"
    assert one(connection, "select count(*) from sereno.jobs where task = 'sereno.cancel_event'") == 1
    assert broken(app) == {}


async def test_a_batch_keeps_the_deliveries_of_other_events(app: Sereno, connection: Connection, pager: Pager) -> None:
    published = app.event("tender.published", Tender, channels=[pager])
    for key in ("ada", "bob"):
        await app.recipients.aupsert(key, {"pager": key})
    cancelled, other = [await published.anotify(Tender(code), subject=code) for code in ("T1", "T2")]
    for number in (cancelled, other):
        await app.notifications.fanout.fan_out(number)
    # One batch, as after a retry of both.
    mixed = "(select array_agg(id order by recipient_id, id) from sereno.deliveries)"
    connection.execute("delete from sereno.batches where id = (select max(id) from sereno.batches)")
    connection.execute(f"update sereno.batches set deliveries = {mixed}".encode())
    await app.events.acancel(cancelled)
    assert await app.notifications.fanout.skip_cancelled(cancelled) == 2
    kept = one(connection, "select array_agg(id order by id) from sereno.deliveries where event_id = %s", other)
    assert one(connection, "select deliveries from sereno.batches") == kept
    assert broken(app) == {}


def test_a_claim_looks_subscriptions_and_digests_up_by_key(connection: Connection) -> None:
    connection.execute("insert into sereno.recipients (key) select 'u' || g from generate_series(1, 5000) g")
    connection.execute(
        "insert into sereno.subscriptions (tenant, topic, recipient_id) select '', 't', id from sereno.recipients"
    )
    connection.execute(
        "insert into sereno.events (type, payload, channels, key, topic) "
        "select 'a', '{}', '{p}', g, 't' from generate_series(1, 2000) g"
    )
    connection.execute(
        "insert into sereno.deliveries (event_id, recipient_id, channel, digest, due_at) "
        "select 1, id, 'p', 'd', sereno.now() from sereno.recipients"
    )
    connection.execute("analyze")
    places = {"channel": "p", "account": "", "job": 1, "ids": "{1,2,3}"}
    top = plan(connection, "notifications/deliveries/store", "take", places)
    assert accesses(top, "subscriptions")
    assert all(access.bounded for table in ("subscriptions", "deliveries", "events") for access in accesses(top, table))
    top = plan(connection, "notifications/broadcasts", "skip_cancelled", {"event": 1, "after": 0, "size": 100})
    assert all(access.bounded for table in ("deliveries", "events") for access in accesses(top, table))


async def test_a_retry_of_a_cancelled_event_is_skipped_when_it_is_due(
    app: Sereno, connection: Connection, pager: Pager, states: States
) -> None:
    published = app.event("tender.published", Tender, channels=[pager])
    await app.recipients.aupsert("ada", {"pager": "a"})
    pager.outcomes = {"a": Retryable("busy")}
    event = await published.anotify(Tender("T1"), to="ada")
    await app.notifications.fanout.fan_out(event)
    await app.notifications.sender.deliver(1, "pager", "", ONCE)
    await app.events.acancel(event)
    advance(connection, 600)
    # Without the job: the claim itself refuses.
    await app.notifications.sender.deliver(2, "pager", "", ONCE)
    assert states() == [("ada", "pager", "skipped", "cancelled")]
    assert len(pager.sent) == 1
    number = one(connection, "select id from sereno.deliveries")
    assert await app.notifications.arequeue([number]) == [number]
    await app.notifications.sender.deliver(3, "pager", "", ONCE)
    assert states() == [("ada", "pager", "skipped", "cancelled")]


async def test_a_scheduled_event_that_is_cancelled_reaches_nobody(
    app: Sereno, connection: Connection, pager: Pager
) -> None:
    published = app.event("tender.published", Tender, channels=[pager.then(in_app, after="10m")])
    await app.recipients.aupsert("ada", {"pager": "a"})
    event = await published.anotify(Tender("T1"), subject="T1", at=datetime(2101, 1, 1, tzinfo=UTC))
    assert (await app.events.acancel(event)).total.value == 0
    assert await app.notifications.fanout.fan_out(event) == 0
    assert one(connection, "select count(*) from sereno.jobs where task = 'sereno.escalate'") == 0
    status = await published.astatus("T1")
    assert status is not None
    assert status.state == "cancelled"
    with pytest.raises(ConfigurationError, match="no event has the id 999"):
        app.events.cancel(999)


async def test_a_cancelled_event_leaves_the_digest_of_others(
    app: Sereno, connection: Connection, pager: Pager, states: States
) -> None:
    published = app.event("tender.published", Tender, channels=[pager], digest=Digest("15m"))
    await app.recipients.aupsert("ada", {"pager": "a"})
    numbers = [await published.anotify(Tender(f"T{place}"), subject=f"T{place}") for place in range(3)]
    for number in numbers:
        await app.notifications.fanout.fan_out(number)
    await app.events.acancel(numbers[0])
    advance(connection, 1000)
    await app.notifications.sender.deliver(1, "pager", "", ONCE)
    (message,) = pager.sent
    assert message.title == "tender.published (and 1 more)"
    assert [state for _, _, state, _ in states()] == ["skipped", "sent", "skipped"]
    assert states()[0][3] == "cancelled"


async def test_a_digest_does_not_collect_a_cancelled_event(
    app: Sereno, connection: Connection, pager: Pager, states: States
) -> None:
    published = app.event("tender.published", Tender, channels=[pager], digest=Digest("15m"))
    await app.recipients.aupsert("ada", {"pager": "a"})
    numbers = [await published.anotify(Tender(f"T{place}"), subject=f"T{place}") for place in range(2)]
    for number in numbers:
        await app.notifications.fanout.fan_out(number)
    connection.execute(
        "update sereno.batches set due_at = due_at + interval '1 hour' where id = (select max(id) from sereno.batches)"
    )
    await app.events.acancel(numbers[1])
    advance(connection, 1000)
    await app.notifications.sender.deliver(1, "pager", "", ONCE)
    assert [message.title for message in pager.sent] == ["tender.published"]
    assert [state for _, _, state, _ in states()] == ["sent", "pending"]


def test_an_event_that_is_sent_after_its_cancellation_is_reported(
    app: Sereno, connection: Connection, pager: Pager
) -> None:
    published = app.event("tender.published", Tender, channels=[pager])
    app.recipients.upsert("ada", {"pager": "a"})
    event = published.notify(Tender("T1"), to="ada")
    with connection.transaction():
        run(connection, events.fan_out(event, 10))
    app.events.cancel(event)
    changes = {
        "update sereno.events set matched_at = null": event,
        "update sereno.deliveries set state = 'sent', sent_at = sereno.now() + interval '1 hour'": event,
    }
    for change, reported in changes.items():
        with undone(connection):
            connection.execute(change.encode())
            assert broken_inside(connection)["cancelled_not_sent"] == [reported]
    assert broken(app) == {}


async def test_a_delivery_that_carries_a_digest_outlives_the_cancellation_of_its_event(
    app: Sereno, connection: Connection, pager: Pager, states: States
) -> None:
    published = app.event("tender.published", Tender, channels=[pager], digest=Digest("15m"))
    await app.recipients.aupsert("ada", {"pager": "a"})
    numbers = [await published.anotify(Tender(f"T{place}"), subject=f"T{place}") for place in range(2)]
    for number in numbers:
        await app.notifications.fanout.fan_out(number)
    advance(connection, 1000)
    pager.outcomes = {"a": Retryable("busy")}
    await app.notifications.sender.deliver(1, "pager", "", ONCE)
    await app.events.acancel(numbers[0])
    assert await app.notifications.fanout.skip_cancelled(numbers[0]) == 0
    pager.outcomes = {}
    advance(connection, 1000)
    await app.notifications.sender.deliver(2, "pager", "", ONCE)
    assert [state for _, _, state, _ in states()] == ["sent", "skipped"]


@pytest.mark.slow
async def test_a_worker_cancels_a_broadcast_at_a_rate(app: Sereno, connection: Connection, pager: Pager) -> None:
    published = app.event("tender.published", Tender, channels=[pager])
    for place in range(60):
        await app.recipients.aupsert(f"user:{place}", {"pager": f"a{place}"})
    async with app.working():
        event = await published.anotify(Tender("T1"), rate="5/s")
        await auntil(lambda: len(pager.sent) >= 5)
        await app.events.acancel(event)
        pending = "select count(*) from sereno.deliveries where state in ('pending', 'sending')"
        await auntil(lambda: one(connection, pending) == 0)
    cancelled = one(connection, "select count(*) from sereno.deliveries where reason = 'cancelled'")
    assert cancelled > 0
    assert len(pager.sent) + cancelled == 60


def test_the_role_of_the_server_cancels_events_and_changes_subscriptions(
    app: Sereno, connection: Connection, database_url: str, pager: Pager
) -> None:
    published = app.event("tender.published", Tender, channels=[pager])
    event = published.notify(Tender("T1"))
    app.recipients.upsert("ada", {"pager": "a"})
    with made(connection, database_url) as roles, roles.connect("server") as server:
        assert run(server, topics.subscribe("tender:r42", ["ada"], tenant=None)) == 1
        assert run(server, topics.unsubscribe("tender:r42", ["ada"], tenant=None)) == 1
        assert one(server, "select sereno.subscribe('tender:r42', 'ada')") is True
        assert run(server, cancel_and_record(event, app.events.jobs)).changed
        assert app.recipients.delete("ada", conn=server)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            server.execute("update sereno.events set payload = '{}'")
    assert app.topics.of("ada") == []
