"""SMS through Twilio: what is sent, what each code means, and signed callbacks."""

from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qs

import msgspec
import pytest

from sereno.channels.contract import Exchange, Message
from sereno.channels.outcome import Down, Failed, Invalid, Outcome, Receipt, Retryable, Sent
from sereno.channels.twilio import Twilio, signature
from sereno.errors import RejectedCallback
from sereno.testing.provider import RETRY_AFTER
from sereno.testing.twilio import TwilioProvider

PHONE = "+5511987654321"
SID = "SM0123456789abcdef0123456789abcdef"


@pytest.fixture
async def provider() -> AsyncIterator[TwilioProvider]:
    async with TwilioProvider() as provider:
        yield provider


async def send(provider: TwilioProvider, *, account: dict[str, str] | None = None, **changed: Any) -> Outcome:
    message = Message(**{"delivery": 1, "key": "k1", "address": PHONE, "body": "Bom dia, ção & 😀", **changed})
    async with Exchange({**provider.account, **(account or {})}) as exchange:
        (outcome,) = await Twilio().send([message], exchange)
    return outcome


async def test_an_accepted_message_is_sent_with_its_sid(provider: TwilioProvider) -> None:
    outcome = await send(provider, account={"status_callback": "https://us.example/sms"})
    (sid,) = provider.sent
    assert outcome == Sent(sid)
    assert parse_qs(provider.log[0].body.decode()) == {
        "To": [PHONE],
        "Body": ["Bom dia, ção & 😀"],
        "From": [provider.from_number],
        "StatusCallback": ["https://us.example/sms"],
    }


async def test_a_messaging_service_replaces_the_number(provider: TwilioProvider) -> None:
    assert isinstance(await send(provider, account={"messaging_service_sid": "MG01"}, title="News"), Sent)
    (form,) = provider.sent.values()
    assert form["MessagingServiceSid"] == "MG01"
    assert "From" not in form
    assert form["Body"].startswith("News\n")


async def test_a_text_that_is_too_long_is_not_sent(provider: TwilioProvider) -> None:
    outcome = await send(provider, body="x" * 1601)
    assert isinstance(outcome, Failed)
    assert outcome.code == "too_long"
    assert provider.log == []
    assert isinstance(await send(provider, body="x" * 1600), Sent)


OUTCOMES: list[tuple[int, type[Outcome]]] = (
    [(code, Invalid) for code in (21211, 21214, 21217, 21610, 21614, 30003, 30005, 30006)]
    + [(code, Down) for code in (20003, 20005, 20404, 21603, 21660, 21701, 21704, 21705, 30002)]
    + [(code, Retryable) for code in (14107, 20429, 21611, 30001, 30022, 30023, 63038)]
    + [(code, Failed) for code in (21408, 21602, 21606, 21608, 21612, 21617, 21659, 30004, 30007, 30008, 99999)]
)


async def test_each_code_has_an_outcome(provider: TwilioProvider, subtests: pytest.Subtests) -> None:
    for code, kind in OUTCOMES:
        with subtests.test(code=code):
            provider.refuses[PHONE] = code
            outcome = await send(provider)
            assert type(outcome) is kind
            assert not isinstance(outcome, Sent)
            assert getattr(outcome, "code", None) == str(code)
            assert provider.sent == {}


async def test_throttled_messages_wait_as_long_as_twilio_requires(provider: TwilioProvider) -> None:
    provider.refuses[PHONE] = 20429
    assert await send(provider) == Retryable("20429", "Refused with 20429", after=RETRY_AFTER)


async def test_refused_credentials_stop_the_channel(provider: TwilioProvider) -> None:
    outcome = await send(provider, account={"auth_token": "wrong-token"})
    assert isinstance(outcome, Down)
    assert outcome.code == "20003"
    assert "wrong-token" not in repr(outcome)


def test_the_signature_matches_twilios_documentation() -> None:
    parameters = {
        "CallSid": "CA1234567890ABCDE",
        "Caller": "+14158675309",
        "Digits": "1234",
        "From": "+14158675309",
        "To": "+18005551212",
    }
    url = "https://mycompany.com/myapp.php?foo=1&bar=2"
    assert signature("12345", url, parameters.items()) == b"RSOYDt4T1cUTdK1PDd93/VVr8B8="


STATUSES: list[tuple[str, str, str | None]] = [
    ("delivered", "", "delivered"),
    ("read", "", "read"),
    ("failed", "30007", "failed"),
    ("undelivered", "30008", "failed"),
    ("undelivered", "", "failed"),
    ("undelivered", "30003", "invalid"),
    ("undelivered", "30005", "invalid"),
    ("failed", "30006", "invalid"),
    ("queued", "", None),
    ("sending", "", None),
    ("sent", "", None),
    ("invented", "", None),
]


async def test_a_status_callback_becomes_a_receipt(provider: TwilioProvider, subtests: pytest.Subtests) -> None:
    for status, error, outcome in STATUSES:
        with subtests.test(status=status, error=error):
            receipts = Twilio().webhook(provider.callback(SID, status, error=error), provider.account)
            assert [(receipt.provider_id, receipt.outcome, receipt.code, receipt.id) for receipt in receipts] == (
                [] if outcome is None else [(SID, outcome, error, f"{SID}.{status}")]
            )


async def test_the_called_url_may_differ_behind_a_proxy(provider: TwilioProvider) -> None:
    callback = provider.callback(SID, "delivered", url="https://us.example/sms?tenant=1")
    behind = msgspec.structs.replace(callback, url="http://10.0.0.7:8000/sms?tenant=1")
    with pytest.raises(RejectedCallback):
        Twilio().webhook(behind, provider.account)
    account = {**provider.account, "status_callback": "https://us.example/sms?tenant=1"}
    expected = [Receipt(provider_id=SID, outcome="delivered", id=f"{SID}.delivered")]
    assert list(Twilio().webhook(behind, account)) == expected


async def test_a_callback_that_twilio_did_not_sign_is_rejected(provider: TwilioProvider) -> None:
    good = provider.callback(SID, "delivered")
    forged = [
        msgspec.structs.replace(good, headers={}),
        msgspec.structs.replace(good, headers={"x-twilio-signature": ""}),
        msgspec.structs.replace(good, headers={"x-twilio-signature": "é\ud800"}),
        msgspec.structs.replace(good, body=good.body.replace(b"delivered", b"read")),
        msgspec.structs.replace(good, body=good.body + b"&ErrorCode=30003"),
        msgspec.structs.replace(good, url="https://other.example/sms"),
        msgspec.structs.replace(good, url=""),
        msgspec.structs.replace(good, body=b"\xff\xfe"),
        msgspec.structs.replace(good, body=b"a=1&" * 100_000),
    ]
    for callback in forged:
        with pytest.raises(RejectedCallback):
            Twilio().webhook(callback, provider.account)


async def test_without_a_token_every_callback_is_rejected(provider: TwilioProvider) -> None:
    provider.auth_token = ""
    with pytest.raises(RejectedCallback, match="auth_token"):
        Twilio().webhook(provider.callback(SID, "delivered"), provider.account)
