"""A failure affects one delivery, is recorded, and never causes a duplicate or a lost message."""

from collections.abc import Sequence
from typing import Any

import psycopg
import pytest

from sereno import Content, Digest, QuietHours, Recipient, Sereno, in_app
from sereno.channels.contract import Exchange, Message
from sereno.channels.outcome import Outcome, Receipt, Retryable, Sent
from sereno.notifications.deliveries import store as deliveries
from sereno.notifications.deliveries.send_jobs import ONCE
from sereno.notifications.deliveries.transition import Transition
from sereno.notifications.jobs import SWEEP
from tests.facts import advance, auntil, one
from tests.notifications.conftest import Pager, States, Tender


class InvalidOutcomePager(Pager):
    """Breaks the contract for some messages. `invalid`: outcomes by address."""

    def __init__(self, invalid: dict[str, Any]) -> None:
        super().__init__()
        self._invalid = invalid

    async def send(self, batch: Sequence[Message], exchange: Exchange) -> Sequence[Outcome]:
        outcomes = await super().send(batch, exchange)
        return [self._invalid.get(message.address, outcome) for message, outcome in zip(batch, outcomes, strict=True)]


async def add_recipients(app: Sereno, *keys: str, **fields: Any) -> None:
    for key in keys:
        await app.recipients.aupsert(key, {"pager": key}, **fields)


# By recipient: the outcome, and the state of the delivery. The others are sent.
INVALID_OUTCOMES: dict[str, tuple[Any, str]] = {
    "b": (None, "pending"),
    "d": (Retryable("busy", after=float("inf")), "pending"),
    "f": (Retryable("busy", after=1e300), "pending"),
    "h": (Sent("\x00\ud800"), "sent"),
}


@pytest.mark.slow
async def test_invalid_outcomes_do_not_affect_the_other_messages(app: Sereno, states: States) -> None:
    channel = InvalidOutcomePager({key: outcome for key, (outcome, _) in INVALID_OUTCOMES.items()})
    published = app.event("tender.published", Tender, channels=[channel])
    await add_recipients(app, *"abcdefghi")
    expected = {key: INVALID_OUTCOMES[key][1] if key in INVALID_OUTCOMES else "sent" for key in "abcdefghi"}
    async with app.working():
        await published.anotify(Tender("T1"), subject="T1")
        await auntil(lambda: {row[0]: row[2] for row in states()} == expected)
    assert len(channel.sent) == 9


# By recipient: what the template returns or raises.
INVALID_CONTENTS: dict[str, Any] = {
    "none": None,
    "raises": KeyError("name"),
    "text": "text",
    "untitled": Content(None),  # type: ignore[arg-type]
    "with html": Content("T", html=5),  # type: ignore[arg-type]
    "with options": Content("T", options=5),  # type: ignore[arg-type]
}


@pytest.mark.slow
async def test_an_invalid_template_result_fails_only_its_own_deliveries(
    app: Sereno, pager: Pager, states: States
) -> None:
    published = app.event("tender.published", Tender, channels=[pager, in_app])

    @published.template()
    def _(tender: Tender, to: Recipient) -> Content:
        found = INVALID_CONTENTS.get(to.key, Content(tender.code))
        if isinstance(found, Exception):
            raise found
        content: Content = found
        return content

    await add_recipients(app, "a", *INVALID_CONTENTS, "z")
    expected = {(key, channel, "failed") for key in INVALID_CONTENTS for channel in ("pager", "in_app")}
    expected |= {(key, *rest) for key in "az" for rest in (("pager", "sent"), ("in_app", "delivered"))}
    async with app.working():
        await published.anotify(Tender("T1"), subject="T1")
        await auntil(lambda: {row[:3] for row in states()} == expected)


async def test_text_that_cannot_be_stored_is_delivered_without_it(app: Sereno, pager: Pager, states: States) -> None:
    published = app.event("tender.published", Tender, channels=[pager, in_app])

    @published.template()
    def _(tender: Tender, to: Recipient) -> Content:
        return Content("fine\x00\ud800", "too\x00") if to.key == "b" else Content(tender.code)

    await add_recipients(app, "a", "b", "c")
    async with app.working():
        await published.anotify(Tender("T1"), subject="T1")
        await auntil(lambda: [row[2] for row in states() if row[1] == "in_app"] == ["delivered"] * 3)
        await auntil(lambda: not {"pending", "sending"} & {row[2] for row in states()})


@pytest.mark.slow
async def test_outcomes_are_recorded_after_an_outage(
    app: Sereno, connection: psycopg.Connection, states: States
) -> None:
    class Cutter(Pager):
        """Terminates all database connections while it sends."""

        async def send(self, batch: Sequence[Message], exchange: Exchange) -> Sequence[Outcome]:
            connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity "
                "where datname = current_database() and application_name like 'sereno%'"
            )
            return await super().send(batch, exchange)

    channel = Cutter()
    published = app.event("tender.published", Tender, channels=[channel])
    await add_recipients(app, "a", "b", "c")
    async with app.working():
        await published.anotify(Tender("T1"), subject="T1")
        await auntil(lambda: [row[2] for row in states()] == ["sent"] * 3, timeout=30)
    assert len(channel.sent) == 3


async def test_the_outcome_of_a_late_attempt_changes_nothing(
    app: Sereno, connection: psycopg.Connection, pager: Pager, states: States
) -> None:
    published = app.event("tender.published", Tender, channels=[pager])
    await add_recipients(app, "a")
    event = published.notify(Tender("T1"), subject="T1")
    await app.notifications.fanout.fan_out(event)
    number = one(connection, "select id from sereno.deliveries")
    (taken,) = app.database.run(deliveries.take("pager", "", 7, 10)).batches
    connection.execute("update sereno.deliveries set attempts = 2")
    late = Transition(id=number, state="pending", due_in=0.0, attempt=1)
    sent = Transition(id=number, state="sent", attempt=2)
    assert app.database.run(deliveries.record(7, [taken], [late], last=False)).ids == set()
    accepted = Transition(id=number, state="sent", attempt=1)
    assert app.database.run(deliveries.record(7, [taken], [accepted], last=False)).ids == set()
    assert app.database.run(deliveries.record(7, [taken + 1], [sent])).ids == set()
    assert app.database.run(deliveries.record(7, [taken], [sent])).ids == {number}
    assert states() == [("a", "pager", "sent", None)]
    assert one(connection, "select count(*) from sereno.batches") == 0


@pytest.mark.slow
async def test_the_sweep_finds_deliveries_without_a_job(
    app: Sereno, connection: psycopg.Connection, pager: Pager, states: States
) -> None:
    published = app.event("tender.published", Tender, channels=[pager])
    await add_recipients(app, "a")
    lost = published.notify(Tender("T1"), subject="T1")
    await app.notifications.fanout.fan_out(lost)
    published.notify(Tender("T2"), subject="T2")
    connection.execute("delete from sereno.jobs")
    advance(connection, 120)
    async with app.working():
        await app.schedules.arun(SWEEP)
        await auntil(lambda: [row[2] for row in states()] == ["sent", "sent"])
    counts = [run.counts for run in await app.schedules.ahistory(SWEEP) if run.counts and run.counts["fan_outs"]]
    assert counts == [{"early_receipts": 0, "fan_outs": 1, "receipts": 0, "sends": 1}]


@pytest.mark.slow
async def test_an_unknown_event_waits_for_a_worker_that_knows_it(
    app: Sereno, connection: psycopg.Connection, pager: Pager, states: States
) -> None:
    published = app.event("tender.published", Tender, channels=[pager])
    await add_recipients(app, "a")
    await published.anotify(Tender("T1"), subject="T1")
    known = app.notifications.definitions.pop("tender.published")
    async with app.working():
        await auntil(lambda: bool(states()) and "does not know" in str(states()[0][3]))
        assert one(connection, "select attempts from sereno.deliveries") == 0
        app.notifications.definitions["tender.published"] = known
        advance(connection, 60)
        await auntil(lambda: states() == [("a", "pager", "sent", None)])


@pytest.mark.slow
async def test_resuming_a_channel_resumes_all_accounts(
    app: Sereno, connection: psycopg.Connection, pager: Pager, states: States
) -> None:
    published = app.event("tender.published", Tender, channels=[pager])
    connection.execute(
        "insert into sereno.accounts (channel, tenant, settings) values ('pager', 'acme', '{\"token\": 1}')"
    )
    connection.execute("insert into sereno.channel_pauses (channel, account, reason) values ('pager', '', 'broken')")
    await add_recipients(app, "a", tenant="acme")
    async with app.working():
        await published.anotify(Tender("T1"), subject="T1", tenant="acme")
        await auntil(lambda: len(states()) == 1)
        await auntil(lambda: one(connection, "select count(*) from sereno.jobs where task = 'sereno.deliver'") == 0)
        await app.notifications.aresume("pager")
        await auntil(lambda: states() == [("a", "pager", "sent", None)])


async def test_a_receipt_changes_only_deliveries_of_its_account(
    app: Sereno, connection: psycopg.Connection, pager: Pager, states: States
) -> None:
    published = app.event("tender.published", Tender, channels=[pager])
    await add_recipients(app, "a")
    async with app.working():
        await published.anotify(Tender("T1"), subject="T1")
        await auntil(lambda: states() == [("a", "pager", "sent", None)])
    receipt = Receipt(provider_id=f"p{pager.sent[0].delivery}", outcome="invalid", id="r1")
    assert await app.notifications.receipts.apply("pager", "evil", [receipt]) == 0
    early = Receipt(provider_id="p999", outcome="delivered", id="r2")
    assert await app.notifications.receipts.apply("pager", "", [early]) == 0
    connection.execute("update sereno.deliveries set provider_id = 'p999'")
    connection.execute("update sereno.message_ids set provider_id = 'p999'")
    assert await app.notifications.receipts.apply("pager", "", [early]) == 1
    assert one(connection, "select state from sereno.addresses") == "active"


async def test_a_receipt_of_another_account_does_not_use_up_its_id(app: Sereno, pager: Pager, states: States) -> None:
    published = app.event("tender.published", Tender, channels=[pager])
    await add_recipients(app, "a")
    await app.notifications.fanout.fan_out(await published.anotify(Tender("T1"), subject="T1"))
    await app.notifications.sender.deliver(7, "pager", "", ONCE)
    receipt = Receipt(provider_id=f"p{pager.sent[0].delivery}", outcome="delivered", id="r1")
    assert await app.notifications.receipts.apply("pager", "evil", [receipt]) == 0
    assert await app.notifications.receipts.apply("pager", "", [receipt]) == 1
    assert states() == [("a", "pager", "delivered", None)]


async def test_accounts_may_have_receipts_with_the_same_id(
    app: Sereno, connection: psycopg.Connection, pager: Pager, states: States
) -> None:
    published = app.event("tender.published", Tender, channels=[pager])
    own = "insert into sereno.accounts (channel, tenant, settings) values ('pager', %s, '{\"token\": 1}')"
    for tenant in ("acme", "other"):
        connection.execute(own, [tenant])
        await add_recipients(app, "a", tenant=tenant)
        event = await published.anotify(Tender("T1"), subject="T1", tenant=tenant)
        await app.notifications.fanout.fan_out(event)
        await app.notifications.sender.deliver(7, "pager", tenant, ONCE)
        receipt = Receipt(provider_id=f"p{pager.sent[-1].delivery}", outcome="delivered", id="r1")
        assert await app.notifications.receipts.apply("pager", tenant, [receipt]) == 1
    assert [row[2] for row in states()] == ["delivered", "delivered"]


@pytest.mark.slow
async def test_a_receipt_that_arrives_before_its_message_is_stored_for_a_while(
    app: Sereno, connection: psycopg.Connection, pager: Pager, states: States
) -> None:
    published = app.event("tender.published", Tender, channels=[pager])
    await add_recipients(app, "a")
    receipts, sweeper = app.notifications.receipts, app.notifications.sweeper
    async with app.working():
        await published.anotify(Tender("T1"), subject="T1")
        await auntil(lambda: states() == [("a", "pager", "sent", None)])
    early = Receipt(provider_id="p999", outcome="delivered", id="r2")
    unknown = Receipt(provider_id="p1000", outcome="delivered", id="r3")
    assert await receipts.apply("pager", "", [early, unknown]) == 0
    connection.execute("update sereno.deliveries set provider_id = 'p999'")
    connection.execute("update sereno.message_ids set provider_id = 'p999'")
    await sweeper.sweep()
    assert states() == [("a", "pager", "delivered", None)]
    assert await receipts.apply("pager", "", [early]) == 0
    assert one(connection, "select count(*) from sereno.early_receipts") == 1
    advance(connection, 700)
    await sweeper.sweep()
    assert one(connection, "select count(*) from sereno.early_receipts") == 0


async def test_retries_requested_by_receipts_end_in_a_dead_delivery(
    app: Sereno, connection: psycopg.Connection, pager: Pager, states: States
) -> None:
    published = app.event("tender.published", Tender, channels=[pager])
    await add_recipients(app, "a")
    event = published.notify(Tender("T1"), subject="T1")
    await app.notifications.fanout.fan_out(event)
    for attempts, state in ((1, "pending"), (2, "pending"), (3, "dead")):
        connection.execute("update sereno.deliveries set state = 'sent', provider_id = 'p', attempts = %s", [attempts])
        connection.execute("delete from sereno.message_ids")
        connection.execute("insert into sereno.message_ids select 'pager', '', 'p', id from sereno.deliveries")
        again = Receipt(provider_id="p", outcome="retry")
        assert await app.notifications.receipts.apply("pager", "", [again]) == 1
        assert states()[0][2] == state


@pytest.mark.slow
async def test_a_retried_digest_contains_all_its_payloads(
    app: Sereno, connection: psycopg.Connection, pager: Pager, states: States
) -> None:
    published = app.event("tender.published", Tender, channels=[pager], digest=Digest("15m"))

    @published.template()
    def _(tender: Tender, to: Recipient) -> Content:
        return Content(tender.code)

    @published.digest_template()
    def _(tenders: Sequence[Tender], to: Recipient) -> Content:
        return Content(" ".join(tender.code for tender in tenders))

    await add_recipients(app, "a")
    pager.outcomes = {"a": Retryable("busy")}
    async with app.working():
        for code in ("T1", "T2", "T3"):
            await published.anotify(Tender(code), subject=code)
        await auntil(lambda: len(states()) == 3)
        advance(connection, 16 * 60)
        await auntil(lambda: [message.title for message in pager.sent] == ["T1 T2 T3"])
        # The wait begins only after the outcome is recorded.
        await auntil(lambda: states()[0][2:] == ("pending", "tried again"))
        pager.outcomes = {}
        await published.anotify(Tender("T4"), subject="T4")
        await auntil(lambda: len(states()) == 4)
        advance(connection, 20 * 60)
        await auntil(lambda: [message.title for message in pager.sent[1:]] == ["T1 T2 T3 T4"])


async def test_an_unknown_zone_does_not_block_deliveries(
    app: Sereno, connection: psycopg.Connection, pager: Pager
) -> None:
    published = app.event("tender.published", Tender, channels=[pager])
    await add_recipients(app, "a", "b")
    connection.execute("update sereno.recipients set zone = 'Mars/Base' where key = 'a'")
    far = one(connection, "select to_char(sereno.now() at time zone 'UTC' + interval '12 hours', 'HH24')")
    await app.recipients.aprefer(None, quiet=QuietHours(f"{far}:00", f"{far}:01"))
    async with app.working():
        await published.anotify(Tender("T1"), subject="T1")
        await auntil(lambda: len(pager.sent) == 2)
