"""Email by Resend: one message with its idempotency key or many per request, what each error means, signed events."""

import base64
import hmac
import time
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from aiohttp import web

from sereno.channels.contract import Callback, Exchange, Message
from sereno.channels.email_provider import QUOTA_WAIT
from sereno.channels.outcome import Down, Failed, Invalid, Outcome, Retryable, Sent, Unknown
from sereno.channels.resend import LONGEST_KEY, OLDEST_CALLBACK, Resend, ResendBatch, signature
from sereno.errors import ConfigurationError, RejectedCallback
from sereno.testing.provider import RETRY_AFTER, Request
from sereno.testing.resend import ResendProvider
from tests.channels.hostile_callbacks import check_hostile_bodies

ADA, BOB = "ada@example.com", "bob@example.com"
NAME = "49a3999c-0ce1-4ea6-ab68-afcd6dc2e794"


@pytest.fixture
async def provider() -> AsyncIterator[ResendProvider]:
    async with ResendProvider() as provider:
        yield provider


def message(address: str = ADA, **changed: Any) -> Message:
    return Message(
        **{"delivery": 1, "key": f"key-{address}", "address": address, "title": "Oi", "body": "Olá", **changed}
    )


async def send(
    provider: ResendProvider, *batch: Message, channel: Resend | None = None, **account: str
) -> Sequence[Outcome]:
    async with Exchange({**provider.account, **account}) as exchange:
        return await (channel or Resend()).send(batch or (message(),), exchange)


async def test_an_accepted_email_is_sent_with_its_id_and_key(provider: ResendProvider) -> None:
    url = "https://notify.example.org/unsubscribe/token"
    (outcome,) = await send(
        provider, message(html=f"<p>Olá {url}</p>", unsubscribe_url=url, options={"reply_to": "h@example.org"})
    )
    ((name, email),) = provider.sent.items()
    assert outcome == Sent(name)
    assert provider.log[0].headers["idempotency-key"] == f"key-{ADA}"
    assert email == {
        "from": '"Shop" <shop@example.org>',
        "to": [ADA],
        "reply_to": "h@example.org",
        "subject": "Oi",
        "text": f"Olá\n\n-- \nUnsubscribe: {url}\n",
        "html": f"<p>Olá {url}</p>",
        "headers": {
            "Auto-Submitted": "auto-generated",
            "X-Entity-Ref-ID": f"key-{ADA}",
            "List-Unsubscribe": f"<{url}>",
            "List-Unsubscribe-Post": "List-Unsubscribe=One-Click",
        },
    }


async def test_a_message_whose_response_was_lost_is_not_sent_twice(provider: ResendProvider) -> None:
    (first,) = await send(provider)
    (again,) = await send(provider, message(attempt=2))
    assert (again, len(provider.sent)) == (first, 1)
    (other,) = await send(provider, message(body="another text"))
    assert (type(other), len(provider.sent)) == (Unknown, 1)
    (longer,) = await send(provider, message(key="k" * (LONGEST_KEY + 1)))
    assert isinstance(longer, Sent)
    assert len(provider.log[-1].headers["idempotency-key"]) <= LONGEST_KEY


async def test_a_batch_is_one_request_with_an_outcome_for_each(provider: ResendProvider) -> None:
    provider.refuses[BOB] = "validation_error"
    batch = [message(), message(BOB), message("no address"), message("eve@example.com")]
    outcomes = await send(provider, *batch, channel=ResendBatch())
    first, last = provider.sent
    assert outcomes[0] == Sent(first)
    assert outcomes[1] == Failed("validation_error", "Refused")
    assert isinstance(outcomes[2], Invalid)
    assert outcomes[3] == Sent(last)
    assert [request.path for request in provider.log] == ["/emails/batch"]


class BrokenResend(ResendProvider):
    """Returns a fixed response."""

    reply: Any = None

    async def answer(self, request: Request) -> web.StreamResponse:  # noqa: ARG002 - the same to all
        return web.json_response(self.reply)


async def test_an_incomplete_response_to_a_batch_is_unknown(subtests: pytest.Subtests) -> None:
    accepted, error = {"id": NAME}, {"index": 0, "message": "no"}
    replies: list[Any] = [
        {"data": [accepted]},
        {"data": [accepted], "errors": [{"index": 9}]},
        {"data": [accepted], "errors": [{"index": "0"}]},
        {"data": [], "errors": [error, error]},
        {"data": None, "errors": 5},
        [],
    ]
    async with BrokenResend() as provider:
        for provider.reply in replies:
            with subtests.test(reply=provider.reply):
                outcomes = await send(provider, message(), message(BOB), channel=ResendBatch())
                assert [type(outcome) for outcome in outcomes] == [Unknown, Unknown]


OUTCOMES: dict[str, type[Outcome]] = {
    "invalid_api_key": Down,
    "missing_api_key": Down,
    "invalid_from_address": Down,
    "rate_limit_exceeded": Retryable,
    "daily_quota_exceeded": Retryable,
    "monthly_quota_exceeded": Down,
    "concurrent_idempotent_requests": Retryable,
    "invalid_idempotent_request": Unknown,
    "validation_error": Failed,
    "application_error": Retryable,
    "invented": Failed,
}


async def test_each_error_has_an_outcome(provider: ResendProvider, subtests: pytest.Subtests) -> None:
    for name, kind in OUTCOMES.items():
        with subtests.test(name=name):
            provider.refuses[ADA] = name
            (outcome,) = await send(provider)
            assert type(outcome) is kind
            (outcome,) = await send(provider, message(key="of a batch"), channel=ResendBatch())
            assert type(outcome) in (kind, Failed)
    provider.refuses[ADA] = "rate_limit_exceeded"
    assert await send(provider) == [Retryable("rate_limit_exceeded", "Refused", after=RETRY_AFTER)]
    provider.refuses[ADA] = "daily_quota_exceeded"
    (outcome,) = await send(provider)
    assert isinstance(outcome, Retryable)
    assert outcome.after == QUOTA_WAIT
    assert QUOTA_WAIT * len(Resend.delays) > 86400, "the tries last until the quota of the next day"
    (outcome,) = await send(provider, api_key="re_wrong-key")
    assert isinstance(outcome, Down)
    assert "wrong-key" not in repr(outcome)


EVENTS: list[tuple[str, dict[str, Any], list[str]]] = [
    ("email.delivered", {}, ["delivered"]),
    ("email.opened", {}, ["read"]),
    ("email.clicked", {"click": {"link": "https://example.org"}}, ["clicked"]),
    ("email.complained", {}, ["complained"]),
    ("email.bounced", {"bounce": {"type": "Permanent", "subType": "General", "message": "no such user"}}, ["invalid"]),
    ("email.bounced", {"bounce": {"type": "Transient", "subType": "MailboxFull"}}, ["bounced"]),
    ("email.bounced", {}, ["bounced"]),
    ("email.failed", {"failed": {"reason": "reached_daily_quota"}}, ["failed"]),
    ("email.suppressed", {}, ["invalid"]),
    ("email.sent", {}, []),
    ("email.delivery_delayed", {}, []),
    ("contact.updated", {}, []),
]


async def test_an_event_becomes_a_receipt(provider: ResendProvider, subtests: pytest.Subtests) -> None:
    for kind, more, expected in EVENTS:
        with subtests.test(kind=kind, more=more):
            receipts = Resend().webhook(provider.event(kind, NAME, **more), provider.account)
            assert [(each.provider_id, each.outcome) for each in receipts] == [(NAME, each) for each in expected]


def test_the_signature_matches_the_documentation_of_svix() -> None:
    secret, body = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", b'{"test": 2432232314}'
    expected = b"v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert signature(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", body) == expected


async def test_a_callback_that_resend_did_not_sign_is_rejected(
    provider: ResendProvider, subtests: pytest.Subtests
) -> None:
    good, other = provider.event("email.delivered", NAME), ResendProvider()
    forged = {
        "no headers": msgspec.structs.replace(good, headers={}),
        "an empty signature": msgspec.structs.replace(good, headers={**good.headers, "svix-signature": ""}),
        "another version": msgspec.structs.replace(
            good, headers={**good.headers, "svix-signature": good.headers["svix-signature"].replace("v1,", "v2,")}
        ),
        "no text": msgspec.structs.replace(good, headers={**good.headers, "svix-signature": "é\ud800"}),
        "another id": msgspec.structs.replace(good, headers={**good.headers, "svix-id": "msg_other"}),
        "another time": msgspec.structs.replace(good, headers={**good.headers, "svix-timestamp": "1"}),
        "another body": msgspec.structs.replace(good, body=good.body.replace(b"delivered", b"bounced")),
        "another secret": other.event("email.delivered", NAME),
        "an old one": provider.event("email.delivered", NAME, at=time.time() - OLDEST_CALLBACK - 60),
        "one of the future": provider.event("email.delivered", NAME, at=time.time() + 900),
    }
    for name, callback in forged.items():
        with subtests.test(name), pytest.raises(RejectedCallback):
            Resend().webhook(callback, provider.account)
    later = Resend(now=lambda: datetime.fromtimestamp(time.time() + 900, UTC))
    with pytest.raises(RejectedCallback, match="too old"):
        later.webhook(good, provider.account)


def signed_with(key: bytes, callback: Callback) -> Callback:
    """Return the callback signed with this key."""
    signed = f"{callback.headers['svix-id']}.{callback.headers['svix-timestamp']}.".encode() + callback.body
    found = base64.b64encode(hmac.digest(key, signed, "sha256")).decode()
    return msgspec.structs.replace(callback, headers={**callback.headers, "svix-signature": f"v1,{found}"})


async def test_without_a_valid_secret_no_callback_is_accepted(provider: ResendProvider) -> None:
    good = provider.event("email.delivered", NAME)
    with pytest.raises(RejectedCallback, match="webhook_secret"):
        Resend().webhook(good, {**provider.account, "webhook_secret": ""})
    for secret in ("whsec_*", "whsec_"):
        # With an empty key, anyone can sign.
        forged = signed_with(b"", good)
        with pytest.raises(ConfigurationError, match="webhook_secret"):
            Resend().webhook(forged, {**provider.account, "webhook_secret": secret})


async def test_a_hostile_body_has_no_receipts(provider: ResendProvider, subtests: pytest.Subtests) -> None:
    check_hostile_bodies(subtests, lambda body: Resend().webhook(provider.signed(body), provider.account))
