"""What becomes of a delivery is said once, by whoever had it, and is neither lost nor anybody else's."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from sereno import Content, Digest, QuietHours, Recipient, Sereno, in_app
from sereno.channels.contract import Exchange, Message
from sereno.channels.outcome import Failed, Invalid, Outcome, Receipt, Retryable, Sent
from sereno.notifications.client import Event
from sereno.notifications.deliveries import store as deliveries
from sereno.notifications.deliveries.send_jobs import ONCE
from sereno.notifications.deliveries.transition import Transition
from tests.facts import advance, one
from tests.notifications.conftest import Pager, States, Tender

JOB = 7


class Asked(Pager):
    """Can be asked for ten minutes."""

    receipts_after = 60.0
    receipts_for = 600.0


class Gone(Asked):
    """Took the message, and answers no question."""

    async def receipts(self, ids: Sequence[str], exchange: Exchange) -> Sequence[Receipt]:
        await super().receipts(ids, exchange)
        raise ConnectionError("the provider is gone")


class Campaign(Asked):
    """Knows all messages of a call by one name."""

    async def send(self, batch: Sequence[Message], exchange: Exchange) -> Sequence[Outcome]:
        await super().send(batch, exchange)
        return [Sent("campaign")] * len(batch)


class Parked(Pager):
    """Of what may have been sent, a person decides."""

    on_unknown = "park"


class Phone(Pager):
    """The channel behind the first."""

    name = "phone"


async def people(app: Sereno, *keys: str, **person: Any) -> None:
    for key in keys:
        await app.recipients.aupsert(key, {"pager": key}, **person)


async def tell(app: Sereno, event: Event[Any], *codes: str, tenant: str | None = None) -> None:
    """Deliveries for all, without a worker."""
    for code in codes:
        await app.notifications.fanout.fan_out(await event.anotify(Tender(code), subject=code, tenant=tenant))


async def turn(app: Sereno, channel: str = "pager", account: str = "") -> None:
    await app.notifications.dispatch.deliver(JOB, channel, account, ONCE)


async def own_account(app: Sereno, connection: psycopg.Connection, tenant: str) -> None:
    connection.execute(
        "insert into sereno.accounts (channel, tenant, settings) values ('pager', %s, '{\"token\": 1}')", [tenant]
    )


def numbers(connection: psycopg.Connection) -> list[int]:
    """All deliveries, the oldest first."""
    return [row[0] for row in connection.execute("select id from sereno.deliveries order by id").fetchall()]


def fates(states: States) -> list[str]:
    return [row[2] for row in states()]


# Words


@pytest.mark.parametrize("words", [Content("T", html=5), Content("T", options=5)])  # type: ignore[arg-type]
@pytest.mark.parametrize("channel", ["pager", "in_app"])
async def test_words_of_the_wrong_kind_are_one_deliverys_alone(
    app: Sereno, pager: Pager, states: States, words: Content, channel: str
) -> None:
    published = app.event("tender.published", Tender, channels=[pager if channel == "pager" else in_app])

    @published.template()
    def _(tender: Tender, to: Recipient) -> Content:
        return words if to.key == "b" else Content(tender.code)

    await people(app, "a", "b", "c")
    await tell(app, published, "T1")
    await turn(app, channel)
    good = "sent" if channel == "pager" else "delivered"
    assert fates(states) == [good, "failed", good]


async def test_somebody_who_leaves_while_he_is_told_harms_no_other(app: Sereno, connection: psycopg.Connection) -> None:
    published = app.event("tender.published", Tender, channels=[in_app])

    @published.template()
    def _(tender: Tender, to: Recipient) -> Content:
        connection.execute("delete from sereno.recipients where key = 'b'")
        return Content(tender.code)

    await people(app, "a", "b", "c")
    await tell(app, published, "T1")
    await turn(app, "in_app")
    rows = connection.execute("select state, unknowns from sereno.deliveries order by state").fetchall()
    assert rows == [("delivered", 0), ("delivered", 0), ("failed", 0)]
    assert one(connection, "select count(*) from sereno.inbox") == 2
    assert one(connection, "select count(*) from sereno.batches") == 0


# Who may say what became of it


async def test_credentials_that_cannot_be_read_are_no_reason_to_wonder_whether_it_was_sent(
    app: Sereno, connection: psycopg.Connection, states: States
) -> None:
    channel = Parked()
    await own_account(app, connection, "acme")
    await people(app, "a", "b", tenant="acme")
    await tell(app, app.event("tender.published", Tender, channels=[channel]), "T1", tenant="acme")
    connection.execute("alter table sereno.accounts rename to out_of_reach")
    with pytest.raises(psycopg.errors.UndefinedTable):
        await turn(app, account="acme")
    connection.execute("alter table sereno.out_of_reach rename to accounts")
    advance(connection, 1)
    await turn(app, account="acme")
    assert fates(states) == ["sent", "sent"]
    assert len(channel.sent) == 2


async def test_what_a_dead_job_gave_away_is_not_settled_with_the_rest(
    app: Sereno, connection: psycopg.Connection, pager: Pager
) -> None:
    await people(app, "a", "b")
    await tell(app, app.event("tender.published", Tender, channels=[pager]), "T1")
    now = one(connection, "select sereno.now() at time zone 'UTC'")
    start, end = (f"{now + timedelta(minutes=minutes):%H:%M}" for minutes in (-5, 5))
    await app.recipients.aprefer("b", quiet=QuietHours(start, end))
    dead = app.database.run(deliveries.take("pager", "", JOB, 10))
    assert [each.recipient for each in dead.deliveries] == ["a"]
    advance(connection, 400)
    # The quiet hours are over: somebody else has b, whose first batch is still that of the dead job.
    living = app.database.run(deliveries.take("pager", "", JOB + 1, 10))
    assert [each.recipient for each in living.deliveries] == ["b"]
    lost = {each.batch: each.deliveries for each in app.database.run(deliveries.stranded("pager", "", JOB))}
    assert lost[dead.batches[0]] == [(dead.deliveries[0].id, 0)]


async def test_a_batch_is_the_right_to_speak_of_its_own_deliveries_alone(
    app: Sereno, connection: psycopg.Connection
) -> None:
    await people(app, "a")
    await tell(app, app.event("tender.published", Tender, channels=[Parked()]), "T1", "T2")
    slow = app.database.run(deliveries.take("pager", "", JOB, 10))
    first, second = numbers(connection)
    # Of its two batches one was settled, and what was in it is being sent again.
    lost = Transition(id=first, state="unknown", is_unknown=True)
    assert app.database.run(deliveries.record(JOB + 1, slow.batches[:1], [lost])).ids == {first}
    app.notifications.requeue([first])
    again = app.database.run(deliveries.take("pager", "", JOB + 2, 10))
    assert [(each.id, each.attempt) for each in again.deliveries] == [(first, 1)]
    said = [Transition(id=each.id, state="sent", attempt=each.attempt) for each in slow.deliveries]
    assert app.database.run(deliveries.record(JOB, slow.batches, said)).ids == {second}


async def test_a_batch_of_the_inbox_is_the_right_to_put_its_own_deliveries_alone(
    app: Sereno, connection: psycopg.Connection, states: States
) -> None:
    await people(app, "a")
    await tell(app, app.event("tender.published", Tender, channels=[in_app]), "T1", "T2")
    slow = app.database.run(deliveries.take("in_app", "", JOB, 10))
    row = {"recipient": slow.deliveries[0].recipient_id, "event": "tender.published", "title": "T", "body": ""}
    rows = [{**row, "id": each.id, "attempt": 1, "data": {}} for each in slow.deliveries]
    assert app.database.run(deliveries.put_into_inbox(slow.batches[1:], rows)) == 1
    assert fates(states) == ["sending", "delivered"]


# Receipts


async def test_a_receipt_that_came_early_is_not_lost_with_the_sweep_that_failed(
    app: Sereno, connection: psycopg.Connection, pager: Pager, states: States
) -> None:
    await people(app, "a", "b")
    await tell(app, app.event("tender.published", Tender, channels=[pager]), "T1")
    fanout = app.notifications.fanout
    said = [Receipt(provider_id=f"p{each}", outcome="delivered", id=f"r{each}") for each in numbers(connection)]
    assert await fanout.received("pager", "", said) == 0
    await turn(app)
    connection.execute("alter table sereno.receipts rename to out_of_reach")
    with pytest.raises(psycopg.errors.UndefinedTable):
        await fanout.sweep()
    connection.execute("alter table sereno.out_of_reach rename to receipts")
    assert fates(states) == ["sent", "sent"]
    await fanout.sweep()
    assert fates(states) == ["delivered", "delivered"]


async def test_a_receipt_whose_message_is_known_counts_however_old_it_is(
    app: Sereno, connection: psycopg.Connection, pager: Pager, states: States
) -> None:
    await people(app, "a")
    await tell(app, app.event("tender.published", Tender, channels=[pager]), "T1")
    said = [Receipt(provider_id=f"p{each}", outcome="delivered", id="r1") for each in numbers(connection)]
    await app.notifications.fanout.received("pager", "", said)
    await turn(app)
    advance(connection, 3600)
    await app.notifications.fanout.sweep()
    assert fates(states) == ["delivered"]
    assert one(connection, "select count(*) from sereno.early_receipts") == 0


async def asked_no_more(app: Sereno, connection: psycopg.Connection, account: str = "") -> None:
    assert await app.notifications.fanout.receipts("pager", account) == 0
    assert one(connection, "select count(*) from sereno.batches") == 0
    assert one(connection, "select receipt_at from sereno.deliveries") is None


async def test_a_provider_that_never_answers_is_asked_until_the_time_is_over(
    app: Sereno, connection: psycopg.Connection, states: States
) -> None:
    channel = Gone()
    await people(app, "a")
    await tell(app, app.event("tender.published", Tender, channels=[channel]), "T1")
    await turn(app)
    for _ in range(2):
        advance(connection, 120)
        with pytest.raises(ConnectionError):
            await app.notifications.fanout.receipts("pager", "")
    assert len(channel.asked) == 2
    advance(connection, 600)
    await asked_no_more(app, connection)
    assert len(channel.asked) == 2
    assert fates(states) == ["sent"]


async def test_an_account_that_is_gone_is_asked_for_until_the_time_is_over(
    app: Sereno, connection: psycopg.Connection, states: States
) -> None:
    channel = Asked()
    published = app.event("tender.published", Tender, channels=[channel])
    await own_account(app, connection, "acme")
    await people(app, "a", tenant="acme")
    await tell(app, published, "T1", tenant="acme")
    await turn(app, account="acme")
    assert fates(states) == ["sent"]
    connection.execute("delete from sereno.accounts")
    await app.notifications.dispatch.close()
    advance(connection, 120)
    assert await app.notifications.fanout.receipts("pager", "acme") == 1
    advance(connection, 600)
    await asked_no_more(app, connection, "acme")
    assert channel.asked == []


@pytest.mark.parametrize("is_asked", [True, False])
async def test_several_deliveries_by_one_name_hear_all_of_them(
    app: Sereno, connection: psycopg.Connection, states: States, is_asked: bool
) -> None:
    channel = Campaign()
    await people(app, "a", "b", "c")
    await tell(app, app.event("tender.published", Tender, channels=[channel]), "T1")
    await turn(app)
    channel.said = [Receipt(provider_id="campaign", outcome="delivered", id="r1")]
    advance(connection, 61)
    if is_asked:
        assert await app.notifications.fanout.receipts("pager", "") == 3
        assert channel.asked == ["campaign"]
        assert one(connection, "select count(*) from sereno.batches") == 0
    else:
        assert await app.notifications.fanout.received("pager", "", channel.said) == 3
    assert fates(states) == ["delivered"] * 3


# What was gathered


@pytest.mark.parametrize(
    ("answer", "fate"),
    [(Failed("refused"), "failed"), (Invalid("no such pager"), "invalid"), (Retryable("busy"), "dead")],
)
async def test_what_was_gathered_shares_the_fate_of_its_message(
    app: Sereno, connection: psycopg.Connection, pager: Pager, states: States, answer: Outcome, fate: str
) -> None:
    await people(app, "a")
    await tell(app, app.event("tender.published", Tender, channels=[pager], digest=Digest("15m")), "T1", "T2")
    pager.answers = {"a": answer}
    tries = len(pager.delays) + 1 if fate == "dead" else 1
    for _ in range(tries):
        advance(connection, 16 * 60)
        await turn(app)
    assert len(pager.sent) == tries
    first, _ = numbers(connection)
    assert fates(states) == [fate, fate]
    assert states()[1][3] == f"as delivery {first}, whose message included it"


async def test_whoever_was_not_reached_by_a_gathered_message_is_told_all_of_it_by_the_next_channel(
    app: Sereno, connection: psycopg.Connection, pager: Pager
) -> None:
    phone = Phone()
    chain = pager.then(phone, after="20m", unless="sent")
    published = app.event("tender.published", Tender, channels=[chain], digest=Digest("15m"))
    await app.recipients.aupsert("a", {"pager": "a", "phone": "+a"})
    pager.answers = {"a": Failed("refused")}
    await tell(app, published, "T1", "T2")
    advance(connection, 16 * 60)
    await turn(app)
    advance(connection, 10 * 60)
    for (event,) in connection.execute("select id from sereno.events").fetchall():
        await app.notifications.fanout.escalate(event)
    await turn(app, "phone")
    assert sorted(message.data["code"] for message in phone.sent) == ["T1", "T2"]
