"""Email by Mailgun: what is sent, what each refusal means, and signed events."""

import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from sereno.channels.contract import Callback, Exchange, Message
from sereno.channels.mailgun import OLDEST_CALLBACK, Mailgun
from sereno.channels.outcome import Down, Failed, Invalid, Outcome, Retryable, Sent
from sereno.errors import RejectedCallback
from sereno.testing.mailgun import MailgunProvider
from tests.channels.hostile_callbacks import check_hostile_bodies

ADA = "ada@example.com"
NAME = "20130503182626.18666.16540@mail.example.org"


@pytest.fixture
async def provider() -> AsyncIterator[MailgunProvider]:
    async with MailgunProvider() as provider:
        yield provider


async def send(provider: MailgunProvider, *, account: dict[str, str] | None = None, **changed: Any) -> Outcome:
    message = Message(**{"delivery": 1, "key": "k1", "address": ADA, "title": "Oi", "body": "Olá &", **changed})
    async with Exchange({**provider.account, **(account or {})}) as exchange:
        (outcome,) = await Mailgun().send([message], exchange)
    return outcome


async def test_an_accepted_email_is_sent_with_its_id(provider: MailgunProvider) -> None:
    url = "https://notify.example.org/unsubscribe/token"
    options = {"headers": {"X-Order": "1"}, "reply_to": "h@example.org"}
    outcome = await send(provider, html=f"<p>Olá {url}</p>", unsubscribe_url=url, options=options)
    ((name, form),) = provider.sent.items()
    assert outcome == Sent(name)
    assert form == {
        "from": '"Shop" <shop@mail.example.org>',
        "to": ADA,
        "subject": "Oi",
        "text": f"Olá &\n\n-- \nUnsubscribe: {url}\n",
        "html": f"<p>Olá {url}</p>",
        "h:Reply-To": "h@example.org",
        "h:Auto-Submitted": "auto-generated",
        "h:X-Entity-Ref-ID": "k1",
        "h:List-Unsubscribe": f"<{url}>",
        "h:List-Unsubscribe-Post": "List-Unsubscribe=One-Click",
        "h:X-Order": "1",
    }


async def test_each_refusal_has_an_outcome(provider: MailgunProvider, subtests: pytest.Subtests) -> None:
    expected: list[tuple[int, str, type[Outcome]]] = [
        (400, "to parameter is not a valid address. please check documentation", Invalid),
        (400, "Sandbox subdomains are for test purposes only", Failed),
        (402, "unpaid", Down),
        (403, "Domain mail.example.org is not allowed to send", Down),
        (404, "Domain not found", Down),
        (413, "too large", Failed),
        (429, "too many requests", Retryable),
        (500, "internal error", Retryable),
    ]
    for status, text, kind in expected:
        with subtests.test(status=status, text=text):
            provider.refuses[ADA] = (status, text)
            outcome = await send(provider)
            assert (type(outcome), getattr(outcome, "code", "")) == (kind, f"http_{status}")


async def test_refused_settings_stop_the_channel(provider: MailgunProvider, subtests: pytest.Subtests) -> None:
    for name, value in {"api_key": "key-wrong-one", "domain": "other.example.org", "sender": ""}.items():
        with subtests.test(setting=name):
            outcome = await send(provider, account={name: value})
            assert isinstance(outcome, Down)
            assert "wrong-one" not in repr(outcome)
    assert isinstance(await send(provider, account={"domain": "../v4/domains"}), Down)


EVENTS: list[tuple[str, dict[str, Any], list[str]]] = [
    ("delivered", {}, ["delivered"]),
    ("opened", {}, ["read"]),
    ("clicked", {"url": "https://example.org"}, ["clicked"]),
    ("complained", {}, ["complained"]),
    ("unsubscribed", {}, ["unsubscribed"]),
    ("rejected", {"reject": {"reason": "virus"}}, ["failed"]),
    ("failed", {"severity": "permanent", "reason": "bounce", "delivery-status": {"message": "550"}}, ["invalid"]),
    ("failed", {"severity": "permanent", "reason": "suppress-bounce"}, ["invalid"]),
    ("failed", {"severity": "permanent", "reason": "suppress-complaint"}, ["failed", "complained"]),
    ("failed", {"severity": "permanent", "reason": "suppress-unsubscribe"}, ["failed", "unsubscribed"]),
    ("failed", {"severity": "permanent", "reason": "old"}, ["bounced"]),
    ("failed", {"severity": "permanent", "reason": ["bounce"]}, ["bounced"]),
    ("failed", {"severity": "temporary", "reason": "generic"}, []),
    ("accepted", {}, []),
    ("invented", {}, []),
]


async def test_an_event_becomes_receipts(provider: MailgunProvider, subtests: pytest.Subtests) -> None:
    for kind, more, expected in EVENTS:
        with subtests.test(kind=kind, more=more):
            receipts = Mailgun().webhook(provider.event(kind, NAME, **more), provider.account)
            assert [(each.provider_id, each.outcome) for each in receipts] == [(NAME, each) for each in expected]


async def test_an_event_of_a_subaccount_is_signed_with_the_key_of_the_main_one(provider: MailgunProvider) -> None:
    event = {"event": "delivered", "message": {"headers": {"message-id": NAME}}}
    (receipt,) = Mailgun().webhook(provider.signed(event, name="parent-signature"), provider.account)
    assert receipt.outcome == "delivered"


async def test_a_callback_that_mailgun_did_not_sign_is_rejected(
    provider: MailgunProvider, subtests: pytest.Subtests
) -> None:
    def changed(**fields: Any) -> Callback:
        body = msgspec.json.decode(provider.event("delivered", NAME).body)
        body["signature"].update(fields)
        return Callback(body=msgspec.json.encode(body), headers={})

    forged = {
        "an empty signature": changed(signature=""),
        "no text": changed(signature=None),
        "another encoding": changed(signature="é"),
        "another time": changed(timestamp=str(int(time.time()) + 1)),
        "another token": changed(token="0" * 50),
        "another key": MailgunProvider().event("delivered", NAME),
        "an old one": provider.event("delivered", NAME, at=time.time() - OLDEST_CALLBACK - 60),
        "one of the future": provider.event("delivered", NAME, at=time.time() + 900),
    }
    for name, callback in forged.items():
        with subtests.test(name), pytest.raises(RejectedCallback):
            Mailgun().webhook(callback, provider.account)
    later = Mailgun(now=lambda: datetime.fromtimestamp(time.time() + OLDEST_CALLBACK + 60, UTC))
    with pytest.raises(RejectedCallback, match="too old"):
        later.webhook(provider.event("delivered", NAME), provider.account)
    with pytest.raises(RejectedCallback, match="signing_key"):
        Mailgun().webhook(provider.event("delivered", NAME), {**provider.account, "signing_key": ""})


async def test_a_hostile_body_has_no_receipts(provider: MailgunProvider, subtests: pytest.Subtests) -> None:
    check_hostile_bodies(subtests, lambda body: Mailgun().webhook(Callback(body=body, headers={}), provider.account))
    events: list[Any] = [None, [], 5, {"event": {}}, {"event": "failed", "severity": "permanent", "message": []}]
    for event in events:
        with subtests.test(event=event):
            assert Mailgun().webhook(provider.signed(event), provider.account) == []
