"""Telegram through a bot: what is sent, and what each refusal means."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from sereno.channels.contract import Exchange, Message
from sereno.channels.outcome import Delivered, Down, Failed, Invalid, Outcome, Retryable
from sereno.channels.telegram import Telegram
from sereno.errors import InvalidAddress
from sereno.jobs.limits.limit import Rate
from sereno.testing.chats import TelegramProvider


@pytest.fixture
async def provider() -> AsyncIterator[TelegramProvider]:
    async with TelegramProvider() as provider:
        yield provider


async def send(provider: TelegramProvider, *, account: dict[str, str] | None = None, **changed: Any) -> Outcome:
    message = Message(**{"delivery": 1, "key": "k1", "address": "8421", "body": "Good <b>morning</b>", **changed})
    async with Exchange({**provider.account, **(account or {})}) as exchange:
        (outcome,) = await Telegram().send([message], exchange)
    return outcome


async def test_the_provider_id_is_chat_and_message_number(subtests: pytest.Subtests) -> None:
    for address, chat, provider_id in [
        ("8421", 8421, "8421:1"),
        ("-1001234567890", -1001234567890, "-1001234567890:1"),
        ("@news", "@news", None),
    ]:
        with subtests.test(address=address):
            async with TelegramProvider() as provider:
                assert await send(provider, address=address) == Delivered(provider_id or "-1001234567890:1")
                assert provider.sent == [{"chat_id": chat, "text": "Good <b>morning</b>"}]


async def test_markup_is_sent_only_on_request(subtests: pytest.Subtests) -> None:
    for markup, text in [("Good <b>morning</b>", "Good <b>morning</b>"), (None, "Good &lt;b&gt;morning&lt;/b&gt;")]:
        with subtests.test(markup=markup):
            async with TelegramProvider() as provider:
                assert isinstance(
                    await send(provider, title="R&D", html=markup, options={"parse_mode": "html"}),
                    Delivered,
                )
                assert provider.sent == [{"chat_id": 8421, "text": f"R&amp;D\n{text}", "parse_mode": "HTML"}]


async def test_long_text_is_truncated_but_markup_is_not(provider: TelegramProvider) -> None:
    assert isinstance(await send(provider, body="😀" * 3000), Delivered)
    assert len(provider.sent[0]["text"].encode("utf-16-le")) // 2 in (4095, 4096)
    outcome = await send(provider, html="<b>" + "x" * 5000 + "</b>", options={"parse_mode": "html"})
    assert outcome == Failed("http_400", "Bad Request: message is too long")


REFUSALS: list[tuple[int, str, type[Outcome]]] = [
    (403, "Forbidden: bot was blocked by the user", Invalid),
    (403, "Forbidden: bot was kicked from the supergroup chat", Invalid),
    (403, "Forbidden: user is deactivated", Invalid),
    (400, "Bad Request: chat not found", Invalid),
    (400, "Bad Request: PEER_ID_INVALID", Invalid),
    (400, "Bad Request: message text is empty", Failed),
    (400, "Bad Request: can't parse entities: unexpected end tag", Failed),
    (401, "Unauthorized", Down),
    (404, "Not Found", Down),
    (429, "Too Many Requests: retry after 14", Retryable),
    (500, "Internal Server Error", Retryable),
    (502, "Bad Gateway", Retryable),
]


async def test_each_refusal_has_an_outcome(provider: TelegramProvider, subtests: pytest.Subtests) -> None:
    for status, description, kind in REFUSALS:
        with subtests.test(status=status, description=description):
            provider.refuses = (status, description)
            outcome = await send(provider)
            assert type(outcome) is kind
            assert getattr(outcome, "code", None) == f"http_{status}"
            assert description in getattr(outcome, "message", "")


async def test_throttled_messages_wait_as_long_as_telegram_requires(
    provider: TelegramProvider, subtests: pytest.Subtests
) -> None:
    for given, after in [(14, 14.0), (0.5, 0.5), (10**30, 86400.0), (-3, None), ("soon", None), (True, None)]:
        with subtests.test(given=given):
            provider.refuses = (429, "Too Many Requests")
            provider.parameters = {"retry_after": given}
            assert await send(provider) == Retryable("http_429", "Too Many Requests", after=after)


async def test_the_outcome_names_the_new_id_of_a_migrated_group(provider: TelegramProvider) -> None:
    provider.refuses = (400, "Bad Request: group chat was upgraded to a supergroup chat")
    provider.parameters = {"migrate_to_chat_id": -1009876543210}
    outcome = await send(provider)
    assert isinstance(outcome, Invalid)
    assert "-1009876543210" in outcome.message


async def test_a_refused_token_stops_the_channel(provider: TelegramProvider) -> None:
    assert await send(provider, account={"bot_token": "7:wrong-token"}) == Down("http_401", "Unauthorized")


def test_the_rate_is_thirty_messages_a_second() -> None:
    assert Telegram.rate == Rate(30, per="1s")


def test_invalid_chats_are_refused(subtests: pytest.Subtests) -> None:
    for address in ["", "0", "12x", "--5", "1" * 17, "news", "@x", "@a b", "@näws", "8421/../x", "٤٢"]:
        with subtests.test(address=address), pytest.raises(InvalidAddress):
            Telegram().check_address(address)
