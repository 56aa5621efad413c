"""Digests, throttles, escalation, failover, reminders and tenants with their own credentials."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest

from sereno import ConfigurationError, Content, Digest, Recipient, Sereno, Throttle
from sereno.channels.contract import Exchange, Message
from sereno.channels.failover import Failover
from sereno.channels.outcome import Down, Failed, Outcome, Receipt, Retryable, Sent, Unknown
from sereno.database.statement import run
from sereno.notifications import events
from tests.facts import advance, auntil, one, until
from tests.notifications.conftest import Pager, States, Tender

WAITING = "select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'advisory'"


class Phone(Pager):
    """The second channel of an escalation."""

    name = "phone"


@pytest.mark.slow
async def test_a_digest_collects_several_events_into_one_message(
    app: Sereno, connection: psycopg.Connection, pager: Pager, states: States
) -> None:
    published = app.event("tender.published", Tender, channels=[pager], digest=Digest("15m", key="region"))

    @published.template()
    def _(tender: Tender, to: Recipient) -> Content:
        return Content(f"{tender.code} {to.key}")

    @published.digest_template()
    def _(tenders: Sequence[Tender], to: Recipient) -> Content:
        return Content(f"{len(tenders)} for {to.key}: {' '.join(tender.code for tender in tenders)}")

    await app.recipients.aupsert("u", {"pager": "a"})
    async with app.working():
        for code, region in (("T1", "RM"), ("T2", "RM"), ("T3", "V"), ("T4", "RM")):
            await published.anotify(Tender(code, region), subject=code, to="u")
        await auntil(lambda: len(states()) == 4)
        assert pager.sent == []
        advance(connection, 16 * 60)
        await auntil(lambda: len(pager.sent) == 2)
        await auntil(lambda: [row[2] for row in states()].count("sent") == 2)
    assert sorted(message.title for message in pager.sent) == ["3 for u: T1 T2 T4", "T3 u"]
    carrier = one(connection, "select id from sereno.deliveries where right(digest, 2) = 'RM' and state = 'sent'")
    assert [row[3] for row in states() if row[2] == "skipped"] == [f"covered by delivery {carrier}"] * 2


@pytest.mark.slow
async def test_a_digest_without_a_template_starts_with_the_first_message(
    app: Sereno, connection: psycopg.Connection, pager: Pager, states: States, tmp_path: Path
) -> None:
    (tmp_path / "tender.published").mkdir()
    (tmp_path / "tender.published" / "any.title.j2").write_text("Tender {{ code }}")
    app.override(templates=str(tmp_path))
    published = app.event("tender.published", Tender, channels=[pager], digest=Digest("15m"))
    await app.recipients.aupsert("u", {"pager": "a"})
    async with app.working():
        for code in ("T1", "T2", "T3"):
            await published.anotify(Tender(code), subject=code, to="u")
        await auntil(lambda: len(states()) == 3)
        advance(connection, 16 * 60)
        await auntil(lambda: [message.title for message in pager.sent] == ["Tender T1 (and 2 more)"])


def test_concurrent_events_do_not_exceed_a_throttle(
    app: Sereno, connection: psycopg.Connection, database_url: str, pager: Pager, states: States
) -> None:
    published = app.event("tender.published", Tender, channels=[pager], throttle=Throttle(1, per="1h"))
    app.recipients.upsert("u", {"pager": "a"})
    first, second = (published.notify(Tender(code), subject=code) for code in ("T1", "T2"))
    with psycopg.connect(database_url) as other, ThreadPoolExecutor(1) as pool:
        run(other, events.fan_out(first, 10))
        late = pool.submit(app.database.run, events.fan_out(second, 10))
        until(lambda: one(connection, WAITING))
        other.commit()
        late.result(30)
    assert sorted(row[2:] for row in states()) == [("pending", None), ("skipped", "throttled")]


@pytest.mark.slow
async def test_deliveries_beyond_the_throttle_are_skipped_with_a_reason(
    app: Sereno, connection: psycopg.Connection, pager: Pager, states: States
) -> None:
    published = app.event("tender.published", Tender, channels=[pager], throttle=Throttle(2, per="1h"))
    await app.recipients.aupsert("u", {"pager": "a"})
    async with app.working():
        for number in range(4):
            await published.anotify(Tender(f"T{number}"), subject=f"T{number}")
            await auntil(lambda wanted=number + 1: len(states()) == wanted)  # type: ignore[misc]  # bound now
        await auntil(lambda: len(pager.sent) == 2)
        assert [row[3] for row in states() if row[2] == "skipped"] == ["throttled"] * 2
        advance(connection, 3700)
        await published.anotify(Tender("T9"), subject="T9")
        await auntil(lambda: len(pager.sent) == 3)


async def test_skipped_deliveries_do_not_count_for_a_throttle(
    app: Sereno, connection: psycopg.Connection, pager: Pager
) -> None:
    published = app.event("tender.published", Tender, channels=[pager], throttle=Throttle(1, per="1h"))
    await app.recipients.aupsert("u", {"pager": "a"})
    for code in ("T1", "T2", "T3"):
        await app.notifications.fanout.fan_out(await published.anotify(Tender(code), subject=code))
        advance(connection, 40 * 60)
    rows = connection.execute("select state from sereno.deliveries order by id").fetchall()
    assert rows == [("pending",), ("skipped",), ("pending",)]


async def test_an_unwanted_event_is_not_escalated(app: Sereno, connection: psycopg.Connection, pager: Pager) -> None:
    published = app.event("alarm", Tender, channels=[pager.then(Phone(), after="10m")])
    for key in ("a", "b"):
        await app.recipients.aupsert(key, {"pager": key, "phone": f"+{key}"})
    await app.recipients.aprefer("a", channel="pager", wanted=False)
    event = await published.anotify(Tender("T1"), to=["a", "b"])
    await app.notifications.fanout.fan_out(event)
    advance(connection, 11 * 60)
    await app.notifications.fanout.escalate(event)
    escalated = (
        "select array_agg(key) from sereno.deliveries join sereno.recipients on recipients.id = recipient_id "
        "where channel = 'phone'"
    )
    assert one(connection, escalated) == ["b"]


@pytest.mark.slow
async def test_escalation_sends_to_recipients_who_were_not_reached(
    app: Sereno, connection: psycopg.Connection, pager: Pager, states: States
) -> None:
    phone = Phone()
    published = app.event("alarm", Tender, channels=[pager.then(phone, after="10m", unless="delivered")])
    pager.outcomes = {"b": Failed("refused")}
    for key in ("a", "b", "c"):
        await app.recipients.aupsert(key, {"pager": key, "phone": f"+{key}"})
    await app.recipients.aupsert("d", {"phone": "+d"})
    async with app.working():
        await published.anotify(Tender("T1"), subject="T1")
        await auntil(lambda: sorted(row[2] for row in states()) == ["failed", "sent", "sent", "skipped"])
        first = {message.address: f"p{message.delivery}" for message in pager.sent}
        await app.notifications.receipts.apply("pager", "", [Receipt(provider_id=first["a"], outcome="delivered")])
        assert phone.sent == []
        advance(connection, 11 * 60)
        await auntil(lambda: sorted(message.address for message in phone.sent) == ["+b", "+c", "+d"])
        advance(connection, 60 * 60)
    assert len(phone.sent) == 3
    assert one(connection, "select count(*) from sereno.jobs where task = 'sereno.escalate'") == 0


class Provider(Pager):
    """One of two providers of a channel."""

    name = "sms"

    def __init__(self, outcome: Outcome) -> None:
        super().__init__()
        self._outcome = outcome

    async def send(self, batch: Sequence[Message], exchange: Exchange) -> Sequence[Outcome]:
        await super().send(batch, exchange)
        return [self._outcome] * len(batch)


PASSED_ON: list[tuple[Outcome, bool]] = [
    (Retryable("busy"), True),
    (Down("denied"), True),
    (Unknown("cut"), False),
    (Failed("no"), False),
    (Sent("x"), False),
]


async def test_failover_sends_only_messages_that_were_certainly_not_accepted(subtests: pytest.Subtests) -> None:
    for first, is_passed_on in PASSED_ON:
        with subtests.test(first=first, is_passed_on=is_passed_on):
            one_, other = Provider(first), Provider(Sent("second"))
            channel = Failover(one_, other)
            message = Message(delivery=1, key="k", address="+1")
            async with Exchange({"sender": "me", "first": {"token": "1"}, "second": {"token": "2"}}) as exchange:
                (outcome,) = await channel.send([message], exchange)
            assert outcome == (Sent("second") if is_passed_on else first)
            assert one_.accounts == [{"sender": "me", "token": "1"}]
            assert other.accounts == ([{"sender": "me", "token": "2"}] if is_passed_on else [])
            assert [each.key for each in other.sent] == ["k"] * is_passed_on


def test_a_failover_needs_two_providers_of_one_channel() -> None:
    with pytest.raises(ConfigurationError, match="needs two providers of one channel, not pager and phone"):
        Failover(Pager(), Phone())


@pytest.mark.slow
async def test_a_reminder_is_pending_until_its_time_and_then_sent_or_overdue(
    app: Sereno, connection: psycopg.Connection, pager: Pager
) -> None:
    reminder = app.event("reminder", Tender, channels=[pager])
    pager.outcomes = {"b": Retryable("busy")}
    for key in ("a", "b"):
        await app.recipients.aupsert(key, {"pager": key})
    at = datetime.now(UTC) + timedelta(hours=1)
    async with app.working():
        for key in ("a", "b"):
            await reminder.anotify(Tender(key), subject=key, to=key, at=at)
        await reminder.anotify(Tender("a"), subject="a", to="a", at=at)
        found = await reminder.astatus("a")
        assert found is not None
        assert found.state == "pending"
        assert pager.sent == []
        advance(connection, 3601)
        await auntil(lambda: len(pager.sent) == 2)
        await auntil(lambda: one(connection, "select count(*) from sereno.deliveries where state = 'sending'") == 0)
    assert [status and status.state for status in (reminder.status("a"), reminder.status("b"))] == ["sent", "overdue"]
    assert reminder.status("missing") is None


@pytest.mark.slow
async def test_a_tenant_with_credentials_uses_its_own_account(
    app: Sereno, connection: psycopg.Connection, pager: Pager
) -> None:
    published = app.event("tender.published", Tender, channels=[pager])
    app.channels.accounts["pager"] = {"token": "ours", "sender": "sereno"}
    connection.execute(
        "insert into sereno.accounts (channel, tenant, settings) values ('pager', 'acme', '{\"token\": \"theirs\"}')"
    )
    for tenant in ("acme", "other"):
        await app.recipients.aupsert("u", {"pager": tenant}, tenant=tenant)
    async with app.working():
        for tenant in ("acme", "other"):
            await published.anotify(Tender("T1"), subject="T1", tenant=tenant)
        await auntil(lambda: len(pager.sent) == 2)
    used = {message.address: account for message, account in zip(pager.sent, pager.accounts, strict=True)}
    assert used == {
        "acme": {"token": "theirs"},
        "other": {"token": "ours", "sender": "sereno"},
    }
