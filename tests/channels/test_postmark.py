"""Email by Postmark: what is sent, what each code means, and events with the password of the webhook."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
import pytest

from sereno.channels.contract import Exchange, Message
from sereno.channels.outcome import Down, Failed, Invalid, Outcome, Retryable, Sent, Unknown
from sereno.channels.postmark import Postmark
from sereno.errors import ConfigurationError, RejectedCallback
from sereno.testing.postmark import PostmarkProvider
from tests.channels.hostile_callbacks import check_hostile_bodies

ADA, BOB = "ada@example.com", "bob@example.com"
NAME = "883953f4-6105-42a2-a16a-77a8eac79483"


@pytest.fixture
async def provider() -> AsyncIterator[PostmarkProvider]:
    async with PostmarkProvider() as provider:
        yield provider


def message(address: str = ADA, **changed: Any) -> Message:
    return Message(
        **{"delivery": 1, "key": f"key-{address}", "address": address, "title": "Oi", "body": "Olá", **changed}
    )


async def send(provider: PostmarkProvider, *batch: Message, **account: str) -> Sequence[Outcome]:
    async with Exchange({**provider.account, **account}) as exchange:
        return await Postmark().send(batch or (message(),), exchange)


async def test_a_batch_is_one_request_with_an_outcome_for_each(provider: PostmarkProvider) -> None:
    provider.refuses[BOB] = 406
    first, second, third = await send(provider, message(), message(BOB), message("a\n@example.com"))
    (name,) = provider.sent
    assert first == Sent(name)
    assert second == Invalid("406", "Refused with 406")
    assert isinstance(third, Invalid)
    assert len(provider.log) == 1
    assert provider.sent[name] == {
        "From": '"Shop" <shop@example.org>',
        "To": ADA,
        "Subject": "Oi",
        "TextBody": "Olá",
        "MessageStream": "outbound",
        "Headers": [
            {"Name": "Auto-Submitted", "Value": "auto-generated"},
            {"Name": "X-Entity-Ref-ID", "Value": f"key-{ADA}"},
        ],
    }


async def test_the_unsubscribe_link_and_own_headers_are_sent(provider: PostmarkProvider) -> None:
    url = "https://notify.example.org/unsubscribe/token"
    options = {"headers": {"X-Order": "ção\r\nBcc: b@example.com"}, "reply_to": "Help <help@example.org>"}
    await send(provider, message(html=f"<p>Olá {url}</p>", unsubscribe_url=url, options=options), message_stream="news")
    (email,) = provider.sent.values()
    headers = {header["Name"]: header["Value"] for header in email["Headers"]}
    assert headers["List-Unsubscribe"] == f"<{url}>"
    assert headers["List-Unsubscribe-Post"] == "List-Unsubscribe=One-Click"
    assert headers["X-Order"] == "ção Bcc: b@example.com"
    assert email["ReplyTo"] == '"Help" <help@example.org>'
    assert (email["HtmlBody"], email["MessageStream"]) == (f"<p>Olá {url}</p>", "news")
    assert email["TextBody"] == f"Olá\n\n-- \nUnsubscribe: {url}\n"


async def test_large_messages_are_sent_in_several_requests(provider: PostmarkProvider) -> None:
    outcomes = await send(provider, *[message(body="x" * 9_000_000) for _ in range(3)], message(body="x" * 11_000_000))
    assert [type(outcome) for outcome in outcomes] == [*[Sent] * 3, Failed]
    assert [len(request.json()) for request in provider.log] == [2, 1]


OUTCOMES: dict[type[Outcome], tuple[int, ...]] = {
    Invalid: (406,),
    Down: (10, 400, 401, 405, 412, 413, 1235),
    Retryable: (100, 429),
    Failed: (300, 402, 403, 411, 99_999),
}


async def test_each_code_has_an_outcome(provider: PostmarkProvider, subtests: pytest.Subtests) -> None:
    for kind, codes in OUTCOMES.items():
        for code in codes:
            with subtests.test(code=code):
                provider.refuses[ADA] = code
                (outcome,) = await send(provider)
                assert (type(outcome), getattr(outcome, "code", "")) == (kind, str(code))


async def test_what_cannot_be_sent_fails_alone(provider: PostmarkProvider) -> None:
    empty, titled = message(title="", body=""), message(body="")
    outcomes = await send(provider, empty, titled, message(options={"cc": BOB}))
    assert [type(outcome) for outcome in outcomes] == [Failed, Sent, Failed]
    assert [email["TextBody"] for email in provider.sent.values()] == ["Oi"]


async def test_refused_settings_stop_the_channel(provider: PostmarkProvider, subtests: pytest.Subtests) -> None:
    settings = {"server_token": "wrong-token-1234", "sender": "nobody", "url": "ftp://example.org"}
    for name, value in settings.items():
        with subtests.test(setting=name):
            (outcome,) = await send(provider, **{name: value})
            assert isinstance(outcome, Down)
            assert value not in repr(outcome)
    async with Exchange({"url": provider.url}, own=True) as exchange:
        (outcome,) = await Postmark(server_token=provider.server_token, sender="a@example.org").send(
            [message()], exchange
        )
    assert outcome == Down("no_settings", "the channel email lacks server_token")
    with pytest.raises(ConfigurationError):
        Postmark(sender="nobody")


async def test_a_response_of_another_length_is_unknown(provider: PostmarkProvider) -> None:
    provider._accept = lambda email: {"ErrorCode": "0", "To": email["To"]}  # type: ignore[method-assign]
    assert [type(outcome) for outcome in await send(provider)] == [Unknown]


EVENTS: list[tuple[str, dict[str, Any], list[str]]] = [
    ("Delivery", {}, ["delivered"]),
    ("Open", {"FirstOpen": True}, ["read"]),
    ("Click", {"OriginalLink": "https://example.org"}, ["clicked"]),
    ("SpamComplaint", {"Type": "SpamComplaint"}, ["complained"]),
    ("Bounce", {"Type": "HardBounce", "Details": "550 no such user"}, ["invalid"]),
    ("Bounce", {"Type": "BadEmailAddress"}, ["invalid"]),
    ("Bounce", {"Type": "SoftBounce"}, ["bounced"]),
    ("Bounce", {"Type": "SpamNotification"}, ["bounced"]),
    ("Bounce", {"Type": "Unsubscribe"}, ["unsubscribed"]),
    ("Bounce", {"Type": "Transient"}, []),
    ("Bounce", {"Type": "AutoResponder"}, []),
    ("Bounce", {"Type": ["HardBounce"]}, ["bounced"]),
    (
        "SubscriptionChange",
        {"SuppressSending": True, "SuppressionReason": "ManualSuppression", "Origin": "Recipient"},
        ["unsubscribed"],
    ),
    ("SubscriptionChange", {"SuppressSending": True, "SuppressionReason": "ManualSuppression", "Origin": "Admin"}, []),
    ("SubscriptionChange", {"SuppressSending": True, "SuppressionReason": "HardBounce", "Origin": "Recipient"}, []),
    ("SubscriptionChange", {"SuppressSending": False, "SuppressionReason": None, "Origin": "Recipient"}, []),
    ("Invented", {}, []),
]


async def test_an_event_becomes_a_receipt(provider: PostmarkProvider, subtests: pytest.Subtests) -> None:
    for kind, more, expected in EVENTS:
        with subtests.test(kind=kind, more=more):
            receipts = Postmark().webhook(provider.event(kind, NAME, **more), provider.account)
            assert [(each.provider_id, each.outcome, each.id) for each in receipts] == [
                (NAME, outcome, f"{NAME}.{outcome}") for outcome in expected
            ]
    assert Postmark().webhook(provider.event("Delivery", "\0"), provider.account) == []


async def test_a_callback_without_the_password_is_rejected(
    provider: PostmarkProvider, subtests: pytest.Subtests
) -> None:
    good = provider.event("Delivery", NAME)
    basic = good.headers["authorization"]
    for headers in (
        {},
        {"authorization": ""},
        {"authorization": basic[:-4]},
        {"authorization": basic.replace("Basic", "Bearer")},
        {"authorization": "Basic é\ud800"},
        {"authorization": "Basic"},
    ):
        with subtests.test(headers=headers), pytest.raises(RejectedCallback):
            Postmark().webhook(msgspec.structs.replace(good, headers=headers), provider.account)
    with pytest.raises(RejectedCallback, match="webhook_password"):
        Postmark().webhook(good, {**provider.account, "webhook_password": ""})


async def test_a_hostile_body_is_rejected_or_has_no_receipts(
    provider: PostmarkProvider, subtests: pytest.Subtests
) -> None:
    check_hostile_bodies(subtests, lambda body: Postmark().webhook(provider.authorized(body), provider.account))
