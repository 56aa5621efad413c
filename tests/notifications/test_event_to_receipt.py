"""From an event in a transaction to the final state of its deliveries."""

from functools import partial

import psycopg
import pytest

from sereno import Content, QuietHours, Recipient, Sereno, in_app
from sereno.channels.outcome import Down, Failed, Invalid, Receipt, Retryable, Unknown
from sereno.notifications.deliveries.send_jobs import ONCE
from tests.facts import advance, auntil, one
from tests.notifications.conftest import Pager, States, Tender


@pytest.mark.slow
async def test_an_event_reaches_each_named_recipient_once(
    app: Sereno, connection: psycopg.Connection, pager: Pager, states: States
) -> None:
    published = app.event("tender.published", Tender, channels=[pager, in_app])

    @published.template()
    def _(tender: Tender, to: Recipient) -> Content:
        return Content(f"Tender {tender.code} for {to.key}", "new")

    await app.recipients.aupsert("user:7", {"pager": "a7"}, zone="Europe/Riga")
    async with app.working():
        first = await published.anotify(Tender("T1"), subject="T1", to="user:7")
        again = await published.anotify(Tender("T1"), subject="T1", to="user:7")
        assert first == again
        await auntil(lambda: one(connection, "select count(*) from sereno.deliveries where state <> 'pending'") == 2)
        await auntil(lambda: states() == [("user:7", "in_app", "delivered", None), ("user:7", "pager", "sent", None)])
    assert [(message.address, message.title, message.data["code"]) for message in pager.sent] == [
        ("a7", "Tender T1 for user:7", "T1")
    ]
    (row,) = await app.inbox.alist("user:7")
    assert (row.title, row.body, row.event) == ("Tender T1 for user:7", "new", "tender.published")
    assert await app.inbox.aunread("user:7") == 1
    assert await app.inbox.amark("user:7", "read") == 1
    assert await app.inbox.aunread("user:7") == 0
    assert ("user:7", "in_app", "read", None) in states()


async def test_a_rolled_back_event_is_not_sent(app: Sereno, connection: psycopg.Connection, pager: Pager) -> None:
    published = app.event("tender.published", Tender, channels=[pager])
    async with await psycopg.AsyncConnection.connect(app.url) as own:
        await published.anotify(Tender("T1"), subject="T1", to="user:7", conn=own)
        await own.rollback()
    assert one(connection, "select count(*) from sereno.events") == 0
    assert one(connection, "select count(*) from sereno.jobs") == 0


@pytest.mark.slow
async def test_a_broadcast_reaches_exactly_those_who_want_it(
    app: Sereno, connection: psycopg.Connection, pager: Pager, states: States
) -> None:
    published = app.event("tender.published", Tender, channels=[pager], category="tenders")
    for number in range(6):
        await app.recipients.aupsert(f"user:{number}", {"pager": f"a{number}"})
    await app.recipients.aupsert("elsewhere", {"pager": "b"}, tenant="other")
    await app.recipients.aprefer("user:1", wanted=False)
    await app.recipients.aprefer("user:2", category="tenders", condition={"region": ["V"]})
    await app.recipients.aprefer("user:3", category="tenders", condition={"amount": {"min": 50}, "region": "RM"})
    await app.recipients.aprefer("user:4", wanted=False)
    await app.recipients.aprefer("user:4", event="tender.published", channel="pager", wanted=True)
    await app.recipients.aupsert("user:5", {})
    await app.recipients.aunsubscribe("user:5", "pager", "a5")
    async with app.working():
        await published.anotify(Tender("T1"), subject="T1")
        await auntil(lambda: len(pager.sent) == 3)
    assert sorted(message.address for message in pager.sent) == ["a0", "a3", "a4"]
    assert [row for row in states() if row[2] == "skipped"] == [("user:5", "pager", "skipped", "no active address")]


async def test_a_named_recipient_who_gets_nothing_has_a_skipped_delivery(
    app: Sereno, connection: psycopg.Connection, pager: Pager, states: States
) -> None:
    published = app.event("tender.published", Tender, channels=[pager])
    for key in ("off", "other", "none"):
        await app.recipients.aupsert(key, {} if key == "none" else {"pager": key})
    await app.recipients.aprefer("off", wanted=False)
    await app.recipients.aprefer("other", condition={"region": "V"})
    async with app.working():
        await published.anotify(Tender("T1"), to=["off", "other", "none", "new"])
        await auntil(lambda: len(states()) == 4)
    assert states() == [
        ("new", "pager", "skipped", "no active address"),
        ("none", "pager", "skipped", "no active address"),
        ("off", "pager", "skipped", "preference off"),
        ("other", "pager", "skipped", "condition"),
    ]
    assert pager.sent == []


@pytest.mark.slow
async def test_an_opt_in_event_reaches_those_who_turned_it_on(app: Sereno, pager: Pager, states: States) -> None:
    news = app.event("news", Tender, channels=[pager], opt_in=True)
    for key in ("ana", "eva", "luis"):
        await app.recipients.aupsert(key, {"pager": key})
    for key in ("ana", "eva"):
        await app.recipients.aprefer(key, event="news", wanted=True)
    await app.notifications.fanout.fan_out(await news.anotify(Tender("T1"), subject="T1"))
    assert states() == [("ana", "pager", "pending", None), ("eva", "pager", "pending", None)]
    await app.recipients.aprefer("eva", event="news", wanted=None)
    await app.notifications.sender.deliver(7, "pager", "", ONCE)
    assert states() == [("ana", "pager", "sent", None), ("eva", "pager", "skipped", "preference off")]


@pytest.mark.slow
async def test_each_outcome_sets_its_state(
    app: Sereno, connection: psycopg.Connection, pager: Pager, states: States
) -> None:
    pager.outcomes = {
        "bad": Failed("too_big", "4 MB"),
        "gone": Invalid("NotRegistered", "bye"),
        "late": Retryable("busy", "later", after=3600),
        "lost": Unknown("no_response", "cut"),
    }
    published = app.event("tender.published", Tender, channels=[pager])
    for key in ("bad", "gone", "good", "late", "lost"):
        await app.recipients.aupsert(key, {"pager": key})
    async with app.working():
        await published.anotify(Tender("T1"), subject="T1")
        await auntil(lambda: len(pager.sent) == 5 and not [row for row in states() if row[2] == "sending"])
        assert [(row[0], row[2]) for row in states()] == [
            ("bad", "failed"),
            ("gone", "invalid"),
            ("good", "sent"),
            ("late", "pending"),
            ("lost", "pending"),
        ]
        assert connection.execute("select state, reason from sereno.addresses where address = 'gone'").fetchone() == (
            "invalid",
            "NotRegistered: bye",
        )
        pager.outcomes = {}
        advance(connection, 100)
        await auntil(lambda: ("lost", "pager", "sent", None) in states())
        assert ("late", "pager", "pending", "tried again") in states()
        advance(connection, 3700)
        await auntil(lambda: ("late", "pager", "sent", None) in states())
    assert one(connection, "select unknowns from sereno.deliveries where provider_id = 'p5' or unknowns > 0") == 1


@pytest.mark.slow
async def test_a_delivery_is_dead_after_the_last_retry_and_can_be_requeued(
    app: Sereno, connection: psycopg.Connection, pager: Pager, states: States
) -> None:
    pager.outcomes = {"a": Retryable("busy")}
    published = app.event("tender.published", Tender, channels=[pager])
    await app.recipients.aupsert("u", {"pager": "a"})
    async with app.working():
        await published.anotify(Tender("T1"), to="u")
        for tries in (1, 2, 3):
            await auntil(partial(_has_sent, pager, tries))
            await auntil(lambda: states()[0][2] in ("pending", "dead"))
            advance(connection, 200)
        await auntil(lambda: states()[0][2] == "dead")
        pager.outcomes = {}
        number = one(connection, "select id from sereno.deliveries")
        assert await app.notifications.arequeue([number]) == [number]
        await auntil(lambda: states() == [("u", "pager", "sent", None)])
    assert len({message.key for message in pager.sent}) == 1


def _has_sent(pager: Pager, count: int) -> bool:
    return len(pager.sent) == count


@pytest.mark.slow
async def test_refused_credentials_pause_the_channel_without_counting_attempts(
    app: Sereno, connection: psycopg.Connection, pager: Pager, states: States
) -> None:
    pager.outcomes = {"a": Down("InvalidCredentials", "key expired"), "b": Down("InvalidCredentials", "key expired")}
    published = app.event("tender.published", Tender, channels=[pager])
    await app.recipients.aupsert("a", {"pager": "a"})
    await app.recipients.aupsert("b", {"pager": "b"})
    async with app.working():
        await published.anotify(Tender("T1"), subject="T1")
        await auntil(lambda: one(connection, "select count(*) from sereno.channel_pauses") == 1)
        await published.anotify(Tender("T2"), subject="T2")
        await auntil(lambda: len(states()) == 4)
        pager.outcomes = {}
        assert await app.notifications.aresume("pager") == [""]
        await auntil(lambda: [row[2] for row in states()] == ["sent"] * 4)
    assert connection.execute("select distinct attempts from sereno.deliveries").fetchall() == [(1,)]


@pytest.mark.slow
async def test_quiet_hours_delay_deliveries_and_expired_ones_are_not_sent(
    app: Sereno, connection: psycopg.Connection, pager: Pager, states: States
) -> None:
    published = app.event("tender.published", Tender, channels=[pager])
    brief = app.event("tender.closing", Tender, channels=[pager], ttl="10m")
    alarm = app.event("alarm", Tender, channels=[pager], critical=True)
    now = one(connection, "select (sereno.now() at time zone 'UTC')::time")
    start, end = f"{(now.hour - 1) % 24:02}:00", f"{(now.hour + 2) % 24:02}:00"
    await app.recipients.aupsert("u", {"pager": "a"}, zone="UTC")
    await app.recipients.aprefer("u", quiet=QuietHours(start, end))
    async with app.working():
        await published.anotify(Tender("T1"), subject="T1")
        await brief.anotify(Tender("T2"), subject="T2")
        await alarm.anotify(Tender("T3"), subject="T3")
        await auntil(lambda: [message.data["code"] for message in pager.sent] == ["T3"])
        await auntil(lambda: [row[2] for row in states()].count("pending") == 2)
        advance(connection, 3 * 3600)
        await auntil(lambda: sorted(row[2] for row in states()) == ["expired", "sent", "sent"])
    assert [message.data["code"] for message in pager.sent] == ["T3", "T1"]


@pytest.mark.slow
async def test_receipts_are_requested_and_states_only_move_forward(
    app: Sereno, connection: psycopg.Connection, pager: Pager, states: States
) -> None:
    type(pager).receipts_after = 900.0
    try:
        published = app.event("tender.published", Tender, channels=[pager])
        for key in ("a", "b", "c", "d"):
            await app.recipients.aupsert(key, {"pager": key})
        async with app.working():
            await published.anotify(Tender("T1"), subject="T1")
            await auntil(lambda: [row[2] for row in states()] == ["sent"] * 4)
            ids = {message.address: f"p{message.delivery}" for message in pager.sent}
            pager.receipts_to_return = [
                Receipt(provider_id=ids["a"], outcome="delivered"),
                Receipt(provider_id=ids["b"], outcome="invalid", code="DeviceNotRegistered"),
                Receipt(provider_id=ids["c"], outcome="retry", code="MessageRateExceeded"),
            ]
            advance(connection, 1000)
            await auntil(lambda: states()[0][2] == "delivered" and states()[1][2] == "invalid")
            await auntil(lambda: states()[2][2] == "pending")
            assert states()[3][2] == "sent"
            pager.receipts_to_return = []
            advance(connection, 200)
            await auntil(lambda: states()[2][2] == "sent")
        late = [
            Receipt(provider_id=ids["a"], outcome="failed", id="r1"),
            Receipt(provider_id=ids["d"], outcome="read", id="r2"),
        ]
        assert await app.notifications.receipts.apply("pager", "", late) == 1
        assert await app.notifications.receipts.apply("pager", "", late) == 0
        assert [row[2] for row in states()][::3] == ["delivered", "read"]
        assert one(connection, "select state from sereno.addresses where address = 'b'") == "invalid"
    finally:
        type(pager).receipts_after = None


@pytest.mark.slow
async def test_the_inbox_replaces_an_inactive_channel(
    app: Sereno, connection: psycopg.Connection, pager: Pager, states: States
) -> None:
    app.override(channels=["email"])
    published = app.event("tender.published", Tender, channels=[pager, "nowhere"])
    await app.recipients.aupsert("u", {"pager": "a"})
    async with app.working():
        await published.anotify(Tender("T1"), to="u")
        await auntil(lambda: states() == [("u", "in_app", "delivered", None)])
    assert "pager, nowhere: not active here" in one(connection, "select note from sereno.events")


async def test_escalation_skips_an_inactive_channel(app: Sereno, connection: psycopg.Connection, pager: Pager) -> None:
    app.override(channels=["pager"])
    chain = pager.then("email", after="1m").then("in_app", after="2m")
    published = app.event("tender.published", Tender, channels=[chain])
    await published.anotify(Tender("T1"), to="u")
    step = {"first": "pager", "second": "in_app", "after": 180.0, "unless": "delivered"}
    assert one(connection, "select steps from sereno.events") == [step]
