"""An outcome is recorded once, by the job that holds the delivery; none is lost or recorded for another delivery."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Literal

import psycopg
import pytest

from sereno import Content, Digest, QuietHours, Recipient, Sereno, in_app
from sereno.channels.contract import Exchange, Message
from sereno.channels.outcome import Failed, Invalid, Outcome, Receipt, Retryable, Sent, Unknown
from sereno.errors import SchemaError
from sereno.notifications.deliveries import store as deliveries
from sereno.notifications.deliveries.send_jobs import ONCE
from sereno.notifications.deliveries.transition import Transition
from sereno.notifications.event_handle import Event
from sereno.notifications.jobs import DELIVER, QUEUE
from tests.facts import advance, one
from tests.jobs.job_steps import decided, end, session, take
from tests.notifications.conftest import Pager, States, Tender

JOB = 7


class ReceiptPager(Pager):
    """A pager whose receipts can be requested for ten minutes."""

    receipts_after = 60.0
    receipts_for = 600.0


class SilentPager(ReceiptPager):
    """Accepts messages and never returns receipts."""

    async def receipts(self, ids: Sequence[str], exchange: Exchange) -> Sequence[Receipt]:
        await super().receipts(ids, exchange)
        raise ConnectionError("the provider is gone")


class SharedIdPager(ReceiptPager):
    """Has one provider id for all messages of a call."""

    async def send(self, batch: Sequence[Message], exchange: Exchange) -> Sequence[Outcome]:
        await super().send(batch, exchange)
        return [Sent("campaign")] * len(batch)


class ParkingPager(Pager):
    """Unknown outcomes wait for an operator."""

    on_unknown = "park"


class Phone(Pager):
    """The second channel of an escalation."""

    name = "phone"


async def add_recipients(app: Sereno, *keys: str, **fields: Any) -> None:
    for key in keys:
        await app.recipients.aupsert(key, {"pager": key}, **fields)


async def publish(app: Sereno, event: Event[Any], *codes: str, tenant: str | None = None) -> None:
    """Publish events with these codes and fan them out without a worker."""
    for code in codes:
        await app.notifications.fanout.fan_out(await event.anotify(Tender(code), subject=code, tenant=tenant))


async def run_send_job(app: Sereno, channel: str = "pager", account: str = "") -> None:
    await app.notifications.sender.deliver(JOB, channel, account, ONCE)


async def own_account(app: Sereno, connection: psycopg.Connection, tenant: str) -> None:
    connection.execute(
        "insert into sereno.accounts (channel, tenant, settings) values ('pager', %s, '{\"token\": 1}')", [tenant]
    )


def delivery_ids(connection: psycopg.Connection) -> list[int]:
    """Return the ids of all deliveries, oldest first."""
    return [row[0] for row in connection.execute("select id from sereno.deliveries order by id").fetchall()]


def delivery_states(states: States) -> list[str]:
    return [row[2] for row in states()]


# Templates


async def test_a_recipient_deleted_while_sending_does_not_affect_the_others(
    app: Sereno, connection: psycopg.Connection
) -> None:
    published = app.event("tender.published", Tender, channels=[in_app])

    @published.template()
    def _(tender: Tender, to: Recipient) -> Content:
        connection.execute("delete from sereno.recipients where key = 'b'")
        return Content(tender.code)

    await add_recipients(app, "a", "b", "c")
    await publish(app, published, "T1")
    await run_send_job(app, "in_app")
    rows = connection.execute("select state, unknowns from sereno.deliveries order by state").fetchall()
    assert rows == [("delivered", 0), ("delivered", 0), ("failed", 0)]
    assert one(connection, "select count(*) from sereno.inbox") == 2
    assert one(connection, "select count(*) from sereno.batches") == 0


# Which job may record an outcome


async def test_unreadable_credentials_do_not_make_the_outcome_unknown(
    app: Sereno, connection: psycopg.Connection, states: States
) -> None:
    channel = ParkingPager()
    await own_account(app, connection, "acme")
    await add_recipients(app, "a", "b", tenant="acme")
    await publish(app, app.event("tender.published", Tender, channels=[channel]), "T1", tenant="acme")
    connection.execute("alter table sereno.accounts rename to out_of_reach")
    with pytest.raises(SchemaError):
        await run_send_job(app, account="acme")
    connection.execute("alter table sereno.out_of_reach rename to accounts")
    advance(connection, 1)
    await run_send_job(app, account="acme")
    assert delivery_states(states) == ["sent", "sent"]
    assert len(channel.sent) == 2


async def test_a_delivery_released_by_a_dead_job_is_not_settled_with_its_batch(
    app: Sereno, connection: psycopg.Connection, pager: Pager
) -> None:
    await add_recipients(app, "a", "b")
    await publish(app, app.event("tender.published", Tender, channels=[pager]), "T1")
    now = one(connection, "select sereno.now() at time zone 'UTC'")
    start, end = (f"{now + timedelta(minutes=minutes):%H:%M}" for minutes in (-5, 5))
    await app.recipients.aprefer("b", quiet=QuietHours(start, end))
    dead = app.database.run(deliveries.take("pager", "", JOB, 10))
    assert [each.recipient for each in dead.deliveries] == ["a"]
    advance(connection, 400)
    # The quiet hours are over: another job holds b, whose first batch is still that of the dead job.
    living = app.database.run(deliveries.take("pager", "", JOB + 1, 10))
    assert [each.recipient for each in living.deliveries] == ["b"]
    lost = {each.batch: each.deliveries for each in app.database.run(deliveries.stranded("pager", "", JOB))}
    assert lost[dead.batches[0]] == [(dead.deliveries[0].id, 0)]


@pytest.mark.slow
@pytest.mark.parametrize("state", ["sent", "failed"])
async def test_a_job_records_outcomes_only_for_batches_it_still_holds(
    app: Sereno, connection: psycopg.Connection, state: Literal["sent", "failed"]
) -> None:
    await add_recipients(app, "a")
    await publish(app, app.event("tender.published", Tender, channels=[ParkingPager()]), "T1", "T2")
    slow = app.database.run(deliveries.take("pager", "", JOB, 10))
    first, second = delivery_ids(connection)
    # One of its two batches was settled, and its delivery is being sent again.
    lost = Transition(id=first, state="unknown", is_unknown=True)
    assert app.database.run(deliveries.record(JOB + 1, slow.batches[:1], [lost])).ids == {first}
    app.notifications.requeue([first])
    again = app.database.run(deliveries.take("pager", "", JOB + 2, 10))
    assert [(each.id, each.attempt) for each in again.deliveries] == [(first, 1)]
    transitions = [Transition(id=each.id, state=state, attempt=each.attempt) for each in slow.deliveries]
    assert app.database.run(deliveries.record(JOB, slow.batches, transitions)).ids == {second}


async def test_a_late_outcome_does_not_replace_the_unknown_one_of_another_job(
    app: Sereno, connection: psycopg.Connection
) -> None:
    await add_recipients(app, "a")
    await publish(app, app.event("tender.published", Tender, channels=[ParkingPager()]), "T1")
    slow = app.database.run(deliveries.take("pager", "", JOB, 10))
    (number,) = delivery_ids(connection)
    lost = Transition(id=number, state="unknown", is_unknown=True)
    app.database.run(deliveries.record(JOB + 1, slow.batches, [lost]))
    app.notifications.requeue([number])
    again = app.database.run(deliveries.take("pager", "", JOB + 2, 10))
    app.database.run(deliveries.record(JOB + 2, again.batches, [lost]))
    sent = Transition(id=number, state="sent", attempt=1)
    assert app.database.run(deliveries.record(JOB, slow.batches, [sent])).ids == set()
    assert app.database.run(deliveries.record(JOB + 2, again.batches, [sent])).ids == {number}


async def test_the_batch_of_a_live_job_is_not_settled(
    app: Sereno, connection: psycopg.Connection, pager: Pager
) -> None:
    await add_recipients(app, "a")
    await publish(app, app.event("tender.published", Tender, channels=[pager]), "T1")
    owner = session(connection)
    (job,) = take(connection, owner, 1, queue=QUEUE, tasks=(DELIVER,))
    batch = app.database.run(deliveries.take("pager", "", job.id, 10))
    advance(connection, 1)
    assert app.database.run(deliveries.stranded("pager", "", job.id + 1)) == []
    end(connection, owner, [job], decided())
    lost = app.database.run(deliveries.stranded("pager", "", job.id + 1))
    assert [each.batch for each in lost] == batch.batches


async def test_a_claim_that_fails_leaves_the_deliveries_pending(
    app: Sereno, connection: psycopg.Connection, pager: Pager, states: States
) -> None:
    await add_recipients(app, "a")
    await publish(app, app.event("tender.published", Tender, channels=[pager]), "T1")
    connection.execute("alter table sereno.preferences rename to out_of_reach")
    with pytest.raises(SchemaError):
        await run_send_job(app)
    connection.execute("alter table sereno.out_of_reach rename to preferences")
    advance(connection, 1)
    await run_send_job(app)
    assert delivery_states(states) == ["sent"]


async def test_a_job_fills_inboxes_only_from_batches_it_still_holds(
    app: Sereno, connection: psycopg.Connection, states: States
) -> None:
    await add_recipients(app, "a")
    await publish(app, app.event("tender.published", Tender, channels=[in_app]), "T1", "T2")
    slow = app.database.run(deliveries.take("in_app", "", JOB, 10))
    row = {"recipient": slow.deliveries[0].recipient_id, "event": "tender.published", "title": "T", "body": ""}
    rows = [{**row, "id": each.id, "attempt": 1, "data": {}} for each in slow.deliveries]
    assert app.database.run(deliveries.put_into_inbox(slow.batches[1:], rows)) == 1
    assert delivery_states(states) == ["sending", "delivered"]


# Receipts


async def test_a_delivery_that_was_read_stays_read(
    app: Sereno, connection: psycopg.Connection, pager: Pager, states: States
) -> None:
    await add_recipients(app, "a")
    await publish(app, app.event("tender.published", Tender, channels=[pager]), "T1")
    await run_send_job(app)
    (number,) = delivery_ids(connection)
    for outcome, changed in (("read", 1), ("delivered", 0), ("failed", 0)):
        receipt = Receipt(provider_id=f"p{number}", outcome=outcome)  # type: ignore[arg-type]  # of the table
        assert await app.notifications.receipts.apply("pager", "", [receipt]) == changed
    assert delivery_states(states) == ["read"]


async def test_a_repeated_receipt_counts_once(
    app: Sereno, connection: psycopg.Connection, pager: Pager, states: States
) -> None:
    await add_recipients(app, "a")
    await publish(app, app.event("tender.published", Tender, channels=[pager]), "T1")
    await run_send_job(app)
    (number,) = delivery_ids(connection)
    receipt = Receipt(provider_id=f"p{number}", outcome="retry", id="r1")
    assert await app.notifications.receipts.apply("pager", "", [receipt]) == 1
    advance(connection, 61)
    await run_send_job(app)
    assert await app.notifications.receipts.apply("pager", "", [receipt]) == 0
    assert delivery_states(states) == ["sent"]


async def test_a_receipt_of_the_message_before_a_requeue_changes_nothing(
    app: Sereno, connection: psycopg.Connection, states: States
) -> None:
    channel = ParkingPager()
    await add_recipients(app, "a")
    await publish(app, app.event("tender.published", Tender, channels=[channel]), "T1")
    await run_send_job(app)
    (number,) = delivery_ids(connection)
    await app.notifications.receipts.apply("pager", "", [Receipt(provider_id=f"p{number}", outcome="bounced")])
    app.notifications.requeue([number])
    channel.outcomes = {"a": Unknown("cut")}
    await run_send_job(app)
    late = Receipt(provider_id=f"p{number}", outcome="delivered")
    assert await app.notifications.receipts.apply("pager", "", [late]) == 0
    assert delivery_states(states) == ["unknown"]


async def test_an_early_receipt_survives_a_failed_sweep(
    app: Sereno, connection: psycopg.Connection, pager: Pager, states: States
) -> None:
    await add_recipients(app, "a", "b")
    await publish(app, app.event("tender.published", Tender, channels=[pager]), "T1")
    receipts, sweeper = app.notifications.receipts, app.notifications.sweeper
    early = [Receipt(provider_id=f"p{each}", outcome="delivered", id=f"r{each}") for each in delivery_ids(connection)]
    assert await receipts.apply("pager", "", early) == 0
    await run_send_job(app)
    connection.execute("alter table sereno.receipts rename to out_of_reach")
    with pytest.raises(SchemaError):
        await sweeper.sweep()
    connection.execute("alter table sereno.out_of_reach rename to receipts")
    assert delivery_states(states) == ["sent", "sent"]
    assert (await sweeper.sweep())["early_receipts"] == 2
    assert delivery_states(states) == ["delivered", "delivered"]


async def test_an_early_receipt_is_applied_however_old_it_is(
    app: Sereno, connection: psycopg.Connection, pager: Pager, states: States
) -> None:
    await add_recipients(app, "a")
    await publish(app, app.event("tender.published", Tender, channels=[pager]), "T1")
    early = [Receipt(provider_id=f"p{each}", outcome="delivered", id="r1") for each in delivery_ids(connection)]
    await app.notifications.receipts.apply("pager", "", early)
    await run_send_job(app)
    advance(connection, 3600)
    await app.notifications.sweeper.sweep()
    assert delivery_states(states) == ["delivered"]
    assert one(connection, "select count(*) from sereno.early_receipts") == 0


async def assert_requests_stop(app: Sereno, connection: psycopg.Connection, account: str = "") -> None:
    assert await app.notifications.receipts.request("pager", account) == 0
    assert one(connection, "select count(*) from sereno.batches") == 0
    assert one(connection, "select receipt_at from sereno.deliveries") is None


async def test_receipts_of_a_silent_provider_are_requested_until_they_expire(
    app: Sereno, connection: psycopg.Connection, states: States
) -> None:
    channel = SilentPager()
    await add_recipients(app, "a")
    await publish(app, app.event("tender.published", Tender, channels=[channel]), "T1")
    await run_send_job(app)
    for _ in range(2):
        advance(connection, 120)
        with pytest.raises(ConnectionError):
            await app.notifications.receipts.request("pager", "")
    assert len(channel.requested_ids) == 2
    advance(connection, 600)
    await assert_requests_stop(app, connection)
    assert len(channel.requested_ids) == 2
    assert delivery_states(states) == ["sent"]


async def test_receipts_of_a_deleted_account_expire(
    app: Sereno, connection: psycopg.Connection, states: States
) -> None:
    channel = ReceiptPager()
    published = app.event("tender.published", Tender, channels=[channel])
    await own_account(app, connection, "acme")
    await add_recipients(app, "a", tenant="acme")
    await publish(app, published, "T1", tenant="acme")
    await run_send_job(app, account="acme")
    assert delivery_states(states) == ["sent"]
    connection.execute("delete from sereno.accounts")
    await app.notifications.close()
    advance(connection, 120)
    assert await app.notifications.receipts.request("pager", "acme") == 1
    advance(connection, 600)
    await assert_requests_stop(app, connection, "acme")
    assert channel.requested_ids == []


@pytest.mark.parametrize("is_requested", [True, pytest.param(False, marks=pytest.mark.slow)])
async def test_a_receipt_applies_to_all_deliveries_with_its_provider_id(
    app: Sereno, connection: psycopg.Connection, states: States, is_requested: bool
) -> None:
    channel = SharedIdPager()
    await add_recipients(app, "a", "b", "c")
    await publish(app, app.event("tender.published", Tender, channels=[channel]), "T1")
    await run_send_job(app)
    channel.receipts_to_return = [Receipt(provider_id="campaign", outcome="delivered", id="r1")]
    advance(connection, 61)
    if is_requested:
        assert await app.notifications.receipts.request("pager", "") == 3
        assert channel.requested_ids == ["campaign"]
        assert one(connection, "select count(*) from sereno.batches") == 0
    else:
        assert await app.notifications.receipts.apply("pager", "", channel.receipts_to_return) == 3
    assert delivery_states(states) == ["delivered"] * 3


# Digests


@pytest.mark.slow
@pytest.mark.parametrize(
    ("outcome", "state"),
    [(Failed("refused"), "failed"), (Invalid("no such pager"), "invalid"), (Retryable("busy"), "dead")],
)
async def test_collected_deliveries_get_the_outcome_of_their_message(
    app: Sereno, connection: psycopg.Connection, pager: Pager, states: States, outcome: Outcome, state: str
) -> None:
    await add_recipients(app, "a")
    await publish(app, app.event("tender.published", Tender, channels=[pager], digest=Digest("15m")), "T1", "T2")
    pager.outcomes = {"a": outcome}
    tries = len(pager.delays) + 1 if state == "dead" else 1
    for _ in range(tries):
        advance(connection, 16 * 60)
        await run_send_job(app)
    assert len(pager.sent) == tries
    first, _ = delivery_ids(connection)
    assert delivery_states(states) == [state, state]
    assert states()[1][3] == f"as delivery {first}, whose message included it"


async def test_escalation_of_a_failed_digest_sends_all_its_events(
    app: Sereno, connection: psycopg.Connection, pager: Pager
) -> None:
    phone = Phone()
    chain = pager.then(phone, after="20m", unless="sent")
    published = app.event("tender.published", Tender, channels=[chain], digest=Digest("15m"))
    await app.recipients.aupsert("a", {"pager": "a", "phone": "+a"})
    pager.outcomes = {"a": Failed("refused")}
    await publish(app, published, "T1", "T2")
    advance(connection, 16 * 60)
    await run_send_job(app)
    advance(connection, 10 * 60)
    for (event,) in connection.execute("select id from sereno.events").fetchall():
        await app.notifications.fanout.escalate(event)
    await run_send_job(app, "phone")
    assert sorted(message.data["code"] for message in phone.sent) == ["T1", "T2"]
