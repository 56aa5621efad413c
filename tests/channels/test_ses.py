"""Email by Amazon SES: what is sent, what each error means, and events that SNS has signed."""

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from sereno.channels.contract import Callback, Exchange, Message
from sereno.channels.email_provider import QUOTA_WAIT
from sereno.channels.outcome import Down, Failed, Outcome, Receipt, Retryable, Sent
from sereno.channels.ses import SES
from sereno.channels.sns import OLDEST_MESSAGE, server_of
from sereno.errors import RejectedCallback
from sereno.testing.ses import SESProvider
from tests.channels.hostile_callbacks import HOSTILE_BODIES

ADA = "ada@example.com"
NAME = "EXAMPLE7c191be45-e9aedb9a-02f9-4d12-a87d-dd0099a07f8a-000000"


@pytest.fixture
async def provider() -> AsyncIterator[SESProvider]:
    async with SESProvider() as provider:
        yield provider


@pytest.fixture
def channel(provider: SESProvider) -> SES:
    return SES(sns_url=provider.url)


async def send(provider: SESProvider, *, account: dict[str, str] | None = None, **changed: Any) -> Outcome:
    message = Message(**{"delivery": 1, "key": "k1", "address": ADA, "title": "Oi", "body": "Olá", **changed})
    async with Exchange({**provider.account, **(account or {})}) as exchange:
        (outcome,) = await SES().send([message], exchange)
    return outcome


async def receive(channel: SES, provider: SESProvider, callback: Callback, **account: str) -> Sequence[Receipt]:
    async with Exchange({**provider.account, **account}) as exchange:
        return await channel.read_callback(callback, exchange)


async def test_an_accepted_email_is_sent_with_its_id(provider: SESProvider) -> None:
    url = "https://notify.example.org/unsubscribe/token"
    options = {"headers": {"X-Order": "1"}, "reply_to": "h@example.org"}
    outcome = await send(
        provider,
        html=f"<p>Olá {url}</p>",
        unsubscribe_url=url,
        options=options,
        account={"configuration_set": "events", "session_token": "of/a/role+=="},
    )
    ((name, email),) = provider.sent.items()
    assert outcome == Sent(name)
    headers = email["Content"]["Simple"].pop("Headers")
    assert {header["Name"]: header["Value"] for header in headers} == {
        "Auto-Submitted": "auto-generated",
        "X-Entity-Ref-ID": "k1",
        "List-Unsubscribe": f"<{url}>",
        "List-Unsubscribe-Post": "List-Unsubscribe=One-Click",
        "X-Order": "1",
    }
    text, html = f"Olá\n\n-- \nUnsubscribe: {url}\n", f"<p>Olá {url}</p>"
    texts = {"Text": {"Data": text, "Charset": "UTF-8"}, "Html": {"Data": html, "Charset": "UTF-8"}}
    assert email == {
        "FromEmailAddress": '"Shop" <shop@example.org>',
        "Destination": {"ToAddresses": [ADA]},
        "ReplyToAddresses": ["h@example.org"],
        "Content": {"Simple": {"Subject": {"Data": "Oi", "Charset": "UTF-8"}, "Body": texts}},
        "ConfigurationSetName": "events",
    }


async def test_each_error_has_an_outcome(provider: SESProvider, subtests: pytest.Subtests) -> None:
    expected: dict[str, type[Outcome]] = {
        "TooManyRequestsException": Retryable,
        "LimitExceededException": Retryable,
        "MessageRejected": Failed,
        "MessageRejected: Email address is not verified: ada@example.com": Failed,
        "MessageRejected: Email address is not verified: shop@example.org": Down,
        "BadRequestException": Failed,
        "AccountSuspendedException": Down,
        "SendingPausedException": Down,
        "MailFromDomainNotVerifiedException": Down,
        "NotFoundException": Down,
        "InventedException": Failed,
    }
    for name, kind in expected.items():
        with subtests.test(name=name):
            provider.refuses[ADA] = name
            assert type(await send(provider)) is kind
    provider.refuses[ADA] = "TooManyRequestsException: Daily message quota exceeded."
    outcome = await send(provider)
    assert isinstance(outcome, Retryable)
    assert outcome.after == QUOTA_WAIT


async def test_refused_credentials_stop_the_channel(provider: SESProvider, subtests: pytest.Subtests) -> None:
    for name, value in {"secret_access_key": "wrong-secret", "region": "us-east-1", "access_key_id": ""}.items():
        with subtests.test(setting=name):
            outcome = await send(provider, account={name: value})
            assert isinstance(outcome, Down)
            assert "wrong-secret" not in repr(outcome)


def test_servers_are_those_of_the_region(subtests: pytest.Subtests) -> None:
    topics = {
        "arn:aws:sns:eu-west-1:123456789012:mail": "https://sns.eu-west-1.amazonaws.com",
        "arn:aws-us-gov:sns:us-gov-west-1:123456789012:mail.fifo": "https://sns.us-gov-west-1.amazonaws.com",
        "arn:aws-cn:sns:cn-north-1:123456789012:mail": "https://sns.cn-north-1.amazonaws.com.cn",
    }
    for topic, server in topics.items():
        with subtests.test(topic=topic):
            assert server_of(topic) == server
    for broken in ("", "mail", "arn:aws:sns:evil.example/x:123456789012:mail", "arn:aws:sqs:eu-west-1:123456789012:m"):
        with subtests.test(topic=broken), pytest.raises(RejectedCallback):
            server_of(broken)


BOUNCED = [{"emailAddress": ADA, "status": "5.1.1", "diagnosticCode": "smtp; 550 5.1.1 user unknown"}]
EVENTS: list[tuple[str, dict[str, Any], list[str]]] = [
    ("Delivery", {"delivery": {}}, ["delivered"]),
    ("Open", {"open": {}}, ["read"]),
    ("Click", {"click": {"link": "https://example.org"}}, ["clicked"]),
    ("Reject", {"reject": {"reason": "Bad content"}}, ["failed"]),
    ("Rendering Failure", {"failure": {}}, ["failed"]),
    ("Bounce", {"bounce": {"bounceType": "Permanent", "bouncedRecipients": BOUNCED}}, ["invalid"]),
    ("Bounce", {"bounce": {"bounceType": "Transient", "bounceSubType": "MailboxFull"}}, ["bounced"]),
    ("Bounce", {"bounce": {"bounceType": "Undetermined", "bouncedRecipients": [None]}}, ["bounced"]),
    ("Complaint", {"complaint": {"complaintFeedbackType": "abuse"}}, ["complained"]),
    ("Complaint", {"complaint": {"complaintSubType": "OnAccountSuppressionList"}}, ["failed", "complained"]),
    ("Subscription", {"subscription": {"newTopicPreferences": {"unsubscribeAll": True}}}, ["unsubscribed"]),
    ("Subscription", {"subscription": {"newTopicPreferences": {"unsubscribeAll": False}}}, []),
    ("DeliveryDelay", {}, []),
    ("Send", {}, []),
    ("Invented", {}, []),
]


async def test_an_event_becomes_receipts(channel: SES, provider: SESProvider, subtests: pytest.Subtests) -> None:
    for kind, more, expected in EVENTS:
        with subtests.test(kind=kind, more=more):
            receipts = await receive(channel, provider, provider.event(kind, NAME, **more))
            assert [(each.provider_id, each.outcome) for each in receipts] == [(NAME, each) for each in expected]
    feedback = msgspec.json.encode({"notificationType": "Delivery", "mail": {"messageId": NAME}}).decode()
    (receipt,) = await receive(channel, provider, provider.notification(feedback, SignatureVersion="1"))
    assert receipt.outcome == "delivered"
    assert [request.method for request in provider.log] == ["GET"], "the certificate is loaded once"


async def test_a_subscription_of_the_topic_is_confirmed(channel: SES, provider: SESProvider) -> None:
    assert not await receive(channel, provider, provider.confirmation("2336412f37"))
    assert provider.confirmed == ["2336412f37"]
    unsubscribed = provider.confirmation("5a1d", Type="UnsubscribeConfirmation")
    assert not await receive(channel, provider, unsubscribed)
    assert provider.confirmed == ["2336412f37"]


async def test_no_server_but_that_of_sns_is_asked(
    channel: SES, provider: SESProvider, subtests: pytest.Subtests
) -> None:
    async with SESProvider() as other:
        hostile = {
            "another server": provider.notification(
                "{}", SigningCertURL=f"{other.url}/SimpleNotificationService-{'a' * 32}.pem"
            ),
            "another path": provider.notification("{}", SigningCertURL=f"{provider.url}/other.pem"),
            "a path above": provider.notification(
                "{}", SigningCertURL=f"{provider.url}/../x/SimpleNotificationService-0.pem"
            ),
            "a longer name": provider.notification("{}", SigningCertURL=f"{provider.url}.evil.example/a.pem"),
            "a user": provider.notification("{}", SigningCertURL=f"{provider.url}@{other.url[7:]}/a.pem"),
            "a metadata server": provider.confirmation(
                "t", SubscribeURL="http://169.254.169.254/?Action=ConfirmSubscription&a"
            ),
            "another action": provider.confirmation("t", SubscribeURL=f"{provider.url}/?Action=Unsubscribe&a=1"),
            "another topic": provider.confirmation("t", TopicArn="arn:aws:sns:eu-west-1:999999999999:mail-events"),
            "no URL": other.confirmation("t", SubscribeURL=""),
        }
        for name, callback in hostile.items():
            with subtests.test(name), pytest.raises(RejectedCallback):
                await receive(channel, provider, callback)
        assert (provider.log, other.log, provider.confirmed) == ([], [], [])


async def test_a_message_that_sns_did_not_sign_is_rejected(
    channel: SES, provider: SESProvider, subtests: pytest.Subtests
) -> None:
    good = provider.event("Delivery", NAME)
    forger = SESProvider()
    forger.url, forger._certificate = provider.url, provider._certificate
    forger._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    old = (datetime.now(UTC) - timedelta(seconds=OLDEST_MESSAGE + 60)).isoformat()
    forged = {
        "another message": good.body.replace(b"Delivery", b"Open"),
        "no base64": good.body.replace(b'"Signature":"', b'"Signature":"*'),
        "another version": good.body.replace(b'"SignatureVersion":"2"', b'"SignatureVersion":"1"'),
        "an unknown version": good.body.replace(b'"SignatureVersion":"2"', b'"SignatureVersion":"3"'),
        "another key": forger.event("Delivery", NAME).body,
        "a confirmation by another": forger.confirmation("t").body,
        "an old one": provider.notification("{}", Timestamp=old).body,
        "one without a time": provider.notification("{}", Timestamp="soon").body,
        "an unknown certificate": provider.notification(
            "{}", SigningCertURL=f"{provider.url}/SimpleNotificationService-{'0' * 32}.pem"
        ).body,
    }
    for name, body in forged.items():
        with subtests.test(name), pytest.raises(RejectedCallback):
            await receive(channel, provider, Callback(body=body, headers={}))
    with pytest.raises(RejectedCallback, match="not loaded"):
        SES(sns_url=provider.url).webhook(good, provider.account)
    with pytest.raises(RejectedCallback, match="topic_arn"):
        await receive(SES(), provider, good, topic_arn="")
    assert provider.confirmed == []


async def test_an_expired_certificate_verifies_nothing(provider: SESProvider) -> None:
    channel = SES(sns_url=provider.url, now=lambda: datetime.now(UTC) + timedelta(days=31))
    with pytest.raises(RejectedCallback, match="certificate"):
        await receive(channel, provider, provider.event("Delivery", NAME))


async def test_an_unreachable_sns_makes_the_provider_post_again(channel: SES, provider: SESProvider) -> None:
    good = provider.event("Delivery", NAME)
    provider.fault = "broken"
    with pytest.raises(ConnectionError):
        await receive(channel, provider, good)
    provider.fault = None
    assert len(await receive(channel, provider, good)) == 1


async def test_a_hostile_body_has_no_receipts(channel: SES, provider: SESProvider, subtests: pytest.Subtests) -> None:
    for body in HOSTILE_BODIES:
        with subtests.test(body=body[:40]):
            with pytest.raises(RejectedCallback):
                await receive(channel, provider, Callback(body=body, headers={}))
            inner = body.decode("utf-8", "replace")
            assert list(await receive(channel, provider, provider.notification(inner))) == []
