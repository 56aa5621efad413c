"""Firebase Cloud Messaging: what is sent, what each error means, and tokens that are requested once."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from sereno.channels.contract import Exchange, Message
from sereno.channels.fcm import FCM
from sereno.channels.outcome import Down, Failed, Invalid, Outcome, Retryable, Sent, Unknown
from sereno.errors import ConfigurationError, InvalidAddress
from sereno.testing.fcm import FCMProvider
from sereno.testing.provider import RETRY_AFTER, Request

PHONE = "dPn8k:APA91bH-phone_one"
OTHER = "dPn8k:APA91bH-phone_two"


@pytest.fixture
async def provider() -> AsyncIterator[FCMProvider]:
    async with FCMProvider() as provider:
        yield provider


def push(**changed: Any) -> Message:
    fixed = {"delivery": 1, "key": "sereno-1", "address": PHONE, "title": "Order", "body": "It is here"}
    return Message(**{**fixed, **changed})


async def send(
    provider: FCMProvider, *messages: Message, channel: FCM | None = None, account: dict[str, Any] | None = None
) -> list[Outcome]:
    async with Exchange({**provider.account, **(account or {})}) as exchange:
        return list(await (channel or FCM()).send(messages or [push()], exchange))


async def test_a_push_has_text_and_payload_and_replaces_itself_on_the_screen(provider: FCMProvider) -> None:
    (outcome,) = await send(provider, push(data={"order": 7, "code": "A-1", "lines": [1, None]}))
    assert outcome == Sent("0:15003415%00000001")
    assert provider.sent == [
        {
            "token": PHONE,
            "notification": {"title": "Order", "body": "It is here"},
            "data": {"order": "7", "code": "A-1", "lines": "[1,null]"},
            "android": {"notification": {"tag": "sereno-1"}},
            "apns": {"headers": {"apns-collapse-id": "sereno-1"}},
        }
    ]
    await send(provider, push(key="k" * 65))
    assert len(provider.sent[1]["apns"]["headers"]["apns-collapse-id"]) == 64


async def test_options_of_the_template_are_added(provider: FCMProvider) -> None:
    options = {
        "android": {"priority": "high", "notification": {"sound": "default"}},
        "apns": {"headers": {"apns-collapse-id": "own"}},
        "fcm_options": {"analytics_label": "x"},
        "image": "https://shop.example/a.png",
        "data": {"screen": "orders"},
        "token": OTHER,
    }
    await send(provider, push(options=options, data={"from": "Ada"}))
    (sent,) = provider.sent
    assert sent["token"] == PHONE
    assert sent["android"] == {"priority": "high", "notification": {"tag": "sereno-1", "sound": "default"}}
    assert sent["apns"] == {"headers": {"apns-collapse-id": "own"}}
    assert sent["fcm_options"] == {"analytics_label": "x"}
    assert sent["notification"]["image"] == "https://shop.example/a.png"
    assert sent["data"] == {"screen": "orders"}


async def test_a_push_without_text_has_data_only(provider: FCMProvider) -> None:
    assert isinstance((await send(provider, push(title="", body=" ", data={"sync": True})))[0], Sent)
    assert provider.sent == [{"token": PHONE, "data": {"sync": "true"}}]


UNFIT: list[tuple[dict[str, Any], str]] = [
    ({"title": "", "body": " \n"}, "empty"),
    ({"data": {"from": "Ada"}}, "malformed"),
    ({"data": {"google.c": 1}}, "malformed"),
    ({"options": {"data": [1]}}, "malformed"),
    ({"options": {"apns": "x"}}, "malformed"),
    ({"body": "half a pair: \ud800"}, "malformed"),
    ({"data": {"text": "x" * 5000}}, "INVALID_ARGUMENT"),
]


async def test_messages_that_do_not_fit_fail_alone(provider: FCMProvider, subtests: pytest.Subtests) -> None:
    for wrong, code in UNFIT:
        with subtests.test(wrong=str(wrong)[:60]):
            first, outcome, last = await send(provider, push(), push(**wrong), push())
            assert isinstance(outcome, Failed)
            assert outcome.code == code
            assert isinstance(first, Sent)
            assert isinstance(last, Sent)


OUTCOMES: list[tuple[str, type[Outcome]]] = [
    ("UNREGISTERED", Invalid),
    ("INVALID_ARGUMENT", Invalid),
    ("SENDER_ID_MISMATCH", Down),
    ("QUOTA_EXCEEDED", Retryable),
    ("UNAVAILABLE", Retryable),
    ("INTERNAL", Retryable),
    ("THIRD_PARTY_AUTH_ERROR", Retryable),
]


async def test_each_code_has_an_outcome(provider: FCMProvider, subtests: pytest.Subtests) -> None:
    for code, kind in OUTCOMES:
        with subtests.test(code=code):
            provider.refuses[PHONE] = code
            (outcome,) = await send(provider)
            assert type(outcome) is kind
            assert getattr(outcome, "code", None) == code
            assert PHONE not in repr(outcome)
    assert provider.sent == []


async def test_a_foreign_token_does_not_stop_an_account_that_works(provider: FCMProvider) -> None:
    provider.refuses[OTHER] = "SENDER_ID_MISMATCH"
    channel = FCM()
    both = await send(provider, push(address=OTHER), push(), channel=channel)
    assert [type(outcome) for outcome in both] == [Failed, Sent]
    (later,) = await send(provider, push(address=OTHER), channel=channel)
    assert isinstance(later, Failed)


async def test_the_quota_is_tried_again_after_a_minute_or_as_google_says(provider: FCMProvider) -> None:
    provider.refuses[PHONE] = "QUOTA_EXCEEDED"
    for says, wait in [(True, RETRY_AFTER), (False, 60)]:
        provider.has_retry_after = says
        (outcome,) = await send(provider)
        assert isinstance(outcome, Retryable)
        assert outcome.after == wait


async def test_many_messages_need_one_token(provider: FCMProvider) -> None:
    channel = FCM()
    async with Exchange(provider.account) as exchange:
        batches = [[push(key=f"sereno-{batch}-{each}") for each in range(30)] for batch in range(3)]
        outcomes = await asyncio.gather(*(channel.send(batch, exchange) for batch in batches))
        assert all(isinstance(outcome, Sent) for batch in outcomes for outcome in batch)
        await channel.send([push()], exchange)
    assert len(provider.token_requests) == 1
    assert len(provider.sent) == 91


async def test_a_token_is_replaced_before_its_end(provider: FCMProvider) -> None:
    now = time.time()
    times = [now]
    channel = FCM(now=lambda: times[-1])
    for later, requests in [(0, 1), (3290, 1), (3310, 2), (3320, 2)]:
        times.append(now + later)
        assert [type(outcome) for outcome in await send(provider, channel=channel)] == [Sent]
        assert len(provider.token_requests) == requests


async def test_a_clock_that_is_wrong_stops_the_channel(provider: FCMProvider) -> None:
    (outcome,) = await send(provider, channel=FCM(now=lambda: 1_000_000_000.0))
    assert isinstance(outcome, Down)
    assert outcome.code == "invalid_grant"


async def test_a_revoked_token_is_replaced_at_once(provider: FCMProvider) -> None:
    channel = FCM()
    await send(provider, channel=channel)
    provider.issued.clear()
    outcomes = await send(provider, *(push(key=f"again-{each}") for each in range(20)), channel=channel)
    assert all(isinstance(outcome, Sent) for outcome in outcomes)
    assert len(provider.token_requests) == 2


async def test_a_token_that_is_always_refused_stops_the_channel(provider: FCMProvider) -> None:
    class Forgetful(FCMProvider):
        async def answer(self, request: Request) -> web.StreamResponse:
            self.issued.clear()
            return await super().answer(request)

    async with Forgetful() as forgetful:
        (outcome,) = await send(forgetful)
    assert isinstance(outcome, Down)
    assert outcome.code == "UNAUTHENTICATED"
    assert len(forgetful.log) == 4


WRONG_ACCOUNTS: list[tuple[dict[str, Any], str]] = [
    ({"client_email": "other@shop.example"}, "invalid_grant"),
    ({"private_key_id": "old"}, "invalid_grant"),
    ({"private_key": "-----BEGIN PRIVATE KEY-----\nsecret-canary\n-----END PRIVATE KEY-----"}, "bad_settings"),
    ({"project_id": "another"}, "PERMISSION_DENIED"),
    ({"project_id": "../../x"}, "bad_settings"),
    ({"token_uri": "ftp://nowhere"}, "bad_settings"),
    ({"client_email": "a\r\nb"}, "bad_settings"),
    ({"private_key": 7}, "bad_settings"),
]


async def test_a_refused_account_stops_the_channel(provider: FCMProvider, subtests: pytest.Subtests) -> None:
    for wrong, code in WRONG_ACCOUNTS:
        with subtests.test(wrong=wrong):
            (outcome,) = await send(provider, account=wrong)
            assert isinstance(outcome, Down)
            assert outcome.code == code
            assert "canary" not in repr(outcome)
    for lacking in ("project_id", "client_email", "private_key"):
        account = {name: value for name, value in provider.account.items() if name != lacking}
        async with Exchange(account) as exchange:
            assert await FCM().send([push()], exchange) == [Down("no_settings", f"the channel fcm lacks {lacking}")]


class FixedToken(FCMProvider):
    """Returns one response to requests for a token, or else to messages."""

    def __init__(self, path: str, status: int, body: bytes) -> None:
        super().__init__()
        self.path, self.status, self.body = path, status, body

    async def answer(self, request: Request) -> web.StreamResponse:
        if request.path.startswith(self.path):
            echo = f"{request.headers.get('authorization')} {request.body.decode()}".encode()
            return web.Response(status=self.status, body=self.body or echo)
        return await super().answer(request)


TOKEN_RESPONSES: list[tuple[int, bytes, type[Outcome]]] = [
    (200, b"<html>", Retryable),
    (200, b'{"access_token": "a\\r\\nb", "expires_in": 3599}', Retryable),
    (200, b'{"access_token": "", "expires_in": 3599}', Retryable),
    (200, b'{"access_token": "abc", "expires_in": "soon"}', Retryable),
    (200, b"[" * 100_000, Retryable),
    (302, b"", Down),
    (400, b'{"error": ["x"], "error_description": 7}', Down),
    (401, b'{"error": "invalid_client"}', Down),
    (404, b"not here", Down),
    (429, b"slow down", Retryable),
    (500, b"\xff", Retryable),
]


async def test_no_message_is_sent_or_failed_without_a_token(subtests: pytest.Subtests) -> None:
    for status, body, kind in TOKEN_RESPONSES:
        with subtests.test(status=status, body=body[:40]):
            async with FixedToken("/token", status, body) as provider:
                outcomes = await send(provider, push(), push())
                assert [type(outcome) for outcome in outcomes] == [kind, kind]
                assert len(provider.log) <= 2
                assert "assertion" not in repr(outcomes)


ODD_RESPONSES: list[tuple[int, bytes, type[Outcome]]] = [
    (200, b"", Unknown),
    (200, b'{"name": 7}', Unknown),
    (200, b'{"name": "a b"}', Unknown),
    (200, b'{"name": "projects/x/messages/"}', Unknown),
    (400, b'{"error": "x"}', Failed),
    (400, b'{"error": {"status": "INVALID_ARGUMENT", "details": {"a": 1}}}', Failed),
    (400, b'{"error": {"status": "INVALID_ARGUMENT", "details": [3, {"fieldViolations": [7, {"field": 1}]}]}}', Failed),
    (404, b'{"error": {"status": ["NOT_FOUND"]}}', Failed),
    (404, b'{"error": {"status": "NOT_FOUND"}}', Down),
    (302, b"", Failed),
    (403, b"<html>a proxy</html>", Down),
    (503, b"later", Retryable),
]


async def test_odd_responses_deactivate_no_address(subtests: pytest.Subtests) -> None:
    for status, body, kind in ODD_RESPONSES:
        with subtests.test(status=status, body=body[:80]):
            async with FixedToken("/v1", status, body) as provider:
                (outcome,) = await send(provider)
                assert type(outcome) is kind


async def test_no_outcome_has_a_secret(caplog: pytest.LogCaptureFixture, subtests: pytest.Subtests) -> None:
    caplog.set_level(logging.DEBUG)
    for status in (200, 400, 401, 404, 429, 500):
        with subtests.test(status=status):
            async with FixedToken("/v1", status, b"") as provider:
                channel = FCM()
                (outcome,) = await send(provider, channel=channel)
                ours = [record.getMessage() for record in caplog.records if record.name != "aiohttp.access"]
                shown = repr(outcome) + repr(channel.settings(provider.account)) + "".join(ours)
                assert "[hidden]" in repr(outcome)
                for secret in (*provider.issued, PHONE, provider.account["private_key"][60:90]):
                    assert secret not in shown


def test_a_tenant_with_its_own_account_is_alone() -> None:
    channel = FCM(client_email="ours@example.org", private_key="ours", project_id="ours")
    exchange = Exchange({"token_uri": "https://tenant.example/token"}, own=True)
    assert exchange.stands_alone
    assert channel.settings(exchange.account, alone=True).lacks() == "client_email"
    with pytest.raises(ConfigurationError, match="apikey"):
        FCM(apikey="x")


def test_registration_tokens_are_addresses(subtests: pytest.Subtests) -> None:
    assert FCM().check_address(f" {PHONE} ") == PHONE
    for wrong in ["", "short", "a b c d e f g h", "x" * 1001, "javascript:alert(1)", f"{PHONE}\n", f"{PHONE}é"]:
        with subtests.test(wrong=wrong[:40]), pytest.raises(InvalidAddress):
            FCM().check_address(wrong)
