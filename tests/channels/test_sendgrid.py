"""Email by SendGrid: what is sent, what each refusal means, and signed batches of events."""

import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from sereno.channels.contract import Exchange, Message
from sereno.channels.outcome import Down, Failed, Invalid, Outcome, Retryable, Sent
from sereno.channels.sendgrid import OLDEST_CALLBACK, SendGrid
from sereno.errors import ConfigurationError, RejectedCallback
from sereno.testing.sendgrid import TO, SendGridProvider
from tests.channels.hostile_callbacks import check_hostile_bodies

ADA = "ada@example.com"
NAME = "T7MrPi1jQzmcGs1Kd7YBCg"


@pytest.fixture
async def provider() -> AsyncIterator[SendGridProvider]:
    async with SendGridProvider() as provider:
        yield provider


async def send(provider: SendGridProvider, *, account: dict[str, str] | None = None, **changed: Any) -> Outcome:
    message = Message(**{"delivery": 1, "key": "k1", "address": ADA, "title": "Oi", "body": "Olá", **changed})
    async with Exchange({**provider.account, **(account or {})}) as exchange:
        (outcome,) = await SendGrid().send([message], exchange)
    return outcome


async def test_an_accepted_email_is_sent_with_its_id(provider: SendGridProvider) -> None:
    url = "https://notify.example.org/unsubscribe/token"
    outcome = await send(
        provider,
        html=f"<p>Olá {url}</p>",
        unsubscribe_url=url,
        options={"headers": {"X-Order": "1"}, "reply_to": "h@example.org"},
    )
    ((name, email),) = provider.sent.items()
    assert outcome == Sent(name)
    assert email == {
        "personalizations": [{"to": [{"email": ADA}]}],
        "from": {"email": "shop@example.org", "name": "Shop"},
        "reply_to": {"email": "h@example.org"},
        "subject": "Oi",
        "content": [
            {"type": "text/plain", "value": f"Olá\n\n-- \nUnsubscribe: {url}\n"},
            {"type": "text/html", "value": f"<p>Olá {url}</p>"},
        ],
        "headers": {
            "Auto-Submitted": "auto-generated",
            "X-Entity-Ref-ID": "k1",
            "List-Unsubscribe": f"<{url}>",
            "List-Unsubscribe-Post": "List-Unsubscribe=One-Click",
            "X-Order": "1",
        },
    }


async def test_each_refusal_has_an_outcome(provider: SendGridProvider, subtests: pytest.Subtests) -> None:
    expected: dict[tuple[int, str], type[Outcome]] = {
        (400, TO): Invalid,
        (400, "from.email"): Down,
        (400, "subject"): Failed,
        (413, ""): Failed,
        (401, ""): Down,
        (403, "from"): Down,
        (429, ""): Retryable,
        (500, ""): Retryable,
        (503, ""): Retryable,
    }
    for refusal, kind in expected.items():
        with subtests.test(refusal=refusal):
            provider.refuses[ADA] = refusal
            outcome = await send(provider)
            assert (type(outcome), getattr(outcome, "code", "")) == (kind, f"http_{refusal[0]}")


async def test_throttled_messages_wait_until_the_rate_is_free(provider: SendGridProvider) -> None:
    provider.refuses[ADA] = (429, "")
    outcome = await send(provider)
    assert isinstance(outcome, Retryable)
    assert outcome.after is not None
    assert 0 <= outcome.after <= 30


async def test_refused_credentials_stop_the_channel(provider: SendGridProvider) -> None:
    outcome = await send(provider, account={"api_key": "SG.wrong-key"})
    assert isinstance(outcome, Down)
    assert "wrong-key" not in repr(outcome)


EVENTS: list[tuple[str, dict[str, Any], list[str]]] = [
    ("delivered", {"response": "250 OK"}, ["delivered"]),
    ("open", {"sg_machine_open": False}, ["read"]),
    ("click", {"url": "https://example.org"}, ["clicked"]),
    ("spamreport", {}, ["complained"]),
    ("unsubscribe", {}, ["unsubscribed"]),
    ("group_unsubscribe", {"asm_group_id": 10}, ["unsubscribed"]),
    ("group_resubscribe", {"asm_group_id": 10}, []),
    ("bounce", {"type": "bounce", "status": "5.1.1", "reason": "550 no such user"}, ["invalid"]),
    ("bounce", {"type": "blocked", "status": "5.7.1"}, ["bounced"]),
    ("dropped", {"reason": "Bounced Address"}, ["invalid"]),
    ("dropped", {"reason": "Unsubscribed Address"}, ["failed", "unsubscribed"]),
    ("dropped", {"reason": "Spam Reporting Address"}, ["failed", "complained"]),
    ("dropped", {"reason": "Spam Content"}, ["failed"]),
    ("deferred", {"response": "400 try again later"}, []),
    ("processed", {}, []),
    ("invented", {}, []),
]


async def test_a_batch_of_events_becomes_receipts(provider: SendGridProvider) -> None:
    batch = [provider.event(kind, f"{NAME}{number}", **more) for number, (kind, more, _) in enumerate(EVENTS)]
    receipts = SendGrid().webhook(provider.callback(*batch), provider.account)
    assert [(each.provider_id, each.outcome) for each in receipts] == [
        (f"{NAME}{number}", outcome) for number, (_, _, outcomes) in enumerate(EVENTS) for outcome in outcomes
    ]
    older = provider.event("delivered", NAME, sg_message_id="14c5d75ce93.dfd.64b469.filter0001.16648.5515E0B88.0")
    (receipt,) = SendGrid().webhook(provider.callback(older), provider.account)
    assert receipt.provider_id == "14c5d75ce93.dfd.64b469"


async def test_a_callback_that_sendgrid_did_not_sign_is_rejected(
    provider: SendGridProvider, subtests: pytest.Subtests
) -> None:
    good, other = provider.callback(provider.event("delivered", NAME)), SendGridProvider()
    signature, timestamp = "x-twilio-email-event-webhook-signature", "x-twilio-email-event-webhook-timestamp"
    forged = {
        "no headers": msgspec.structs.replace(good, headers={}),
        "an empty signature": msgspec.structs.replace(good, headers={**good.headers, signature: ""}),
        "no base64": msgspec.structs.replace(good, headers={**good.headers, signature: "é\ud800"}),
        "another time": msgspec.structs.replace(good, headers={**good.headers, timestamp: str(int(time.time()) + 1)}),
        "another body": msgspec.structs.replace(good, body=good.body.replace(b"delivered", b"bounce")),
        "another key": other.callback(other.event("delivered", NAME)),
        "an old one": provider.callback(provider.event("delivered", NAME), at=time.time() - OLDEST_CALLBACK - 60),
        "one of the future": provider.callback(provider.event("delivered", NAME), at=time.time() + 900),
    }
    for name, callback in forged.items():
        with subtests.test(name), pytest.raises(RejectedCallback):
            SendGrid().webhook(callback, provider.account)
    later = SendGrid(now=lambda: datetime.fromtimestamp(time.time() + OLDEST_CALLBACK + 60, UTC))
    with pytest.raises(RejectedCallback, match="too old"):
        later.webhook(good, provider.account)


async def test_without_a_valid_key_no_callback_is_accepted(provider: SendGridProvider) -> None:
    good = provider.callback(provider.event("delivered", NAME))
    with pytest.raises(RejectedCallback):
        SendGrid().webhook(good, {**provider.account, "verification_key": ""})
    with pytest.raises(ConfigurationError, match="verification_key"):
        SendGrid().webhook(good, {**provider.account, "verification_key": "bm8ga2V5"})


async def test_a_hostile_body_has_no_receipts(provider: SendGridProvider, subtests: pytest.Subtests) -> None:
    check_hostile_bodies(subtests, lambda body: SendGrid().webhook(provider.signed(body), provider.account))
