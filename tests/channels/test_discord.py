"""Discord through webhooks: what is sent, which addresses are valid, what each refusal means."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from sereno.channels.contract import Exchange, Message
from sereno.channels.discord import Discord
from sereno.channels.outcome import Delivered, Down, Failed, Invalid, Outcome, Retryable
from sereno.errors import InvalidAddress
from sereno.testing.chats import FINE_RETRY_AFTER, DiscordProvider


@pytest.fixture
async def provider() -> AsyncIterator[DiscordProvider]:
    async with DiscordProvider() as provider:
        yield provider


async def send(provider: DiscordProvider, **changed: Any) -> Outcome:
    message = Message(**{"delivery": 1, "key": "k1", "address": provider.address, "body": "Good morning", **changed})
    async with Exchange({"url": provider.url}) as exchange:
        (outcome,) = await Discord().send([message], exchange)
    return outcome


async def test_an_accepted_message_is_delivered_and_mentions_no_one(provider: DiscordProvider) -> None:
    outcome = await send(provider, body="@everyone wake up")
    ((name, content),) = provider.sent.items()
    assert outcome == Delivered(name)
    assert content == {"content": "@everyone wake up", "allowed_mentions": {"parse": []}}


async def test_embeds_may_take_the_place_of_the_text(provider: DiscordProvider) -> None:
    embeds = [{"title": "Backup", "color": 65280}]
    assert isinstance(await send(provider, body="", options={"embeds": embeds}), Delivered)
    (content,) = provider.sent.values()
    assert content == {"embeds": embeds, "allowed_mentions": {"parse": []}}


async def test_a_long_text_is_truncated(subtests: pytest.Subtests) -> None:
    for body in ["x" * 2001, "😀" * 1500]:
        with subtests.test(body=body[0]):
            async with DiscordProvider() as provider:
                assert isinstance(await send(provider, body=body), Delivered)
                (content,) = provider.sent.values()
                assert len(content["content"].encode("utf-16-le")) // 2 in (1999, 2000)
                assert content["content"].endswith("…")


async def test_throttled_messages_wait_as_long_as_the_body_requires(provider: DiscordProvider) -> None:
    provider.refuses = (429, 0)
    assert await send(provider) == Retryable("http_429", "You are being rate limited.", after=FINE_RETRY_AFTER)


async def test_each_refusal_has_an_outcome(provider: DiscordProvider, subtests: pytest.Subtests) -> None:
    for status, code, kind in [
        (404, 10015, Invalid),
        (404, 10003, Invalid),
        (401, 50027, Invalid),
        (400, 50006, Failed),
        (400, 50035, Failed),
    ]:
        with subtests.test(status=status, code=code, kind=kind):
            provider.refuses = (status, code)
            outcome = await send(provider)
            assert type(outcome) is kind
            assert getattr(outcome, "code", None) == str(code)
            assert provider.token not in repr(outcome)


async def test_a_server_error_is_retried(provider: DiscordProvider) -> None:
    provider.refuses = (500, 0)
    assert isinstance(await send(provider), Retryable)


async def test_a_deleted_or_misspelled_webhook_is_invalid(provider: DiscordProvider) -> None:
    for address in (f"{provider.url}/api/webhooks/1/{provider.token}", f"{provider.address}x"):
        assert isinstance(await send(provider, address=address), Invalid)


async def test_a_proxy_error_deactivates_no_address(provider: DiscordProvider) -> None:
    provider.fault = "denied"
    assert isinstance(await send(provider), Down)


def test_webhook_urls_of_discord_are_valid(subtests: pytest.Subtests) -> None:
    for address in [
        "https://discord.com/api/webhooks/123/abc-DEF_1",
        "https://discordapp.com/api/webhooks/123/abc",
        "https://canary.discord.com/api/v10/webhooks/123/abc",
        "https://DISCORD.com/api/webhooks/123/abc",
    ]:
        with subtests.test(address=address):
            assert Discord().check_address(f" {address}\n") == address


INVALID_URLS = [
    "",
    "http://discord.com/api/webhooks/123/secret",
    "https://discord.com.evil.example/api/webhooks/123/secret",
    "https://evil.example/api/webhooks/123/secret",
    "https://discord.com@evil.example/api/webhooks/123/secret",
    "https://evil.example\\@discord.com/api/webhooks/123/secret",
    "https://discord.com:8443/api/webhooks/123/secret",
    "https://discord.com/api/webhooks/123/secret/../../../users",
    "https://discord.com/api/webhooks/123/secret?wait=false",
    "https://discord.com/api/webhooks/123/secret#x",
    "https://discord.com/api/webhooks/x/secret",
    "https://discord.com/api/webhooks/123/sec%2fret",
    "http://169.254.169.254/api/webhooks/123/secret",
]


async def test_other_urls_are_invalid(subtests: pytest.Subtests) -> None:
    for address in INVALID_URLS:
        with subtests.test(address=address):
            with pytest.raises(InvalidAddress) as raised:
                Discord().check_address(address)
            assert "secret" not in str(raised.value)
            async with Exchange() as exchange:
                (outcome,) = await Discord().send([Message(delivery=1, key="k", address=address, body="x")], exchange)
            assert isinstance(outcome, Invalid)
            assert "secret" not in repr(outcome)
