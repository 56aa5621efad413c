"""Slack through a bot and incoming webhooks: what is sent, and what each error means."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from sereno.channels.contract import Exchange, Message
from sereno.channels.outcome import Delivered, Down, Failed, Invalid, Outcome, Retryable
from sereno.channels.slack import Slack
from sereno.errors import InvalidAddress
from sereno.testing.chats import SlackProvider
from sereno.testing.provider import RETRY_AFTER

CHANNEL = "C0123456789"


@pytest.fixture
async def provider() -> AsyncIterator[SlackProvider]:
    async with SlackProvider() as provider:
        yield provider


async def send(provider: SlackProvider, *, account: dict[str, str] | None = None, **changed: Any) -> Outcome:
    message = Message(**{"delivery": 1, "key": "k1", "address": CHANNEL, "body": "Good morning", **changed})
    async with Exchange(provider.account if account is None else account) as exchange:
        (outcome,) = await Slack().send([message], exchange)
    return outcome


async def test_the_provider_id_is_channel_and_timestamp(provider: SlackProvider) -> None:
    assert await send(provider) == Delivered(f"{CHANNEL}:1503435956.000001")
    assert provider.sent == [{"channel": CHANNEL, "text": "Good morning"}]


async def test_a_message_by_a_webhook_needs_no_bot(provider: SlackProvider) -> None:
    assert await send(provider, account={"url": provider.url}, address=provider.address) == Delivered()
    assert provider.sent == [{"text": "Good morning"}]
    assert "authorization" not in provider.log[0].headers


async def test_text_is_escaped(subtests: pytest.Subtests) -> None:
    for by_hook in [False, True]:
        with subtests.test(by_hook=by_hook):
            async with SlackProvider() as provider:
                address = provider.address if by_hook else CHANNEL
                await send(provider, address=address, title="R&D", body="<!channel> see <http://x|y> &lt;")
                assert provider.sent[0]["text"] == "R&amp;D\n&lt;!channel&gt; see &lt;http://x|y&gt; &amp;lt;"


BOT_ERRORS: list[tuple[str, type[Outcome]]] = (
    [(word, Invalid) for word in ("channel_not_found", "is_archived", "user_not_found")]
    + [(word, Down) for word in ("invalid_auth", "account_inactive", "token_revoked", "token_expired", "not_authed")]
    + [(word, Down) for word in ("missing_scope", "no_permission", "access_denied", "org_login_required")]
    + [(word, Retryable) for word in ("ratelimited", "rate_limited", "fatal_error", "internal_error")]
    + [(word, Retryable) for word in ("service_unavailable", "request_timeout")]
    + [(word, Failed) for word in ("msg_too_long", "no_text", "not_in_channel", "restricted_action", "a_new_word")]
)


async def test_each_error_for_a_bot_has_an_outcome(provider: SlackProvider, subtests: pytest.Subtests) -> None:
    for word, kind in BOT_ERRORS:
        with subtests.test(word=word):
            provider.refuses = word
            outcome = await send(provider)
            assert type(outcome) is kind
            assert getattr(outcome, "code", None) == word


async def test_throttled_messages_wait_as_long_as_slack_requires(provider: SlackProvider) -> None:
    provider.refuses = "ratelimited"
    assert await send(provider) == Retryable("ratelimited", "ratelimited", after=RETRY_AFTER)


async def test_a_missing_scope_is_named(provider: SlackProvider) -> None:
    provider.refuses = "missing_scope"
    assert await send(provider) == Down("missing_scope", "needs chat:write")


async def test_a_refused_token_stops_the_channel(provider: SlackProvider) -> None:
    assert await send(provider, account={**provider.account, "bot_token": "xoxb-wrong"}) == Down(
        "invalid_auth", "invalid_auth"
    )


WEBHOOK_ERRORS: list[tuple[int, str, type[Outcome]]] = [
    (404, "no_service", Invalid),
    (404, "no_team", Invalid),
    (404, "channel_not_found", Invalid),
    (410, "channel_is_archived", Invalid),
    (403, "invalid_token", Invalid),
    (400, "user_not_found", Invalid),
    (403, "action_prohibited", Failed),
    (400, "invalid_payload", Failed),
    (500, "rollup_error", Retryable),
    (403, "who are you", Down),
]


async def test_each_error_for_a_webhook_has_an_outcome(provider: SlackProvider, subtests: pytest.Subtests) -> None:
    for status, word, kind in WEBHOOK_ERRORS:
        with subtests.test(status=status, word=word):
            provider.status, provider.refuses = status, word
            assert type(await send(provider, address=provider.address)) is kind


async def test_a_deleted_webhook_is_invalid(provider: SlackProvider) -> None:
    assert isinstance(await send(provider, address=f"{provider.address}x"), Invalid)


async def test_an_id_without_a_bot_token_does_not_affect_the_others(provider: SlackProvider) -> None:
    batch = [
        Message(delivery=number, key="k", address=address, body="x")
        for number, address in enumerate([CHANNEL, provider.address])
    ]
    async with Exchange({"url": provider.url}) as exchange:
        first, second = await Slack().send(batch, exchange)
    assert isinstance(first, Failed)
    assert first.code == "no_bot_token"
    assert second == Delivered()


def test_ids_and_webhooks_are_valid_addresses(subtests: pytest.Subtests) -> None:
    for address in ["C0123456789", "G01", "D0ABC", "U0ABC", "W0ABC", "https://hooks.slack.com/services/T0/B0/abcDEF1"]:
        with subtests.test(address=address):
            assert Slack().check_address(f" {address} ") == address


INVALID_ADDRESSES = [
    "",
    "#general",
    "X0123456789",
    "c0123456789",
    "http://hooks.slack.com/services/T0/B0/secret",
    "https://hooks.slack.com.evil.example/services/T0/B0/secret",
    "https://hooks.slack.com@evil.example/services/T0/B0/secret",
    "https://evil.example/services/T0/B0/secret",
    "https://hooks.slack.com/services/T0/B0/secret?x=1",
    "https://hooks.slack.com/services/T0/../secret",
    "https://hooks.slack.com/services/T0/B0/",
]


def test_other_urls_are_invalid(subtests: pytest.Subtests) -> None:
    for address in INVALID_ADDRESSES:
        with subtests.test(address=address):
            with pytest.raises(InvalidAddress) as raised:
                Slack().check_address(address)
            assert "secret" not in str(raised.value)
