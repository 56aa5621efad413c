"""E-mail providers through the whole application: rates, callbacks of several accounts, and addresses that end."""

from typing import Any

import psycopg
import pytest
from aiohttp import web

from sereno import Sereno
from sereno.channels.email_provider import EmailProvider
from sereno.channels.failover import Failover
from sereno.channels.mailgun import Mailgun
from sereno.channels.postmark import Postmark
from sereno.channels.resend import Resend, ResendBatch
from sereno.channels.sendgrid import SendGrid
from sereno.channels.ses import SES
from sereno.database.json_values import encoder
from sereno.errors import RejectedCallback
from sereno.testing.postmark import PostmarkProvider
from sereno.testing.provider import Request
from sereno.testing.resend import ResendProvider
from sereno.testing.ses import SESProvider
from tests.facts import advance, auntil, one
from tests.notifications.conftest import States, Tender

CHANNELS: tuple[type[EmailProvider[Any]], ...] = (Mailgun, Postmark, Resend, ResendBatch, SendGrid, SES)


def add_account(connection: psycopg.Connection, tenant: str, settings: dict[str, str]) -> None:
    connection.execute(
        "insert into sereno.accounts (channel, tenant, settings) values ('email', %s, %s::jsonb)",
        [tenant, encoder.encode(settings).decode()],
    )


def test_each_channel_can_be_sent_by_jobs(app: Sereno, subtests: pytest.Subtests) -> None:
    for channel in CHANNELS:
        with subtests.test(channel=channel.__name__):
            app.channels.known["email"] = channel()
            assert app.notifications.sender._send_jobs.for_deliveries("email", "", 250)


async def test_a_complaint_ends_the_address_for_its_tenant_alone(
    app: Sereno, connection: psycopg.Connection, states: States
) -> None:
    published = app.event("tender.published", Tender, channels=[Postmark()])
    async with PostmarkProvider() as ours, PostmarkProvider() as theirs:
        app.channels.known["email"] = channel = Postmark()
        app.channels.accounts["email"] = ours.account
        add_account(connection, "acme", theirs.account)
        await app.recipients.aupsert("ada", {"email": "ada@example.com"})
        await app.recipients.aupsert("ada", {"email": "ada@example.com"}, tenant="acme")
        async with app.working():
            await published.anotify(Tender("T1"), subject="T1")
            await published.anotify(Tender("T2"), subject="T2", tenant="acme")
            await auntil(lambda: [row[2] for row in states()] == ["sent", "sent"])
        (name,), (their_name,) = ours.sent, theirs.sent
        receive = app.notifications.callback
        with pytest.raises(RejectedCallback):
            await receive(channel.name, theirs.event("SpamComplaint", name))
        assert await receive(channel.name, theirs.event("SpamComplaint", name), account="acme") == 0
        assert one(connection, "select count(*) from sereno.addresses where state = 'active'") == 2
        complaint = theirs.event("SpamComplaint", their_name)
        assert await receive(channel.name, complaint, account="acme") == 1
        assert await receive(channel.name, complaint, account="acme") == 0
    rows = connection.execute(
        "select tenant, state, a.reason "
        "from sereno.addresses a join sereno.recipients r on r.id = recipient_id order by tenant"
    ).fetchall()
    assert rows == [("", "active", None), ("acme", "unsubscribed", "reported as spam")]


class ForgetfulResend(ResendProvider):
    """Accepts the first message, and its response is lost."""

    async def answer(self, request: Request) -> web.StreamResponse:
        response = await super().answer(request)
        return response if len(self.log) > 1 else web.Response(text="<html></html>", content_type="text/html")


async def test_a_lost_response_of_resend_does_not_send_twice(
    app: Sereno, connection: psycopg.Connection, states: States
) -> None:
    channel = Resend()
    published = app.event("tender.published", Tender, channels=[channel])
    async with ForgetfulResend() as provider:
        app.channels.add(channel, **provider.account)
        await app.recipients.aupsert("ada", {"email": "ada@example.com"})
        async with app.working():
            await published.anotify(Tender("T1"), subject="T1")
            await auntil(lambda: one(connection, "select unknowns from sereno.deliveries") == 1)
            advance(connection, 100)
            await auntil(lambda: [row[2] for row in states()] == ["sent"])
        assert len(provider.sent) == 1


async def test_events_of_ses_arrive_by_sns(app: Sereno, connection: psycopg.Connection, states: States) -> None:
    async with SESProvider() as provider:
        channel = SES(sns_url=provider.url)
        published = app.event("tender.published", Tender, channels=[channel])
        app.channels.add(channel, **provider.account)
        await app.recipients.aupsert("ada", {"email": "ada@example.com"})
        assert await app.notifications.callback("email", provider.confirmation("token")) == 0
        assert provider.confirmed == ["token"]
        async with app.working():
            await published.anotify(Tender("T1"), subject="T1")
            await auntil(lambda: [row[2] for row in states()] == ["sent"])
        (name,) = provider.sent
        events = [provider.event(kind, name) for kind in ("Open", "Click", "Delivery", "Click")]
        moved = [await app.notifications.callback("email", event) for event in events]
        assert moved == [1, 0, 0, 0]
    assert states()[0][2] == "read"
    rows = connection.execute("select outcome from sereno.receipts order by id").fetchall()
    assert [outcome for (outcome,) in rows] == ["read", "clicked", "delivered"]


async def test_a_failover_reads_the_callbacks_of_both_providers(app: Sereno) -> None:
    async with PostmarkProvider() as first, SESProvider() as second, PostmarkProvider() as other:
        channel = Failover(Postmark(), SES(sns_url=second.url))
        app.channels.add(channel, first=first.account, second=second.account)
        for callback in (first.event("Delivery", "a1"), second.event("Delivery", "b1"), second.confirmation("token")):
            assert await app.notifications.callback("email", callback) == 0
        assert second.confirmed == ["token"]
        # A wrong setting of the first provider does not refuse the callbacks of the second.
        app.channels.known["email"] = Failover(Resend(), Postmark())
        app.channels.accounts["email"] = {"first": {"webhook_secret": "whsec_*"}, "second": other.account}
        assert await app.notifications.callback("email", other.event("Delivery", "c1")) == 0
        app.channels.known["email"] = channel
        app.channels.accounts["email"] = {"first": first.account, "second": second.account}
        with pytest.raises(RejectedCallback):
            await app.notifications.callback("email", other.event("Delivery", "a1"))
