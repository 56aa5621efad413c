"""Webhooks: signatures, idempotent ids, response statuses, and refused addresses."""

import asyncio
import base64
import gzip
import socket
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from standardwebhooks import Webhook as Verifier
from standardwebhooks import WebhookVerificationError

from sereno.channels.contract import Exchange, Message
from sereno.channels.outcome import Delivered, Down, Failed, Invalid, Outcome, Retryable, Unknown
from sereno.channels.webhook import LARGEST_RESPONSE, RETRY_DELAYS, Webhook
from sereno.errors import ConfigurationError
from sereno.testing.provider import RETRY_AFTER, Fault
from sereno.testing.webhook import WebhookReceiver
from sereno.version import __version__

OLD = "whsec_" + base64.b64encode(b"o" * 24).decode()
NEW = "whsec_" + base64.b64encode(b"n" * 32).decode()
STRANGE = "whsec_" + base64.b64encode(b"s" * 64).decode()
HUGE = 10 * 1024 * 1024


@pytest.fixture
async def receiver() -> AsyncIterator[WebhookReceiver]:
    async with WebhookReceiver([NEW]) as server:
        yield server


def message(address: str, secrets: Any = (NEW,), **fields: Any) -> Message:
    content = {"delivery": 7, "key": "dlv_7", "event": "order.paid", "data": {"order": 12, "name": "João"}, **fields}
    return Message(address=address, keys={"secrets": secrets}, **content)


async def send(sent: Message, channel: Webhook | None = None, **options: Any) -> Outcome:
    options = {"private": True, "timeout": 10.0, **options}
    async with Exchange(**options) as exchange:
        (outcome,) = await (channel or Webhook()).send([sent], exchange)
    return outcome


async def test_a_webhook_arrives_signed_and_complete(receiver: WebhookReceiver) -> None:
    before = datetime.now(UTC)
    assert await send(message(f"{receiver.url}/hook?team=a%20b")) == Delivered()
    (request,) = receiver.log
    content = receiver.accepted["dlv_7"]
    assert list(content) == ["type", "timestamp", "data"]
    assert (content["type"], content["data"]) == ("order.paid", {"order": 12, "name": "João"})
    assert before <= datetime.fromisoformat(content["timestamp"]) <= datetime.now(UTC)
    assert (request.method, request.path) == ("POST", "/hook?team=a%20b")
    assert request.headers["content-type"] == "application/json"
    assert request.headers["user-agent"] == f"sereno/{__version__}"
    assert b", " not in request.body
    assert "João".encode() in request.body


async def test_both_secrets_verify_during_a_rotation(subtests: pytest.Subtests) -> None:
    for known in [OLD, NEW]:
        with subtests.test(known=known):
            async with WebhookReceiver([known]) as receiver:
                assert await send(message(receiver.url, [NEW, OLD])) == Delivered()
                assert len(receiver.log[0].headers["webhook-signature"].split(" ")) == 2
                assert receiver.rejected == []


async def test_a_rejected_signature_is_retried(receiver: WebhookReceiver) -> None:
    assert await send(message(receiver.url, [STRANGE])) == Retryable("http_401", "invalid signature")
    assert (len(receiver.rejected), receiver.accepted) == (1, {})


async def test_every_attempt_has_the_same_id(receiver: WebhookReceiver) -> None:
    for attempt in (1, 2, 3):
        assert await send(message(receiver.url, attempt=attempt)) == Delivered()
    assert {request.headers["webhook-id"] for request in receiver.log} == {"dlv_7"}
    assert (list(receiver.accepted), receiver.repeats["dlv_7"]) == (["dlv_7"], 2)


async def test_a_replayed_request_is_rejected_by_the_official_library(receiver: WebhookReceiver) -> None:
    channel = Webhook(now=lambda: datetime(2020, 1, 1, tzinfo=UTC))
    assert isinstance(await send(message(receiver.url), channel), Retryable)
    (request,) = receiver.rejected
    with pytest.raises(WebhookVerificationError, match="too old"):
        Verifier(NEW).verify(request.body, dict(request.headers))


INVALID_SECRETS: list[Any] = [
    None,
    [],
    "",
    NEW,
    {NEW: NEW},
    [None],
    [7],
    [NEW.removeprefix("whsec_")],
    ["whsec_"],
    ["whsec_!!!"],
    ["whsec_" + base64.b64encode(b"x" * 23).decode()],
    ["whsec_" + base64.b64encode(b"x" * 65).decode()],
    ["whsec_" + "é" * 40],
    [NEW, ""],
    [NEW, OLD, STRANGE],
]


async def test_nothing_is_sent_without_valid_secrets(receiver: WebhookReceiver, subtests: pytest.Subtests) -> None:
    for secrets in INVALID_SECRETS:
        with subtests.test(secrets=secrets):
            outcome = await send(message(receiver.url, secrets))
            assert isinstance(outcome, Failed)
            assert outcome.code == "no_secret"
            assert NEW not in repr(outcome)
            assert receiver.log == []


async def test_a_secret_may_lack_its_padding() -> None:
    async with WebhookReceiver([NEW]) as receiver:
        assert await send(message(receiver.url, [NEW.rstrip("=")])) == Delivered()


STATUSES: list[tuple[int, dict[str, str], Outcome]] = [
    (200, {}, Delivered()),
    (299, {}, Delivered()),
    (410, {}, Invalid("gone", "words")),
    (429, {"Retry-After": "90"}, Retryable("http_429", "words", after=90.0)),
    (503, {"Retry-After": "5"}, Retryable("http_503", "words", after=5.0)),
    (503, {}, Retryable("http_503", "words")),
    (400, {}, Retryable("http_400", "words")),
    (404, {}, Retryable("http_404", "words")),
    (500, {}, Retryable("http_500", "words")),
    (
        503,
        {"Retry-After": "Mon, 01 Jan 99999999999999999999 00:00:00 GMT"},
        Retryable("http_503", "words"),
    ),
    (700, {}, Unknown("invalid_response", "status 700")),
]


async def test_the_status_decides_the_outcome(receiver: WebhookReceiver, subtests: pytest.Subtests) -> None:
    for status, headers, expected in STATUSES:
        with subtests.test(status=status, headers=headers):
            receiver.status, receiver.headers, receiver.body = status, headers, b"words"
            assert await send(message(receiver.url)) == expected


async def test_a_redirect_is_not_followed(subtests: pytest.Subtests) -> None:
    for status in [300, 301, 302, 303, 307, 308]:
        with subtests.test(status=status):
            async with WebhookReceiver([NEW]) as receiver:
                async with WebhookReceiver([NEW]) as elsewhere:
                    for location in (elsewhere.url, "http://169.254.169.254/latest/meta-data/"):
                        receiver.status, receiver.headers = status, {"Location": location}
                        outcome = await send(message(receiver.url))
                        assert isinstance(outcome, Retryable)
                        assert outcome.code == "redirect"
                    assert elsewhere.log == []
                assert len(receiver.log) == 2


FAULTS: list[tuple[Fault, Outcome]] = [
    ("html", Delivered()),
    ("half", Delivered()),
    ("busy", Retryable("http_429", "slow down", after=float(RETRY_AFTER))),
    ("broken", Retryable("http_503", "upstream gone")),
    ("denied", Retryable("http_401", "who are you")),
    ("close", Unknown("no_response", "ServerDisconnectedError")),
]


async def test_faults_of_a_receiver_are_outcomes(subtests: pytest.Subtests) -> None:
    for fault, expected in FAULTS:
        with subtests.test(fault=fault):
            async with WebhookReceiver([NEW]) as receiver:
                receiver.fault = fault
                assert await send(message(receiver.url)) == expected
                assert len(receiver.log) == 1


async def outcome_of_endless_body(status: int | None) -> Outcome:
    """Return the outcome of a response whose body does not end; without a status there is no response at all."""
    ends = asyncio.Event()

    async def drip() -> AsyncIterator[bytes]:
        yield b"one moment"
        await ends.wait()

    async with WebhookReceiver([NEW]) as receiver:
        if status is None:
            receiver.fault = "silence"
        else:
            receiver.status, receiver.body = status, drip()
        try:
            # Long enough for the status and the first bytes, also on a busy machine.
            return await send(message(receiver.url), timeout=2.0)
        finally:
            ends.set()


@pytest.mark.slow
async def test_an_endless_body_does_not_block_and_silence_is_unknown(subtests: pytest.Subtests) -> None:
    expected = {200: Delivered, 500: Retryable, 410: Invalid, None: Unknown}
    outcomes = await asyncio.gather(*map(outcome_of_endless_body, expected))
    for (status, kind), outcome in zip(expected.items(), outcomes, strict=True):
        with subtests.test(status=status):
            assert isinstance(outcome, kind)
            if status in (500, 410):
                assert getattr(outcome, "message", None) == "one moment"


async def test_only_the_start_of_a_huge_body_is_read(subtests: pytest.Subtests) -> None:
    for status, expected in [(200, Delivered), (500, Retryable)]:
        with subtests.test(status=status):
            async with WebhookReceiver([NEW]) as receiver:
                written = 0

                async def flood() -> AsyncIterator[bytes]:
                    nonlocal written
                    while written < HUGE:
                        written += 64 * 1024
                        yield b"x" * 64 * 1024

                receiver.status, receiver.body = status, flood()
                outcome = await send(message(receiver.url))
                assert isinstance(outcome, expected)
                assert len(getattr(outcome, "message", "")) < LARGEST_RESPONSE
                assert written < HUGE, "the whole body was read"


async def test_a_compressed_body_is_not_decompressed(receiver: WebhookReceiver) -> None:
    receiver.status, receiver.headers = 500, {"Content-Encoding": "gzip"}
    receiver.body = gzip.compress(b"bomb" * 1_000_000)
    outcome = await send(message(receiver.url))
    assert isinstance(outcome, Retryable)
    assert outcome.message.isprintable()
    assert "bombbomb" not in outcome.message


NOT_HTTP = [
    b"",
    b"\r\n\r\n",
    b"garbage\r\n\r\n",
    b"HTTP/1.1 2000 OK\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000 + b"\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 5",
    b"SSH-2.0-OpenSSH_9.6\r\n",
    b"\x16\x03\x01\x00\xff" * 20,
]


async def test_an_invalid_response_leaves_the_outcome_unknown(subtests: pytest.Subtests) -> None:
    content = b""

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}}")
        writer.write(content)
        writer.close()

    server = await asyncio.start_server(respond, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        for content in NOT_HTTP:
            with subtests.test(content=content[:60]):
                assert isinstance(await send(message(url)), Unknown)


async def test_a_refused_connection_is_retried() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        assert await send(message(f"http://127.0.0.1:{taken.getsockname()[1]}/")) == Retryable("unreachable")


async def test_a_receiver_without_tls_is_retried(receiver: WebhookReceiver) -> None:
    outcome = await send(message(receiver.url.replace("http:", "https:")))
    assert isinstance(outcome, Retryable)
    assert (outcome.code, receiver.log) == ("tls", [])


NOT_ENCODABLE: list[tuple[dict[str, Any], str]] = [
    ({"key": "a\r\nx-evil: 1"}, "bad_key"),
    ({"key": ""}, "bad_key"),
    ({"data": {"thing": object()}}, "bad_data"),
    ({"data": {"half": "\ud800"}}, "bad_data"),
]


async def test_a_message_that_cannot_be_encoded_is_not_sent(
    receiver: WebhookReceiver, subtests: pytest.Subtests
) -> None:
    for fields, code in NOT_ENCODABLE:
        with subtests.test(fields=fields):
            outcome = await send(message(receiver.url, **fields))
            assert isinstance(outcome, Failed)
            assert (outcome.code, receiver.log) == (code, [])


async def test_an_invalid_message_does_not_affect_the_others(receiver: WebhookReceiver) -> None:
    batch = [message(receiver.url, key="a"), message("nonsense", key="b"), message(receiver.url, key="c")]
    async with Exchange(private=True) as exchange:
        outcomes = await Webhook().send(batch, exchange)
    assert [type(outcome) for outcome in outcomes] == [Delivered, Invalid, Delivered]
    assert list(receiver.accepted) == ["a", "c"]


async def test_the_proxies_of_the_environment_are_not_used(
    receiver: WebhookReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with WebhookReceiver([NEW]) as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        assert await send(message(receiver.url)) == Delivered()
        assert proxy.log == []


INVALID_SETTINGS: list[dict[str, Any]] = [
    {"timeout": 14},
    {"timeout": 31},
    {"timeout": "x"},
    {"ports": []},
    {"ports": [0]},
]


async def test_invalid_settings_mean_down(receiver: WebhookReceiver, subtests: pytest.Subtests) -> None:
    for settings in INVALID_SETTINGS:
        with subtests.test(settings=settings):
            outcome = await send(message(receiver.url), account=settings)
            assert isinstance(outcome, Down)
            assert (outcome.code, receiver.log) == ("bad_settings", [])
            make: Callable[..., Webhook] = Webhook
            with pytest.raises(ConfigurationError):
                make(**settings)


async def test_other_settings_of_an_account_are_ignored(receiver: WebhookReceiver) -> None:
    assert await send(message(receiver.url), account={"timeout": 15, "label": "ours"}) == Delivered()


def test_retries_last_for_three_days() -> None:
    assert RETRY_DELAYS == (0, 5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400)
    assert Webhook.on_unknown == "retry"
