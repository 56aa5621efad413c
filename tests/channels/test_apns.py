"""Apple Push Notification service: what is sent, what each reason means, and tokens that Apple accepts."""

import asyncio
import base64
import logging
import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from sereno.channels.apns import TOKEN_USE, APNs
from sereno.channels.contract import Exchange, Message
from sereno.channels.outcome import Down, Failed, Invalid, Outcome, Retryable, Sent, Unknown
from sereno.errors import InvalidAddress
from sereno.testing.apns import APNsProvider
from sereno.testing.provider import RETRY_AFTER, Request
from tests.channels.certificates import certified

PHONE = "0a1b2c3d" * 8
OTHER = "4e5f6071" * 8


@pytest.fixture
async def provider() -> AsyncIterator[APNsProvider]:
    async with APNsProvider() as provider:
        yield provider


def push(**changed: Any) -> Message:
    fixed = {"delivery": 1, "key": "sereno-1", "address": PHONE, "title": "Order", "body": "It is here"}
    return Message(**{**fixed, **changed})


async def send(
    provider: APNsProvider, *messages: Message, channel: APNs | None = None, account: dict[str, Any] | None = None
) -> list[Outcome]:
    async with Exchange({**provider.account, **(account or {})}) as exchange:
        return list(await (channel or APNs()).send(messages or [push()], exchange))


async def test_a_push_has_the_headers_of_apple(provider: APNsProvider) -> None:
    (outcome,) = await send(provider, push(data={"order": 7, "lines": [1, None]}))
    (request,) = provider.log
    assert outcome == Sent(request.headers["apns-id"])
    assert provider.sent == [
        {"aps": {"alert": {"title": "Order", "body": "It is here"}}, "order": 7, "lines": [1, None]}
    ]
    names = ("apns-topic", "apns-push-type", "apns-priority", "apns-collapse-id", "apns-expiration")
    assert [request.headers.get(name) for name in names] == ["org.example.shop", "alert", "10", "sereno-1", None]
    assert (request.method, request.path) == ("POST", f"/3/device/{PHONE}")


async def test_every_attempt_has_the_same_id(provider: APNsProvider) -> None:
    await send(provider, push(), push(attempt=2), push(key="sereno-2"))
    first, second, other = sorted(provider.log, key=lambda request: request.headers["apns-collapse-id"])
    assert first.headers["apns-id"] == second.headers["apns-id"] != other.headers["apns-id"]
    assert str(uuid.UUID(first.headers["apns-id"])) == first.headers["apns-id"]


async def test_options_of_the_template_are_used(provider: APNsProvider) -> None:
    options = {
        "aps": {"sound": "default", "badge": 3, "alert": {"title-loc-key": "ORDER"}},
        "data": {"screen": "orders"},
        "priority": 5,
        "collapse_id": "orders",
        "ttl": 3600,
    }
    channel = APNs(now=lambda: time.time() // TOKEN_USE * TOKEN_USE)
    assert isinstance((await send(provider, push(options=options, data={"aps": 1}), channel=channel))[0], Sent)
    assert provider.sent == [
        {"aps": {"alert": {"title-loc-key": "ORDER"}, "sound": "default", "badge": 3}, "screen": "orders"}
    ]
    headers = provider.log[0].headers
    assert [headers["apns-priority"], headers["apns-collapse-id"]] == ["5", "orders"]
    assert int(headers["apns-expiration"]) == time.time() // TOKEN_USE * TOKEN_USE + 3600
    await send(provider, push(options={"ttl": 0}))
    assert provider.log[1].headers["apns-expiration"] == "0"


async def test_a_push_without_text_wakes_the_app_in_the_background(provider: APNsProvider) -> None:
    assert isinstance((await send(provider, push(title="", body=" ", data={"sync": True})))[0], Sent)
    assert provider.sent == [{"aps": {"content-available": 1}, "sync": True}]
    headers = provider.log[0].headers
    assert [headers["apns-push-type"], headers["apns-priority"]] == ["background", "5"]


UNFIT: list[tuple[dict[str, Any], str]] = [
    ({"title": "", "body": " \n"}, "empty"),
    ({"data": {"aps": {}}}, "malformed"),
    ({"options": {"aps": "x"}}, "malformed"),
    ({"options": {"data": [1]}}, "malformed"),
    ({"options": {"push_type": "voip"}}, "malformed"),
    ({"options": {"push_type": ["alert"]}}, "malformed"),
    ({"options": {"priority": True}}, "malformed"),
    ({"options": {"priority": "10\r\nx: y"}}, "malformed"),
    ({"options": {"collapse_id": "x" * 65}}, "malformed"),
    ({"options": {"collapse_id": "a\r\nb"}}, "malformed"),
    ({"options": {"ttl": -1}}, "malformed"),
    ({"options": {"ttl": 1e300}}, "malformed"),
    ({"body": "half a pair: \ud800"}, "malformed"),
    ({"body": "x" * 4096}, "too_large"),
]


async def test_messages_that_do_not_fit_fail_alone(provider: APNsProvider, subtests: pytest.Subtests) -> None:
    for wrong, code in UNFIT:
        with subtests.test(wrong=str(wrong)[:60]):
            first, outcome, last = await send(provider, push(), push(**wrong), push())
            assert isinstance(outcome, Failed)
            assert outcome.code == code
            assert isinstance(first, Sent)
            assert isinstance(last, Sent)


OUTCOMES: list[tuple[str, type[Outcome]]] = (
    [(reason, Invalid) for reason in ("BadDeviceToken", "Unregistered", "ExpiredToken")]
    + [(reason, Down) for reason in ("TopicDisallowed", "InvalidProviderToken", "Forbidden", "DeviceTokenNotForTopic")]
    + [(reason, Retryable) for reason in ("TooManyRequests", "TooManyProviderTokenUpdates", "Shutdown", "IdleTimeout")]
    + [(reason, Retryable) for reason in ("InternalServerError", "ServiceUnavailable")]
    + [(reason, Failed) for reason in ("PayloadTooLarge", "BadPath", "PayloadEmpty", "NewReason")]
)


async def test_each_reason_has_an_outcome(provider: APNsProvider, subtests: pytest.Subtests) -> None:
    for reason, kind in OUTCOMES:
        with subtests.test(reason=reason):
            provider.refuses[PHONE] = reason
            (outcome,) = await send(provider)
            assert type(outcome) is kind
            assert getattr(outcome, "code", None) == reason
    assert provider.sent == []


async def test_an_ended_token_has_its_time(provider: APNsProvider) -> None:
    provider.refuses[PHONE] = "Unregistered"
    assert await send(provider) == [Invalid("Unregistered", "since 2023-11-14 22:13:20 UTC")]


async def test_refusals_wait_as_long_as_apple_requires(provider: APNsProvider) -> None:
    for reason, wait in [("TooManyRequests", RETRY_AFTER), ("ServiceUnavailable", 900.0)]:
        provider.refuses[PHONE] = reason
        (outcome,) = await send(provider)
        assert isinstance(outcome, Retryable)
        assert outcome.after == wait


async def test_a_token_of_another_app_does_not_stop_an_account_that_works(provider: APNsProvider) -> None:
    provider.refuses[OTHER] = "DeviceTokenNotForTopic"
    channel = APNs()
    both = await send(provider, push(address=OTHER), push(), channel=channel)
    assert [type(outcome) for outcome in both] == [Failed, Sent]
    assert isinstance((await send(provider, push(address=OTHER), channel=channel))[0], Failed)


async def test_many_messages_share_a_connection_and_a_token(provider: APNsProvider) -> None:
    channel = APNs()
    async with Exchange(provider.account) as exchange:
        batches = [[push(key=f"sereno-{batch}-{each}") for each in range(100)] for batch in range(3)]
        outcomes = await asyncio.gather(*(channel.send(batch, exchange) for batch in batches))
        assert all(isinstance(outcome, Sent) for batch in outcomes for outcome in batch)
    assert (provider.connections, len(provider.tokens), len(provider.sent)) == (1, 1, 300)


async def test_all_workers_date_their_tokens_alike_and_renew_them(provider: APNsProvider) -> None:
    start = time.time() // TOKEN_USE * TOKEN_USE
    times = [start]
    one, two = (APNs(now=lambda: times[-1]) for _ in range(2))
    provider.oldest = 0
    for later in (0, 10, TOKEN_USE - 1, TOKEN_USE, 2 * TOKEN_USE + 100):
        times.append(start + later)
        await send(provider, channel=one)
        await send(provider, channel=two)
    dates = {msgspec.json.decode(_claims(token))["iat"] for token in provider.tokens}
    assert sorted(dates) == [start, start + TOKEN_USE, start + 2 * TOKEN_USE]
    assert len(provider.tokens) == 6


def _claims(token: str) -> bytes:
    return base64.urlsafe_b64decode(token.split(".")[1] + "==")


async def test_an_expired_token_is_renewed_once_for_all(provider: APNsProvider) -> None:
    now = time.time() // TOKEN_USE * TOKEN_USE + 1000
    channel = APNs(now=lambda: now)
    provider.oldest = now - 10
    outcomes = await send(provider, *(push(key=f"sereno-{each}") for each in range(20)), channel=channel)
    assert all(isinstance(outcome, Sent) for outcome in outcomes)
    assert len(provider.tokens) == 2
    provider.oldest = now + 10
    (outcome,) = await send(provider, channel=channel)
    assert outcome == Down("ExpiredProviderToken", "ExpiredProviderToken")


WRONG_ACCOUNTS: list[tuple[dict[str, Any], str]] = [
    ({"team_id": "other"}, "InvalidProviderToken"),
    ({"key_id": "other"}, "InvalidProviderToken"),
    ({"topic": "org.example.other"}, "TopicDisallowed"),
    ({"topic": "a\r\nb"}, "bad_settings"),
    ({"private_key": "-----BEGIN PRIVATE KEY-----\nsecret-canary\n-----END PRIVATE KEY-----"}, "bad_settings"),
    ({"private_key": 7}, "bad_settings"),
    ({"url": "ftp://nowhere"}, "bad_settings"),
]


async def test_a_refused_account_stops_the_channel(provider: APNsProvider, subtests: pytest.Subtests) -> None:
    for wrong, code in WRONG_ACCOUNTS:
        with subtests.test(wrong=wrong):
            (outcome,) = await send(provider, account=wrong)
            assert isinstance(outcome, Down)
            assert outcome.code == code
            assert "canary" not in repr(outcome)
    for lacking in ("key_id", "team_id", "private_key", "topic"):
        account = {name: value for name, value in provider.account.items() if name != lacking}
        async with Exchange(account) as exchange:
            assert await APNs().send([push()], exchange) == [Down("no_settings", f"the channel apns lacks {lacking}")]


class OddAPNs(APNsProvider):
    """Returns one response to every request; without a body, it returns the request."""

    status, body, has_id = 200, b"", True

    async def answer(self, request: Request) -> web.StreamResponse:
        headers = {"apns-id": request.headers["apns-id"]} if self.has_id else {}
        self.tokens.add(request.headers["authorization"].removeprefix("bearer "))
        echo = f"{request.path} {request.headers['authorization']}".encode()
        return web.Response(status=self.status, body=self.body or echo, headers=headers)


async def test_odd_responses_deactivate_no_address_and_show_no_secret(
    caplog: pytest.LogCaptureFixture, subtests: pytest.Subtests
) -> None:
    caplog.set_level(logging.DEBUG)
    async with OddAPNs() as provider:
        for status, body, kind in [
            (200, b"", Unknown),
            (302, b"", Failed),
            (400, b"", Failed),
            (400, b'{"reason": ["BadDeviceToken"]}', Failed),
            (403, b"", Down),
            (410, b'{"reason": "Unregistered", "timestamp": 1e400}', Failed),
            (410, b'{"reason": "Unregistered", "timestamp": 99999999999999999999}', Invalid),
            (410, b"[" * 10_000, Failed),
            (429, b"", Retryable),
            (500, b"\xff", Retryable),
        ]:
            with subtests.test(status=status, body=body[:40]):
                provider.status, provider.body, provider.has_id = status, body, False
                channel = APNs()
                (outcome,) = await send(provider, channel=channel)
                assert type(outcome) is kind
                shown = repr(outcome) + repr(channel.settings(provider.account)) + caplog.text
                for secret in (*provider.tokens, PHONE):
                    assert secret not in shown


async def test_with_tls_it_is_sent_only_to_a_trusted_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for trusted in (True, False):
        context = certified(tmp_path, "h2")
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem") if trusted else "/dev/null")
        async with APNsProvider(context) as provider:
            (outcome,) = await send(provider)
            assert isinstance(outcome, Sent if trusted else Retryable)
            assert len(provider.log) == trusted


def test_device_tokens_are_addresses(subtests: pytest.Subtests) -> None:
    assert APNs().check_address(f" {PHONE.upper()} ") == PHONE
    for wrong in ["", "0a1b", PHONE[:-1], "xyz" * 30, "00" * 201, f"{PHONE}\n", f"{PHONE[:-2]}/.", "é1" * 32]:
        with subtests.test(wrong=wrong[:40]), pytest.raises(InvalidAddress):
            APNs().check_address(wrong)
