"""Every channel passes the conformance tests; and the tests detect channels that break the contract."""

import base64
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import pytest
from aiohttp import web

from sereno.channels.apns import APNs
from sereno.channels.contract import Callback, Channel, Exchange, Message
from sereno.channels.discord import Discord
from sereno.channels.email import Email
from sereno.channels.expo import Expo
from sereno.channels.fcm import FCM
from sereno.channels.http import HTTPResponse, call, refused
from sereno.channels.outcome import Delivered, Down, Invalid, Outcome, Receipt, Retryable, Sent, Unknown
from sereno.channels.slack import Slack
from sereno.channels.teams import Teams
from sereno.channels.telegram import Telegram
from sereno.channels.twilio import Twilio
from sereno.channels.web_push import WebPush
from sereno.channels.webhook import Webhook
from sereno.channels.whatsapp import WhatsApp
from sereno.errors import InvalidAddress
from sereno.testing.apns import APNsProvider
from sereno.testing.channel_exam import ChannelExam, Subject
from sereno.testing.chats import DiscordProvider, SlackProvider, TeamsProvider, TelegramProvider
from sereno.testing.expo import ExpoProvider
from sereno.testing.fcm import FCMProvider
from sereno.testing.provider import Fault, Provider, Request
from sereno.testing.push_service import PushService
from sereno.testing.smtp import CLOSE, SILENCE, MailServer, Step
from sereno.testing.twilio import TwilioProvider
from sereno.testing.webhook import WebhookReceiver
from sereno.testing.whatsapp import WhatsAppProvider


def messages(address: str | Callable[[int], str], **more: Any) -> Callable[[int], list[Message]]:
    """Return a function that makes different messages, to one address or to one each."""

    def make(count: int) -> list[Message]:
        return [
            Message(
                delivery=number,
                key=f"delivery-{number}-of-many",
                address=address if isinstance(address, str) else address(number),
                **{"title": "Pedido", "body": f"Chegou {number}", "event": "order.done"} | more,
            )
            for number in range(1, count + 1)
        ]

    return make


class PagerService(Provider):
    """Accepts many pages per request, with a result for each."""

    async def answer(self, request: Request) -> web.StreamResponse:
        return web.json_response([{"id": f"page-{page['key']}"} for page in request.json()])


class Pager(Channel):
    """A channel as in the documentation."""

    name = "pager"
    batch = 5

    def check_address(self, address: str) -> str:
        if not address.isalnum():
            raise InvalidAddress("a pager has letters and digits")
        return address

    async def send(self, batch: Sequence[Message], exchange: Exchange) -> Sequence[Outcome]:
        good = [message for message in batch if message.address.isalnum()]
        outcomes = dict(zip((message.key for message in good), await self.post(good, exchange), strict=True))
        return [outcomes.get(message.key, Invalid("bad_address")) for message in batch]

    async def post(self, batch: Sequence[Message], exchange: Exchange) -> Sequence[Outcome]:
        if not batch:
            return []
        pages = [{"to": message.address, "text": message.body, "key": self.key(message)} for message in batch]
        headers = {"Authorization": f"Bearer {exchange.account['token']}"}
        response = await call(exchange, "POST", exchange.account["url"], json=pages, headers=headers)
        if not isinstance(response, HTTPResponse):
            return [response] * len(batch)
        if (refusal := refused(response)) is not None:
            return [refusal] * len(batch)
        return self.read(response, batch)

    def key(self, message: Message) -> str:
        return message.key

    def read(self, response: HTTPResponse, batch: Sequence[Message]) -> Sequence[Outcome]:
        content = response.json()
        if not isinstance(content, list) or len(content) != len(batch):
            return [Unknown("invalid_response")] * len(batch)
        return [Sent(each["id"]) for each in content]


class PagerExam(ChannelExam):
    channel: type[Channel] = Pager

    @asynccontextmanager
    async def setup(self) -> AsyncIterator[Subject]:
        async with PagerService() as provider, Exchange({"token": "canary-7d1f", "url": provider.url}) as exchange:
            yield Subject(self.channel(), provider, exchange, messages("alice7"))


class TestPager(PagerExam):
    pass


class TestWebPush(ChannelExam):
    @asynccontextmanager
    async def setup(self) -> AsyncIterator[Subject]:
        key = base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()
        account = {"vapid_private_key": key, "subject": "mailto:ops@example.org"}
        async with PushService() as service, Exchange(account, private=True) as exchange:
            browser = service.subscribe()
            yield Subject(WebPush(), service, exchange, messages(browser.address, keys=browser.keys))

    def keys_sent(self, subject: Subject, batch: Sequence[Message]) -> Sequence[str]:
        """Only the browser can read them."""
        assert isinstance(subject.provider, PushService)
        assert batch
        return [received.json()["id"] for received in subject.provider.received]


class TestExpo(ChannelExam):
    @asynccontextmanager
    async def setup(self) -> AsyncIterator[Subject]:
        async with ExpoProvider(access_token="canary-9d41") as provider:  # noqa: S106 - a canary
            account = {"url": provider.url, "access_token": "canary-9d41"}
            async with Exchange(account) as exchange:
                addresses = messages(lambda number: f"ExponentPushToken[phone{number}]")
                yield Subject(Expo(), provider, exchange, addresses)


class TestFCM(ChannelExam):
    @asynccontextmanager
    async def setup(self) -> AsyncIterator[Subject]:
        async with FCMProvider() as provider, Exchange(provider.account) as exchange:
            yield Subject(FCM(), provider, exchange, messages("dPn8k:APA91bH-phone"))


class TestAPNs(ChannelExam):
    @asynccontextmanager
    async def setup(self) -> AsyncIterator[Subject]:
        async with APNsProvider() as provider, Exchange(provider.account) as exchange:
            yield Subject(APNs(), provider, exchange, messages("0a1b2c3d" * 8))


class TestWebhook(ChannelExam):
    # A refusal of a receiver may be temporary; and the status is its whole response.
    denied = (Retryable,)
    status_is_enough = True

    @asynccontextmanager
    async def setup(self) -> AsyncIterator[Subject]:
        secret = f"whsec_{base64.b64encode(secrets.token_bytes(32)).decode()}"
        async with WebhookReceiver([secret]) as receiver, Exchange(private=True) as exchange:
            made = messages(f"{receiver.url}/hook", keys={"secrets": [secret]}, data={"order": 1})
            yield Subject(Webhook(private=True), receiver, exchange, made, secrets=[secret])


class TestTwilio(ChannelExam):
    @asynccontextmanager
    async def setup(self) -> AsyncIterator[Subject]:
        async with TwilioProvider() as provider, Exchange(provider.account) as exchange:
            yield Subject(Twilio(), provider, exchange, messages("+5511987654321"))


class TestWhatsApp(ChannelExam):
    @asynccontextmanager
    async def setup(self) -> AsyncIterator[Subject]:
        async with WhatsAppProvider() as provider, Exchange(provider.account) as exchange:
            yield Subject(WhatsApp(), provider, exchange, messages("+5511987654321"))


class TestDiscord(ChannelExam):
    denied = (Down, Invalid)

    @asynccontextmanager
    async def setup(self) -> AsyncIterator[Subject]:
        async with DiscordProvider() as provider, Exchange({"url": provider.url}) as exchange:
            channel = Discord(url=provider.url)
            yield Subject(channel, provider, exchange, messages(provider.address), secrets=[provider.token])


class TestSlackByBot(ChannelExam):
    @asynccontextmanager
    async def setup(self) -> AsyncIterator[Subject]:
        async with SlackProvider() as provider, Exchange(provider.account) as exchange:
            yield Subject(Slack(), provider, exchange, messages("C0123456789"))


class TestSlackByWebhook(ChannelExam):
    denied = (Down, Invalid)

    @asynccontextmanager
    async def setup(self) -> AsyncIterator[Subject]:
        async with SlackProvider() as provider, Exchange({"url": provider.url}) as exchange:
            channel = Slack(url=provider.url)
            yield Subject(channel, provider, exchange, messages(provider.address), secrets=[provider.hook])


class TestTeams(ChannelExam):
    # A workflow may respond with any status, and the refusal of one must not stop the others.
    denied = (Retryable,)

    @asynccontextmanager
    async def setup(self) -> AsyncIterator[Subject]:
        async with TeamsProvider() as provider, Exchange({"url": provider.url}) as exchange:
            channel = Teams(url=provider.url)
            yield Subject(channel, provider, exchange, messages(provider.address), secrets=[provider.signature])


class TestTelegram(ChannelExam):
    @asynccontextmanager
    async def setup(self) -> AsyncIterator[Subject]:
        async with TelegramProvider() as provider, Exchange(provider.account) as exchange:
            yield Subject(Telegram(), provider, exchange, messages("-1001234567890"))


class FaultyMailServer(MailServer):
    """A mail server with the faults of a provider."""

    SMTP_FAULTS: Mapping[Any, tuple[Step, str]] = {
        "silence": ("END", SILENCE),
        "close": ("END", CLOSE),
        "broken": ("MAIL", "451 4.3.0 try later"),
        "denied": ("MAIL", "530 5.7.0 who are you"),
    }

    @property
    def log(self) -> list[Any]:
        return self.mails

    @property
    def fault(self) -> Any:
        return None

    @fault.setter
    def fault(self, fault: Any) -> None:
        self.forget()
        if fault is not None:
            self.say(*self.SMTP_FAULTS[fault])


class TestEmail(ChannelExam):
    # SMTP has neither HTML pages nor half responses, and no way to request a wait.
    faults: ClassVar[Sequence[Fault]] = ("silence", "close", "broken", "denied")

    @asynccontextmanager
    async def setup(self) -> AsyncIterator[Subject]:
        async with FaultyMailServer() as server:
            account = {"host": server.host, "port": server.port, "sender": "ops@example.org", "tls": "none"}
            async with Exchange(account) as exchange:
                yield Subject(Email(), server, exchange, messages("alice@example.org"))


class DropsAnOutcome(Pager):
    async def send(self, batch: Sequence[Message], exchange: Exchange) -> Sequence[Outcome]:
        return list(await super().send(batch, exchange))[1:]


class AlwaysDelivered(Pager):
    def read(self, response: HTTPResponse, batch: Sequence[Message]) -> Sequence[Outcome]:  # noqa: ARG002 - it ignores the response
        return [Delivered()] * len(batch)


class RevealsToken(Pager):
    async def post(self, batch: Sequence[Message], exchange: Exchange) -> Sequence[Outcome]:
        outcomes = await super().post(batch, exchange)
        text = f"with {exchange.account['token']}"
        return [Retryable(each.code, text) if isinstance(each, Retryable) else each for each in outcomes]


class IgnoresDelay(Pager):
    async def post(self, batch: Sequence[Message], exchange: Exchange) -> Sequence[Outcome]:
        outcomes = await super().post(batch, exchange)
        return [Retryable(each.code, after=1) if isinstance(each, Retryable) else each for each in outcomes]


class NewKeyPerAttempt(Pager):
    def key(self, message: Message) -> str:
        return f"{message.key}{'' if message.attempt == 1 else 'again'}"


class AcceptsAnyCallback(Pager):
    def webhook(self, callback: Callback, account: Mapping[str, Any]) -> Sequence[Receipt]:  # noqa: ARG002 - it believes
        return ()


class AcceptsAnyAddress(Pager):
    def check_address(self, address: str) -> str:
        return address


class WrongOrder(Pager):
    async def send(self, batch: Sequence[Message], exchange: Exchange) -> Sequence[Outcome]:
        outcomes = list(await super().send(batch, exchange))
        return outcomes[-1:] + outcomes[:-1]


class RaisesErrors(Pager):
    async def post(self, batch: Sequence[Message], exchange: Exchange) -> Sequence[Outcome]:
        outcomes = await super().post(batch, exchange)
        if any(isinstance(each, Unknown) for each in outcomes):
            raise ConnectionError
        return outcomes


class NewKeyPerAttemptExam(PagerExam):
    channel = NewKeyPerAttempt

    def keys_sent(self, subject: Subject, batch: Sequence[Message]) -> Sequence[str]:
        assert batch
        return [page["key"] for request in subject.provider.log for page in request.json()]


def exam_of(channel: type[Channel]) -> PagerExam:
    exam = PagerExam()
    exam.channel = channel
    return exam


BREACHES: list[tuple[type[Channel], Callable[[PagerExam], None]]] = [
    (DropsAnOutcome, lambda exam: exam.test_a_message_is_sent()),
    (DropsAnOutcome, lambda exam: exam.test_a_full_batch_is_sent()),
    (AlwaysDelivered, lambda exam: exam.test_an_invalid_response_is_never_a_success("html")),
    (RevealsToken, lambda exam: exam.test_a_broken_provider_is_tried_again()),
    (RevealsToken, lambda exam: exam.test_an_unreachable_provider_is_tried_again()),
    (IgnoresDelay, lambda exam: exam.test_a_busy_provider_is_tried_again_after_its_delay()),
    (AcceptsAnyCallback, lambda exam: exam.test_an_unauthenticated_callback_is_rejected()),
    (AcceptsAnyAddress, lambda exam: exam.test_valid_addresses_are_accepted_and_broken_ones_refused()),
    (WrongOrder, lambda exam: exam.test_outcomes_are_in_order_and_an_invalid_message_affects_no_other()),
    (RaisesErrors, lambda exam: exam.test_an_invalid_response_is_never_a_success("close")),
]


def test_a_channel_that_breaks_the_contract_fails(subtests: pytest.Subtests) -> None:
    for channel, exam_test in BREACHES:
        with (
            subtests.test(channel=channel.__name__),
            pytest.raises((AssertionError, ConnectionError, pytest.fail.Exception)),
        ):
            exam_test(exam_of(channel))


def test_a_channel_with_a_new_key_per_attempt_fails() -> None:
    with pytest.raises(AssertionError, match="has another key"):
        NewKeyPerAttemptExam().test_every_attempt_of_a_message_has_the_same_key()
