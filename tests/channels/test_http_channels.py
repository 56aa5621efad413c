"""Behaviour of channels that call a provider by HTTP, above all of those that send one message per request."""

import asyncio
import base64
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from aiohttp import web

from sereno.channels.contract import Channel, Exchange, Message
from sereno.channels.discord import Discord
from sereno.channels.expo import Expo
from sereno.channels.outcome import Delivered, Down, Failed, Invalid, Outcome, Retryable, Sent, Unknown
from sereno.channels.single_message import (
    AT_ONCE,
    HIDDEN,
    SingleMessageChannel,
    cut,
    length,
    one_by_one,
    phone_number,
    without_secrets,
)
from sereno.channels.slack import Slack
from sereno.channels.telegram import Telegram
from sereno.channels.twilio import Twilio
from sereno.channels.whatsapp import WhatsApp
from sereno.errors import ConfigurationError, InvalidAddress
from sereno.testing.provider import RETRY_AFTER, Fault, Provider, Request

PHONE = "+5511987654321"
SECRETS = {
    "sms": "a0b1c2d3e4f5a6b7c8d9",
    "whatsapp": "EAAJZA0b1c2d3e4f5",
    "discord": "dWV-b1c2d3e4f5_a6b7",
    "slack": "xoxb-1234567890-abcdef",
    "slack hook": "XyZ1234567890abcdef",
    "telegram": "AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw",
    "expo": "canary-9d41-access-token",
}
SINGLE_MESSAGE = [name for name in SECRETS if name != "expo"]


class FixedResponse(Provider):
    """Returns one response to every request; with `echoes` it returns the request, including secrets."""

    def __init__(self) -> None:
        super().__init__()
        self.status = 200
        self.body = b""
        self.echoes = False

    async def answer(self, request: Request) -> web.StreamResponse:
        request_text = f"{request.path} {request.headers.get('authorization')} {request.body!r}".encode()
        return web.Response(status=self.status, body=request_text if self.echoes else self.body)


class Case(msgspec.Struct):
    """A channel, the account that it sends with, and an address."""

    channel: Channel
    account: dict[str, str]
    address: str
    secret: str

    def message(self, **changed: Any) -> Message:
        return Message(**{"delivery": 1, "key": "k1", "address": self.address, "body": "Good morning", **changed})

    async def send(self, *messages: Message, timeout: float = 5.0) -> Sequence[Outcome]:
        async with Exchange(self.account, timeout=timeout) as exchange:
            return await self.channel.send(messages or [self.message()], exchange)


def case_of(name: str, url: str) -> Case:
    secret = SECRETS[name]
    match name:
        case "sms":
            account = {"url": url, "account_sid": "AC01", "auth_token": secret, "from_number": "+15005550006"}
            return Case(Twilio(), account, PHONE, secret)
        case "whatsapp":
            return Case(WhatsApp(), {"url": url, "phone_number_id": "1065", "access_token": secret}, PHONE, secret)
        case "discord":
            return Case(Discord(), {"url": url}, f"{url}/api/webhooks/10888/{secret}", secret)
        case "slack":
            return Case(Slack(), {"url": url, "bot_token": secret}, "C0123456789", secret)
        case "slack hook":
            return Case(Slack(), {"url": url}, f"{url}/services/T00000000/B00000000/{secret}", secret)
        case "expo":
            return Case(Expo(), {"url": url, "access_token": secret}, "ExponentPushToken[phone]", secret)
        case _:
            return Case(Telegram(), {"url": url, "bot_token": f"110201543:{secret}"}, "-1001234567890", secret)


@pytest.fixture
async def provider() -> AsyncIterator[FixedResponse]:
    async with FixedResponse() as provider:
        yield provider


@asynccontextmanager
async def case_and_provider(name: str) -> AsyncIterator[tuple[Case, FixedResponse]]:
    async with FixedResponse() as provider:
        yield case_of(name, provider.url), provider


FAULTS: dict[Fault, type[Outcome]] = {
    **dict.fromkeys(("html", "half", "silence", "close"), Unknown),
    **dict.fromkeys(("busy", "broken"), Retryable),
    "denied": Down,
}


async def outcome_of_fault(name: str, fault: Fault) -> tuple[Outcome, int]:
    """Return the outcome of a message, and the number of requests."""
    async with case_and_provider(name) as (case, provider):
        provider.fault = fault
        (outcome,) = await case.send(timeout=1.0 if fault == "silence" else 20.0)
        return outcome, len(provider.log)


@pytest.mark.slow
async def test_faults_of_a_provider_are_outcomes(subtests: pytest.Subtests) -> None:
    for fault, kind in FAULTS.items():
        # At once, because each of them waits as long as a silent provider.
        found = await asyncio.gather(*(outcome_of_fault(name, fault) for name in SECRETS))
        for name, (outcome, requests) in zip(SECRETS, found, strict=True):
            with subtests.test(name=name, fault=fault):
                assert type(outcome) is kind
                assert requests == 1, "the channel does not retry by itself"
                if isinstance(outcome, Retryable):
                    assert outcome.after == (RETRY_AFTER if fault == "busy" else None)


async def test_an_unreachable_provider_is_retried(subtests: pytest.Subtests) -> None:
    for name in SECRETS:
        with subtests.test(name=name):
            async with case_and_provider(name) as (case, provider):
                await provider.__aexit__(None, None, None)
                (outcome,) = await case.send()
                assert isinstance(outcome, Retryable)


async def test_a_server_error_is_unknown_where_messages_cost_money(subtests: pytest.Subtests) -> None:
    for name in SINGLE_MESSAGE:
        async with case_and_provider(name) as (case, provider):
            for status in (500, 502, 504):
                with subtests.test(name=name, status=status):
                    provider.status, provider.body = status, b"bad gateway"
                    (outcome,) = await case.send()
                    assert type(outcome) is (Unknown if case.channel.on_unknown == "park" else Retryable)


ODD_BODIES = [
    b"",
    b"[]",
    b"null",
    b'"ok"',
    b"{",
    b"[" * 100_000,
    b'{"sid": 5, "messages": [3, {"id": ["x"]}], "id": "", "ok": "yes"}',
    b'{"sid": "a\\u0000b", "messages": {}, "id": "a b", "error": []}',
    b'{"code": ["x"], "error": {"code": {}}, "ok": false, "message": 4}',
    b"\xff\xfe\x00",
]


@pytest.mark.slow
async def test_an_invalid_success_is_unknown(subtests: pytest.Subtests) -> None:
    for name in SINGLE_MESSAGE:
        async with case_and_provider(name) as (case, provider):
            for body in ODD_BODIES:
                with subtests.test(name=name, body=body[:80]):
                    provider.body = body
                    (outcome,) = await case.send()
                    assert isinstance(outcome, Unknown)
                    assert "\0" not in outcome.message


@pytest.mark.slow
async def test_an_invalid_refusal_deactivates_no_address(subtests: pytest.Subtests) -> None:
    for name in SINGLE_MESSAGE:
        async with case_and_provider(name) as (case, provider):
            provider.status = 404
            for body in ODD_BODIES:
                with subtests.test(name=name, body=body[:80]):
                    provider.body = body
                    (outcome,) = await case.send()
                    assert isinstance(outcome, Failed | Down | Unknown)


async def test_a_bot_unknown_to_telegram_stops_the_channel(provider: FixedResponse) -> None:
    provider.status, provider.body = 404, b"<html>not here</html>"
    assert await case_of("telegram", provider.url).send() == [Down("http_404", "<html>not here</html>")]


async def test_a_redirect_is_not_followed(subtests: pytest.Subtests) -> None:
    for name in SINGLE_MESSAGE:
        with subtests.test(name=name):
            async with case_and_provider(name) as (case, provider):
                provider.status = 302
                assert await case.send() == [Failed("http_302")]
                assert len(provider.log) == 1


@pytest.mark.slow
async def test_no_outcome_contains_a_secret(caplog: pytest.LogCaptureFixture, subtests: pytest.Subtests) -> None:
    caplog.set_level(logging.DEBUG)
    for name in SINGLE_MESSAGE:
        async with case_and_provider(name) as (case, provider):
            provider.echoes = True
            for status in (200, 302, 400, 401, 403, 404, 429, 500, 503):
                with subtests.test(name=name, status=status):
                    caplog.clear()
                    provider.status = status
                    (outcome,) = await case.send()
                    assert HIDDEN in repr(outcome) or getattr(outcome, "message", None) == "", (
                        "the provider must have echoed the secret, or the test proves nothing"
                    )
                    assert case.secret not in repr(outcome)
                    assert base64.b64encode(f"AC01:{case.secret}".encode()).decode() not in repr(outcome)
                    assert isinstance(case.channel, SingleMessageChannel)
                    assert case.secret not in repr(case.channel) + repr(case.channel.settings(case.account))
                    ours = [record.getMessage() for record in caplog.records if record.name != "aiohttp.access"]
                    assert case.secret not in "".join(ours)


async def test_a_response_that_is_not_http_reveals_no_secret(subtests: pytest.Subtests) -> None:
    for name in SECRETS:
        with subtests.test(name=name):

            async def echo_line(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                first = await reader.readline()
                writer.write(b"received " + first + b"\r\n\r\n")
                await writer.drain()
                writer.close()

            async with await asyncio.start_server(echo_line, "127.0.0.1", 0) as server:
                host, port = server.sockets[0].getsockname()
                case = case_of(name, f"http://{host}:{port}")
                (outcome,) = await case.send()
            assert isinstance(outcome, Unknown)
            assert case.secret not in repr(outcome)


async def test_an_invalid_message_does_not_affect_the_others(subtests: pytest.Subtests) -> None:
    for name in SINGLE_MESSAGE:
        with subtests.test(name=name):
            async with case_and_provider(name) as (case, provider):
                provider.status, provider.body = 503, b"later"
                outcomes = await case.send(
                    case.message(),
                    case.message(address="javascript:alert(1)"),
                    case.message(body="half a pair: \ud800"),
                    case.message(body=" \n"),
                    case.message(),
                )
                assert [type(outcome) for outcome in outcomes] == [Retryable, Invalid, Failed, Failed, Retryable]
                codes = [outcome.code for outcome in outcomes[2:4] if isinstance(outcome, Failed)]
                assert codes == ["malformed", "empty"]
                assert len(provider.log) == 2


async def test_invalid_settings_stop_the_channel(subtests: pytest.Subtests) -> None:
    for name in SINGLE_MESSAGE:
        async with case_and_provider(name) as (case, provider):
            for wrong in ({"url": "ftp://nowhere"}, {"url": 5}, {"url": "http://a b"}):
                with subtests.test(name=name, wrong=wrong):
                    case.account |= wrong  # type: ignore[arg-type] # accounts are written by hand
                    (outcome,) = await case.send()
                    assert getattr(outcome, "code", None) == "bad_settings"
                    assert provider.log == []


async def test_without_credentials_nothing_is_sent(provider: FixedResponse, subtests: pytest.Subtests) -> None:
    for name in ["sms", "whatsapp", "telegram"]:
        with subtests.test(name=name):
            case = case_of(name, provider.url)
            case.account = {"url": provider.url}
            (outcome,) = await case.send()
            assert getattr(outcome, "code", None) == "no_settings"
            assert provider.log == []


INVALID_CREDENTIALS: list[dict[str, Any]] = [
    {"auth_token": "a\r\nX-Evil: 1"},
    {"account_sid": "../../x"},
    {"account_sid": "a?b"},
    {"auth_token": 7},
]


async def test_credentials_cannot_change_the_request(provider: FixedResponse, subtests: pytest.Subtests) -> None:
    for wrong in INVALID_CREDENTIALS:
        with subtests.test(wrong=wrong):
            case = case_of("sms", provider.url)
            case.account |= wrong
            (outcome,) = await case.send()
            assert isinstance(outcome, Down)
            assert str(next(iter(wrong.values()))) not in repr(outcome)
            assert provider.log == []


def test_a_setting_that_a_channel_does_not_know_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="auth_tokn"):
        Twilio(auth_tokn="x")
    with pytest.raises(ConfigurationError, match="url"):
        Telegram(url="nowhere")


def test_the_account_wins_over_the_constructor() -> None:
    channel = WhatsApp(version="v1", url="https://one.example")
    settings = channel.settings({"version": "v2", "url": None, "colour": "blue"})
    assert (settings.version, settings.url) == ("v2", "https://one.example")


async def test_a_batch_is_sent_concurrently_with_outcomes_in_order() -> None:
    inside: list[int] = []
    full, release = asyncio.Event(), asyncio.Event()

    async def send(message: Message) -> Outcome:
        inside.append(message.delivery)
        if len(inside) == AT_ONCE:
            full.set()
        await release.wait()
        if message.delivery == 3:
            raise ZeroDivisionError("the token is abcdef")
        return Sent(str(message.delivery))

    batch = [Message(delivery=number, key="k", address="a") for number in range(3 * AT_ONCE)]
    sending = asyncio.create_task(one_by_one(batch, send))
    await full.wait()
    assert len(inside) == AT_ONCE, "the others wait for a free slot"
    release.set()
    expected: list[Outcome] = [Sent(str(number)) for number in range(3 * AT_ONCE)]
    expected[3] = Unknown("error", "internal error of the channel: ZeroDivisionError")
    assert await sending == expected


def test_a_truncated_secret_is_hidden() -> None:
    outcome = Failed("token-123456", "before token-123456, after, and then token-12")
    hidden = without_secrets(outcome, ["token-123456", "tok"])
    assert hidden == Failed(HIDDEN, f"before {HIDDEN}, after, and then {HIDDEN}")
    assert without_secrets(Delivered("token-123456"), ["token-123456"]) == Delivered("token-123456")


def test_a_long_text_is_truncated_between_characters() -> None:
    assert cut("four", 4) == "four"
    assert cut("fiver", 4) == "fiv…"
    assert cut("ab😀😀", 5) == "ab😀…"
    assert length("a😀") == 3


def test_phone_numbers_are_normalised(subtests: pytest.Subtests) -> None:
    for written in ["+5511987654321", " +55 (11) 98765-4321 ", "+55.11.98765.4321"]:
        with subtests.test(written=written):
            assert phone_number(written) == "+5511987654321"


def test_invalid_phone_numbers_are_refused(subtests: pytest.Subtests) -> None:
    for written in ["", "11987654321", "+0119876543", "+55119876543210000", "+55x1", "+٥٥١١٩٨٧٦٥", "\n+1"]:
        with subtests.test(written=written), pytest.raises(InvalidAddress):
            phone_number(written)
