"""Collected deliveries get the outcome of their message in every path; jobs that share slots miss no delivery."""

import asyncio
from collections.abc import Sequence
from typing import Literal

import psycopg
import pytest

import sereno.notifications.deliveries.send_jobs
from sereno import Digest, Rate, Sereno
from sereno.channels.contract import Exchange, Message
from sereno.channels.outcome import Failed, Outcome, Receipt, Retryable
from tests.database.plans import nodes, plan
from tests.facts import advance, auntil, one
from tests.notifications.conftest import Pager, States, Tender
from tests.notifications.deliveries.test_outcomes import Phone, ReceiptPager, delivery_states
from tests.notifications.deliveries.test_store import (
    JOB,
    add_recipients,
    delivery_ids,
    digest_event,
    publish,
    run_send_job,
    titles,
)


@pytest.mark.parametrize(
    "outcome", ["failed", *(pytest.param(outcome, marks=pytest.mark.slow) for outcome in ("invalid", "bounced"))]
)
async def test_a_receipt_applies_to_all_deliveries_of_a_digest(
    app: Sereno,
    connection: psycopg.Connection,
    pager: Pager,
    states: States,
    outcome: Literal["failed", "invalid", "bounced"],
) -> None:
    await add_recipients(app, "a")
    await publish(app, digest_event(app, pager), "T1", "T2")
    advance(connection, 16 * 60)
    await run_send_job(app)
    first = delivery_ids(connection)[0]
    await app.notifications.receipts.apply("pager", "", [Receipt(provider_id=f"p{first}", outcome=outcome)])
    assert delivery_states(states) == [outcome, outcome]


async def test_receipts_that_use_up_the_retries_end_all_deliveries_of_a_digest(
    app: Sereno, connection: psycopg.Connection, pager: Pager, states: States
) -> None:
    await add_recipients(app, "a")
    await publish(app, digest_event(app, pager), "T1", "T2")
    first = delivery_ids(connection)[0]
    for _ in range(3):
        advance(connection, 16 * 60)
        await run_send_job(app)
        await app.notifications.receipts.apply("pager", "", [Receipt(provider_id=f"p{first}", outcome="retry")])
    assert delivery_states(states) == ["dead", "dead"]


async def test_an_expired_digest_expires_all_its_deliveries(
    app: Sereno, connection: psycopg.Connection, pager: Pager, states: States
) -> None:
    await add_recipients(app, "a")
    published = digest_event(app, pager)
    for code in ("T1", "T2"):
        await app.notifications.fanout.fan_out(published.notify(Tender(code), subject=code, ttl="20m"))
    pager.outcomes = {"a": Retryable("busy", after=3600.0)}
    advance(connection, 16 * 60)
    await run_send_job(app)
    advance(connection, 4000)
    await run_send_job(app)
    assert delivery_states(states) == ["expired", "expired"]


async def test_an_address_deactivated_meanwhile_skips_all_deliveries_of_a_digest(
    app: Sereno, connection: psycopg.Connection, pager: Pager, states: States
) -> None:
    await add_recipients(app, "a")
    await publish(app, digest_event(app, pager), "T1", "T2")
    pager.outcomes = {"a": Retryable("busy", after=60.0)}
    advance(connection, 16 * 60)
    await run_send_job(app)
    connection.execute("update sereno.addresses set state = 'invalid'")
    advance(connection, 4000)
    await run_send_job(app)
    assert delivery_states(states) == ["skipped", "skipped"]
    assert "whose message included it" in states()[1][3]


async def test_a_requeued_digest_contains_all_events_that_were_not_sent(
    app: Sereno, connection: psycopg.Connection, pager: Pager, states: States
) -> None:
    await add_recipients(app, "a")
    await publish(app, digest_event(app, pager), "T1", "T2")
    pager.outcomes = {"a": Failed("refused")}
    advance(connection, 16 * 60)
    await run_send_job(app)
    pager.outcomes = {}
    app.notifications.requeue(delivery_ids(connection)[:1])
    await run_send_job(app)
    assert delivery_states(states) == ["sent", "failed"]
    assert "T2" not in titles(pager)[-1]
    app.notifications.requeue(delivery_ids(connection)[1:])
    await run_send_job(app)
    assert delivery_states(states) == ["sent", "sent"]


async def test_escalation_covers_all_deliveries_of_a_digest(
    app: Sereno, connection: psycopg.Connection, pager: Pager
) -> None:
    chain = pager.then(Phone(), after="20m", unless="sent")
    published = app.event("tender.published", Tender, channels=[chain], digest=Digest("15m"))
    await app.recipients.aupsert("a", {"pager": "a", "phone": "+a"})
    pager.outcomes = {"a": Retryable("busy", after=3600.0)}
    fanout, created = app.notifications.fanout, [published.notify(Tender(code), subject=code) for code in ("T1", "T2")]
    for event in created:
        await fanout.fan_out(event)
    advance(connection, 16 * 60)
    await run_send_job(app)
    advance(connection, 600)
    for event in created:
        await fanout.escalate(event)
    assert one(connection, "select count(*) from sereno.deliveries where channel = 'phone'") == 2


LIVE_SEND_JOBS = "select count(*) from sereno.jobs where task = 'sereno.deliver'"


class Slow(Pager):
    """Sends until it is released."""

    rate = Rate(5000, per="1s")

    def __init__(self) -> None:
        super().__init__()
        self.go = asyncio.Event()

    async def send(self, batch: Sequence[Message], exchange: Exchange) -> Sequence[Outcome]:
        answer = await super().send(batch, exchange)
        await self.go.wait()
        return answer


@pytest.mark.slow
async def test_deliveries_are_sent_when_every_slot_was_taken(
    app: Sereno, connection: psycopg.Connection, states: States, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sereno.notifications.deliveries.send_jobs, "randrange", lambda _: 0)
    channel = Slow()
    published = app.event("tender.published", Tender, channels=[channel])
    await add_recipients(app, "a")
    async with app.working():
        for number, sent in ((1, 1), (2, 2), (3, 2)):
            await published.anotify(Tender("T"), subject=str(number))
            await auntil(lambda made=number: len(states()) == made)  # type: ignore[misc]  # bound now
            await auntil(lambda wanted=sent: len(channel.sent) == wanted)  # type: ignore[misc]  # see above
            # The job that found nothing to send holds its slot until it is settled.
            await auntil(lambda held=sent: one(connection, LIVE_SEND_JOBS) == held)  # type: ignore[misc]  # see above
        channel.go.set()
        await auntil(lambda: delivery_states(states) == ["sent"] * 3, timeout=20)


async def test_receipt_requests_end_for_an_unknown_channel(app: Sereno, connection: psycopg.Connection) -> None:
    await add_recipients(app, "a")
    await publish(app, app.event("tender.published", Tender, channels=[ReceiptPager()]), "T1")
    await run_send_job(app)
    del app.channels.known["pager"]
    advance(connection, 86400)
    await app.notifications.receipts.request("pager", "")
    assert one(connection, "select count(*) from sereno.batches") == 0


async def test_collecting_a_digest_reads_only_its_own_deliveries(
    app: Sereno, connection: psycopg.Connection, pager: Pager
) -> None:
    await add_recipients(app, "a")
    await publish(app, digest_event(app, pager), "T1")
    connection.execute(
        "insert into sereno.deliveries (event_id, recipient_id, channel, state, due_at) "
        "select -n, n % 100, 'pager', 'sent', sereno.now() from generate_series(1, 5000) as n"
    )
    connection.execute("analyze sereno.deliveries")
    found = plan(
        connection, "notifications/deliveries/store", "gather", {"ids": delivery_ids(connection)[:1], "job": JOB}
    )
    assert "deliveries_of_recipient" not in {node.get("Index Name") for node in nodes(found)}
