"""Due deliveries are claimed completely: none is left behind, sent early or collected wrongly."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from sereno import Content, Digest, Rate, Recipient, Sereno, in_app
from sereno.channels.outcome import Failed, Retryable
from sereno.database.statement import run
from sereno.notifications.deliveries import store as deliveries
from sereno.notifications.deliveries.send_jobs import MOST_TOKENS, ONCE
from sereno.notifications.event_handle import Event
from tests.database.plans import accesses, nodes, plan
from tests.facts import advance, auntil, one, until
from tests.jobs.job_steps import waits_for_a_lock
from tests.notifications.conftest import Pager, States, Tender

JOB = 7


class SingleMessagePager(Pager):
    """One message per call and one call per job, so that a test controls each step."""

    batch = 1
    rate = Rate(1000, per="1s")


async def add_recipients(app: Sereno, *keys: str) -> None:
    for key in keys:
        await app.recipients.aupsert(key, {"pager": key})


async def publish(app: Sereno, event: Event[Any], *codes: str) -> None:
    """Publish events with these codes and fan them out without a worker."""
    for code in codes:
        await app.notifications.fanout.fan_out(await event.anotify(Tender(code), subject=code))


async def run_send_job(app: Sereno) -> None:
    """Run one send job of the pager."""
    await app.notifications.sender.deliver(JOB, "pager", "", ONCE)


def pause(connection: psycopg.Connection) -> None:
    connection.execute("insert into sereno.channel_pauses (channel, account, reason) values ('pager', '', 'broken')")


def digest_event(app: Sereno, channel: Pager) -> Event[Any]:
    """An event with a digest of 15 minutes whose title lists the codes."""
    published = app.event("tender.published", Tender, channels=[channel], digest=Digest("15m"))

    @published.template()
    def _(tender: Tender, to: Recipient) -> Content:
        return Content(tender.code)

    @published.digest_template()
    def _(tenders: Sequence[Tender], to: Recipient) -> Content:
        return Content(" ".join(tender.code for tender in tenders))

    return published


def titles(channel: Pager) -> list[str]:
    return [message.title for message in channel.sent]


def delivery_ids(connection: psycopg.Connection) -> list[int]:
    """Return the ids of all deliveries, oldest first."""
    return [row[0] for row in connection.execute("select id from sereno.deliveries order by id").fetchall()]


async def all_send_jobs_ended(connection: psycopg.Connection) -> None:
    """Wait until all events are fanned out and no send job is left: what is not sent now needs the sweep."""
    await auntil(lambda: one(connection, "select count(*) from sereno.events where matched_at is null") == 0)
    await auntil(lambda: one(connection, "select count(*) from sereno.jobs where task = 'sereno.deliver'") == 0)


@pytest.mark.slow
async def test_partial_batches_are_all_sent_when_a_channel_is_resumed(
    app: Sereno, connection: psycopg.Connection, pager: Pager, states: States
) -> None:
    published = app.event("tender.published", Tender, channels=[pager])
    await add_recipients(app, *"abcdef")
    pause(connection)
    async with app.working():
        for number in range(20):
            await published.anotify(Tender("T"), subject=str(number))
        await auntil(lambda: len(states()) == 120)
        await all_send_jobs_ended(connection)
        assert pager.sent == []
        await app.notifications.aresume("pager")
        await all_send_jobs_ended(connection)
    assert {row[2] for row in states()} == {"sent"}
    assert len(pager.sent) == 120


@pytest.mark.slow
async def test_under_load_no_batch_is_left_behind(
    app: Sereno, connection: psycopg.Connection, pager: Pager, states: States
) -> None:
    published = app.event("tender.published", Tender, channels=[pager])
    await add_recipients(app, *"abcdef")
    for number in range(20):
        await published.anotify(Tender("T"), subject=str(number))
    async with app.working():
        await all_send_jobs_ended(connection)
    assert one(connection, "select count(*) from sereno.batches") == 0
    assert [row[2] for row in states()] == ["sent"] * 120
    assert len(pager.sent) == 120


async def test_a_full_batch_is_claimed_even_if_the_last_one_must_be_split(
    app: Sereno, connection: psycopg.Connection, pager: Pager
) -> None:
    await add_recipients(app, *"abcdef")
    await publish(app, app.event("tender.published", Tender, channels=[pager]), "T1", "T2")
    assert app.database.run(deliveries.take("pager", "", JOB, 10)).examined == 10
    assert app.database.run(deliveries.take("pager", "", JOB, 10)).examined == 2


async def test_a_job_that_finds_all_batches_locked_waits_for_the_rest(
    app: Sereno, connection: psycopg.Connection, database_url: str, pager: Pager
) -> None:
    await add_recipients(app, *"abcdef")
    await publish(app, app.event("tender.published", Tender, channels=[pager]), "T1", "T2")
    with psycopg.connect(database_url) as other, ThreadPoolExecutor(1) as pool:
        first = run(other, deliveries.take("pager", "", JOB, 10))
        late = pool.submit(app.database.run, deliveries.take("pager", "", JOB + 1, 10))
        until(lambda: late.done() or waits_for_a_lock(connection))
        other.commit()
        second = late.result(30)
    assert (first.examined, second.examined) == (10, 2)
    assert {each.id for each in first.deliveries} | {each.id for each in second.deliveries} == set(
        delivery_ids(connection)
    )


async def test_later_deliveries_keep_their_job_while_the_channel_is_paused(
    app: Sereno, connection: psycopg.Connection, pager: Pager
) -> None:
    pause(connection)
    await add_recipients(app, "a")
    await publish(app, digest_event(app, pager), "T1")
    await app.notifications.aresume("pager")
    due = "select min(run_at) from sereno.jobs where task = 'sereno.deliver' and run_at > sereno.now()"
    assert one(connection, due) >= one(connection, "select due_at from sereno.deliveries")


@pytest.mark.slow
async def test_resuming_a_channel_during_a_fan_out_loses_no_delivery(
    app: Sereno, connection: psycopg.Connection, database_url: str, pager: Pager, states: States
) -> None:
    published = app.event("tender.published", Tender, channels=[pager])
    pause(connection)
    await add_recipients(app, "a")
    event = await published.anotify(Tender("T1"), subject="T1")
    with psycopg.connect(database_url) as walker:
        run(walker, app.notifications.fanout.create_deliveries(event))
        await app.notifications.aresume("pager")
        walker.commit()
    async with app.working():
        await all_send_jobs_ended(connection)
    assert states() == [("a", "pager", "sent", None)]


@pytest.mark.slow
async def test_small_batches_of_a_channel_with_a_rate_share_jobs(
    app: Sereno, connection: psycopg.Connection, states: States
) -> None:
    class Limited(Pager):
        rate = Rate(5000, per="1s")

    channel = Limited()
    published = app.event("tender.published", Tender, channels=[channel])
    await add_recipients(app, *"abc")
    await publish(app, published, *(f"T{number}" for number in range(10)))
    keys = connection.execute("select unique_key from sereno.jobs where task = 'sereno.deliver'").fetchall()
    assert {key for (key,) in keys} <= {f"notifications/pager//{slot}" for slot in range(2 * MOST_TOKENS)}
    async with app.working():
        await all_send_jobs_ended(connection)
    assert [row[2] for row in states()] == ["sent"] * 30
    assert len(channel.sent) == 30


async def test_a_retry_is_not_sent_early_by_an_older_batch(
    app: Sereno, connection: psycopg.Connection, states: States
) -> None:
    channel = SingleMessagePager()
    await add_recipients(app, "a")
    await publish(app, digest_event(app, channel), "T1", "T2")
    advance(connection, 16 * 60)
    await run_send_job(app)
    assert [row[2] for row in states()] == ["sent", "skipped"]
    # Its first batch is still stored; the requeue puts it into a second one.
    channel.outcomes = {"a": Retryable("busy", after=7200.0)}
    app.notifications.requeue(delivery_ids(connection)[1:])
    await run_send_job(app)
    assert titles(channel) == ["T1 T2", "T2"]
    await run_send_job(app)
    assert len(channel.sent) == 2
    channel.outcomes = {}
    advance(connection, 7300)
    await run_send_job(app)
    assert [row[2] for row in states()] == ["sent", "sent"]


async def test_expired_deliveries_are_not_collected(
    app: Sereno, connection: psycopg.Connection, states: States
) -> None:
    channel = SingleMessagePager()
    published = digest_event(app, channel)
    await add_recipients(app, "a")
    await publish(app, published, "T1")
    brief = await published.anotify(Tender("T2"), subject="T2", ttl="1m")
    await app.notifications.fanout.fan_out(brief)
    advance(connection, 16 * 60)
    await run_send_job(app)
    await run_send_job(app)
    assert titles(channel) == ["T1"]
    assert [row[2] for row in states()] == ["sent", "expired"]


async def test_a_carrier_can_be_collected_together_with_its_deliveries(
    app: Sereno, connection: psycopg.Connection, pager: Pager, states: States
) -> None:
    published = digest_event(app, pager)
    pager.outcomes = {"a": Failed("refused")}
    await add_recipients(app, "a")
    for codes in (["T1"], ["T2", "T3"]):
        await publish(app, published, *codes)
        advance(connection, 16 * 60)
        await run_send_job(app)
    pager.outcomes = {}
    app.notifications.requeue(delivery_ids(connection))
    await run_send_job(app)
    assert titles(pager) == ["T1", "T2 T3", "T1 T2 T3"]
    first = delivery_ids(connection)[0]
    assert [row[2:] for row in states()] == [("sent", None), *[("skipped", f"covered by delivery {first}")] * 2]


class BusyPager(Pager):
    batch = 100


async def test_every_recipient_gets_one_message_however_much_was_collected(
    app: Sereno, connection: psycopg.Connection
) -> None:
    pager = BusyPager()
    people, codes = [f"p{number}" for number in range(100)], [f"T{number}" for number in range(8)]
    await add_recipients(app, *people)
    await publish(app, digest_event(app, pager), *codes)
    advance(connection, 16 * 60)
    await run_send_job(app)
    assert titles(pager) == [" ".join(codes)] * 100
    assert one(connection, "select count(*) from sereno.deliveries where state = 'pending'") == 0


async def test_a_requeued_delivery_is_not_sent_by_another_message(
    app: Sereno, connection: psycopg.Connection, pager: Pager, states: States
) -> None:
    pager.outcomes = {"a": Retryable("busy", after=3600.0)}
    await add_recipients(app, "a")
    await publish(app, digest_event(app, pager), "T1", "T2")
    advance(connection, 16 * 60)
    await run_send_job(app)
    pager.outcomes = {}
    app.notifications.requeue(delivery_ids(connection)[1:])
    await run_send_job(app)
    assert titles(pager) == ["T1 T2", "T2"]
    advance(connection, 3700)
    await run_send_job(app)
    assert titles(pager) == ["T1 T2", "T2", "T1"]
    assert [row[2] for row in states()] == ["sent", "sent"]


async def test_many_requeued_deliveries_are_stored_in_small_batches(
    app: Sereno, connection: psycopg.Connection
) -> None:
    published = app.event("tender.published", Tender, channels=[in_app])
    event = await published.anotify(Tender("T1"), subject="T1", to=[f"p{number}" for number in range(250)])
    await app.notifications.fanout.fan_out(event)
    connection.execute("update sereno.deliveries set state = 'dead'")
    connection.execute("delete from sereno.batches")
    assert len(app.notifications.requeue(delivery_ids(connection))) == 250
    sizes = connection.execute("select cardinality(deliveries) from sereno.batches order by 1").fetchall()
    assert sizes == [(50,), (100,), (100,)]


@pytest.mark.slow
async def test_collected_deliveries_are_found_by_their_own_index(
    app: Sereno, connection: psycopg.Connection, pager: Pager
) -> None:
    await add_recipients(app, "a")
    await publish(app, digest_event(app, pager), "T1")
    connection.execute(
        "insert into sereno.deliveries (event_id, recipient_id, channel, state, due_at) "
        "select -n, n % 100, 'pager', 'sent', sereno.now() from generate_series(1, 5000) as n"
    )
    connection.execute("analyze sereno.deliveries")
    event = one(connection, "select id from sereno.events")
    for file, name, values in (
        ("notifications/deliveries/store", "gather", {"ids": delivery_ids(connection)[:1], "job": JOB}),
        ("notifications/events", "fan_out", {"event": event, "size": 5000, "sizes": "{}", "queue": "notifications"}),
    ):
        found = accesses(plan(connection, file, name, values), "deliveries")
        assert "Seq Scan" not in {access.how for access in found}, name
        indexes = {node.get("Index Name") for node in nodes(plan(connection, file, name, values))}
        assert "deliveries_gathered" in indexes, name


async def test_a_delivery_that_exists_already_is_not_created_again(app: Sereno, connection: psycopg.Connection) -> None:
    published = app.event("tender.published", Tender, channels=[in_app])
    names = [f"p{number}" for number in range(3)]
    for name in names:
        await app.recipients.aupsert(name)
    event = await published.anotify(Tender("T1"), subject="T1", to=names)
    connection.execute(
        "insert into sereno.deliveries (event_id, recipient_id, channel, state, due_at) "
        "select %s, id, 'in_app', 'sent', sereno.now() from sereno.recipients where key = 'p1'",
        [event],
    )
    assert await app.notifications.fanout.fan_out(event) == 2
    assert one(connection, "select count(*) from sereno.deliveries") == 3
    assert one(connection, "select sum(cardinality(deliveries)) from sereno.batches") == 2
