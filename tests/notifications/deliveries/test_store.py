"""What is due is taken whole, by whoever has a turn: nothing is left behind, taken early or gathered wrongly."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg

from sereno import Content, Digest, Rate, Recipient, Sereno, in_app
from sereno.channels.outcome import Failed, Retryable
from sereno.database.statement import run
from sereno.notifications.client import Event
from sereno.notifications.deliveries import store as deliveries
from sereno.notifications.deliveries.send_jobs import MOST_TOKENS, ONCE
from tests.database.plans import accesses, nodes, plan
from tests.facts import advance, auntil, one, until
from tests.jobs.job_steps import waits_for_a_lock
from tests.notifications.conftest import Pager, States, Tender

JOB = 7


class Single(Pager):
    """One message a call and one call a turn, so that a test takes steps as small as they are."""

    batch = 1
    rate = Rate(1000, per="1s")


async def people(app: Sereno, *keys: str) -> None:
    for key in keys:
        await app.recipients.aupsert(key, {"pager": key})


async def tell(app: Sereno, event: Event[Any], *codes: str) -> None:
    """Deliveries for all, without a worker."""
    for code in codes:
        await app.notifications.fanout.fan_out(await event.anotify(Tender(code), subject=code))


async def turn(app: Sereno) -> None:
    """One turn on the pager."""
    await app.notifications.dispatch.deliver(JOB, "pager", "", ONCE)


def pause(connection: psycopg.Connection) -> None:
    connection.execute("insert into sereno.channel_pauses (channel, account, reason) values ('pager', '', 'broken')")


def gathers(app: Sereno, channel: Pager) -> Event[Any]:
    """Tenders of a quarter of an hour in one message, whose title is their codes."""
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


def numbers(connection: psycopg.Connection) -> list[int]:
    """All deliveries, the oldest first."""
    return [row[0] for row in connection.execute("select id from sereno.deliveries order by id").fetchall()]


async def nobody_is_left_to_send(connection: psycopg.Connection) -> None:
    """All events are walked, and the last turn was had: what is not sent now waits for the sweep."""
    await auntil(lambda: one(connection, "select count(*) from sereno.events where matched_at is null") == 0)
    await auntil(lambda: one(connection, "select count(*) from sereno.jobs where task = 'sereno.deliver'") == 0)


async def test_batches_that_are_not_full_are_all_sent_when_a_channel_works_again(
    app: Sereno, connection: psycopg.Connection, pager: Pager, states: States
) -> None:
    published = app.event("tender.published", Tender, channels=[pager])
    await people(app, *"abcdef")
    pause(connection)
    async with app.working():
        for number in range(20):
            await published.anotify(Tender("T"), subject=str(number))
        await auntil(lambda: len(states()) == 120)
        await nobody_is_left_to_send(connection)
        assert pager.sent == []
        await app.notifications.aresume("pager")
        await nobody_is_left_to_send(connection)
    assert {row[2] for row in states()} == {"sent"}
    assert len(pager.sent) == 120


async def test_under_load_no_batch_is_left_behind(
    app: Sereno, connection: psycopg.Connection, pager: Pager, states: States
) -> None:
    published = app.event("tender.published", Tender, channels=[pager])
    await people(app, *"abcdef")
    for number in range(50):
        await published.anotify(Tender("T"), subject=str(number))
    async with app.working():
        await nobody_is_left_to_send(connection)
    assert one(connection, "select count(*) from sereno.batches") == 0
    assert [row[2] for row in states()] == ["sent"] * 300
    assert len(pager.sent) == 300


async def test_a_full_batch_is_taken_also_where_the_last_one_has_to_be_split(
    app: Sereno, connection: psycopg.Connection, pager: Pager
) -> None:
    await people(app, *"abcdef")
    await tell(app, app.event("tender.published", Tender, channels=[pager]), "T1", "T2")
    assert app.database.run(deliveries.take("pager", "", JOB, 10)).looked_at == 10
    assert app.database.run(deliveries.take("pager", "", JOB, 10)).looked_at == 2


async def test_whoever_finds_all_in_the_hands_of_another_waits_for_what_that_one_leaves(
    app: Sereno, connection: psycopg.Connection, database_url: str, pager: Pager
) -> None:
    await people(app, *"abcdef")
    await tell(app, app.event("tender.published", Tender, channels=[pager]), "T1", "T2")
    with psycopg.connect(database_url) as other, ThreadPoolExecutor(1) as pool:
        first = run(other, deliveries.take("pager", "", JOB, 10))
        late = pool.submit(app.database.run, deliveries.take("pager", "", JOB + 1, 10))
        until(lambda: late.done() or waits_for_a_lock(connection))
        other.commit()
        second = late.result(30)
    assert (first.looked_at, second.looked_at) == (10, 2)
    assert {each.id for each in first.deliveries} | {each.id for each in second.deliveries} == set(numbers(connection))


async def test_what_is_due_later_keeps_its_turn_while_the_channel_is_paused(
    app: Sereno, connection: psycopg.Connection, pager: Pager
) -> None:
    pause(connection)
    await people(app, "a")
    await tell(app, gathers(app, pager), "T1")
    await app.notifications.aresume("pager")
    due = "select min(run_at) from sereno.jobs where task = 'sereno.deliver' and run_at > sereno.now()"
    assert one(connection, due) >= one(connection, "select due_at from sereno.deliveries")


async def test_a_channel_that_works_again_while_an_event_is_walked_forgets_nobody(
    app: Sereno, connection: psycopg.Connection, database_url: str, pager: Pager, states: States
) -> None:
    published = app.event("tender.published", Tender, channels=[pager])
    pause(connection)
    await people(app, "a")
    event = await published.anotify(Tender("T1"), subject="T1")
    with psycopg.connect(database_url) as walker:
        run(walker, app.notifications.fanout._walk(event))
        await app.notifications.aresume("pager")
        walker.commit()
    async with app.working():
        await nobody_is_left_to_send(connection)
    assert states() == [("a", "pager", "sent", None)]


async def test_small_batches_of_a_channel_with_a_rate_share_their_turns(
    app: Sereno, connection: psycopg.Connection, states: States
) -> None:
    class Limited(Pager):
        rate = Rate(5000, per="1s")

    channel = Limited()
    published = app.event("tender.published", Tender, channels=[channel])
    await people(app, *"abc")
    await tell(app, published, *(f"T{number}" for number in range(10)))
    keys = connection.execute("select unique_key from sereno.jobs where task = 'sereno.deliver'").fetchall()
    assert {key for (key,) in keys} <= {f"pager//{slot}" for slot in range(2 * MOST_TOKENS)}
    async with app.working():
        await nobody_is_left_to_send(connection)
    assert [row[2] for row in states()] == ["sent"] * 30
    assert len(channel.sent) == 30


async def test_a_retry_that_waits_is_not_taken_early_by_an_older_batch(
    app: Sereno, connection: psycopg.Connection, states: States
) -> None:
    channel = Single()
    await people(app, "a")
    await tell(app, gathers(app, channel), "T1", "T2")
    advance(connection, 16 * 60)
    await turn(app)
    assert [row[2] for row in states()] == ["sent", "skipped"]
    # Its first batch still waits to be passed over; by hand it is in a second one.
    channel.answers = {"a": Retryable("busy", after=7200.0)}
    app.notifications.requeue(numbers(connection)[1:])
    await turn(app)
    assert titles(channel) == ["T1 T2", "T2"]
    await turn(app)
    assert len(channel.sent) == 2
    channel.answers = {}
    advance(connection, 7300)
    await turn(app)
    assert [row[2] for row in states()] == ["sent", "sent"]


async def test_what_is_no_longer_true_is_not_gathered(
    app: Sereno, connection: psycopg.Connection, states: States
) -> None:
    channel = Single()
    published = gathers(app, channel)
    await people(app, "a")
    await tell(app, published, "T1")
    brief = await published.anotify(Tender("T2"), subject="T2", ttl="1m")
    await app.notifications.fanout.fan_out(brief)
    advance(connection, 16 * 60)
    await turn(app)
    await turn(app)
    assert titles(channel) == ["T1"]
    assert [row[2] for row in states()] == ["sent", "expired"]


async def test_one_that_carried_others_can_be_gathered_together_with_them(
    app: Sereno, connection: psycopg.Connection, pager: Pager, states: States
) -> None:
    published = gathers(app, pager)
    pager.answers = {"a": Failed("refused")}
    await people(app, "a")
    for codes in (["T1"], ["T2", "T3"]):
        await tell(app, published, *codes)
        advance(connection, 16 * 60)
        await turn(app)
    pager.answers = {}
    app.notifications.requeue(numbers(connection))
    await turn(app)
    assert titles(pager) == ["T1", "T2 T3", "T1 T2 T3"]
    first = numbers(connection)[0]
    assert [row[2:] for row in states()] == [("sent", None), *[("skipped", f"told by delivery {first}")] * 2]


async def test_one_that_is_sent_again_by_hand_is_told_by_nobody_else(
    app: Sereno, connection: psycopg.Connection, pager: Pager, states: States
) -> None:
    pager.answers = {"a": Retryable("busy", after=3600.0)}
    await people(app, "a")
    await tell(app, gathers(app, pager), "T1", "T2")
    advance(connection, 16 * 60)
    await turn(app)
    pager.answers = {}
    app.notifications.requeue(numbers(connection)[1:])
    await turn(app)
    assert titles(pager) == ["T1 T2", "T2"]
    advance(connection, 3700)
    await turn(app)
    assert titles(pager) == ["T1 T2", "T2", "T1"]
    assert [row[2] for row in states()] == ["sent", "sent"]


async def test_many_that_are_sent_again_by_hand_wait_in_small_batches(
    app: Sereno, connection: psycopg.Connection
) -> None:
    published = app.event("tender.published", Tender, channels=[in_app])
    event = await published.anotify(Tender("T1"), subject="T1", to=[f"p{number}" for number in range(250)])
    await app.notifications.fanout.fan_out(event)
    connection.execute("update sereno.deliveries set state = 'dead'")
    connection.execute("delete from sereno.batches")
    assert len(app.notifications.requeue(numbers(connection))) == 250
    sizes = connection.execute("select cardinality(deliveries) from sereno.batches order by 1").fetchall()
    assert sizes == [(50,), (100,), (100,)]


async def test_what_is_gathered_is_found_by_an_index_of_its_own(
    app: Sereno, connection: psycopg.Connection, pager: Pager
) -> None:
    await people(app, "a")
    await tell(app, gathers(app, pager), "T1")
    connection.execute(
        "insert into sereno.deliveries (event_id, recipient_id, channel, state, due_at) "
        "select -n, n % 100, 'pager', 'sent', sereno.now() from generate_series(1, 5000) as n"
    )
    connection.execute("analyze sereno.deliveries")
    event = one(connection, "select id from sereno.events")
    for noun, name, values in (
        ("notifications/deliveries/store", "gather", {"ids": numbers(connection)[:1], "job": JOB}),
        ("notifications/events", "fan_out", {"event": event, "size": 5000, "sizes": "{}"}),
    ):
        found = accesses(plan(connection, noun, name, values), "deliveries")
        assert "Seq Scan" not in {access.how for access in found}, name
        indexes = {node.get("Index Name") for node in nodes(plan(connection, noun, name, values))}
        assert "deliveries_gathered" in indexes, name
