"""Web Push with a push service that decrypts and verifies, and with the examples of the RFCs."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import ClientConnectorError, web
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from sereno.channels.contract import Exchange, Message
from sereno.channels.outcome import Down, Failed, Invalid, Outcome, Retryable, Sent, Unknown
from sereno.channels.ssrf import AddressRefused
from sereno.channels.web_push import (
    LARGEST_TEXT,
    TOKEN_USE,
    GuardedExchange,
    WebPush,
    _final_outcome,
    application_server_key,
    encrypt,
    private_key,
    vapid_token,
)
from sereno.errors import ConfigurationError, InvalidAddress
from sereno.testing.provider import Request
from sereno.testing.push_service import Browser, PushService, _verify, from_base64, in_base64

# RFC 8291, section 5 and appendix A.
EXAMPLE_TEXT = b"When I grow up, I want to be a watermelon"
EXAMPLE_AUTH = "BTBZMqHH6r4Tts7J_aSIgg"
EXAMPLE_BROWSER = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"
EXAMPLE_BROWSER_PRIVATE = "q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94"
EXAMPLE_SENDER = "yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"
EXAMPLE_SALT = "DGv6ra1nlYgDCS1FRnbzlw"
EXAMPLE_BODY = (
    "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_"
    "yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
)
# RFC 8292, section 2.4.
EXAMPLE_JWT = (
    "eyJ0eXAiOiJKV1QiLCJhbGciOiJFUzI1NiJ9.eyJhdWQiOiJodHRwczovL3B1c2guZXhhbXBsZS5uZXQiLCJleHAiOjE0NTM1MjM3NjgsInN1YiI6"
    "Im1haWx0bzpwdXNoQGV4YW1wbGUuY29tIn0.i3CYb7t4xfxCDquptFOepC9GAu_HLGkMlMuCGSK2rpiUfnK9ojFwDXb1JrErtmysazNjjvW2L9OkSS"
    "HzvoD1oA"
)
EXAMPLE_SIGNER = "BA1Hxzyi1RUM1b5wjxsn7nGxAszw2u61m164i3MrAIxHF6YK5h4SDYic-dRuU_RCPCfA5aq9ojSwk5Y2EmClBPs"

ACCOUNT = {"vapid_private_key": EXAMPLE_SENDER, "subject": "mailto:ops@example.org"}


@pytest.fixture
async def service() -> AsyncIterator[PushService]:
    async with PushService() as started:
        yield started


@pytest.fixture
async def exchange() -> AsyncIterator[Exchange]:
    async with Exchange(ACCOUNT, private=True, timeout=5.0) as opened:
        yield opened


def message(browser: Browser, number: int = 1, **more: Any) -> Message:
    content = {"title": "Pedido", "body": "Chegou", "data": {"order": number}} | more
    return Message(delivery=number, key=f"key-{number}", address=browser.address, keys=browser.keys, **content)


async def sent(exchange: Exchange, *batch: Message) -> list[Outcome]:
    return list(await WebPush().send(batch, exchange))


def test_a_message_is_encrypted_as_in_the_example_of_rfc_8291() -> None:
    body = encrypt(
        EXAMPLE_TEXT,
        from_base64(EXAMPLE_BROWSER),
        from_base64(EXAMPLE_AUTH),
        private_key(EXAMPLE_SENDER),
        from_base64(EXAMPLE_SALT),
    )
    assert in_base64(body) == EXAMPLE_BODY


def test_the_push_service_of_these_tests_reads_the_example_of_rfc_8291() -> None:
    browser = Browser("https://push.example.net/1")
    browser._private, browser._auth = private_key(EXAMPLE_BROWSER_PRIVATE), from_base64(EXAMPLE_AUTH)
    assert in_base64(browser.point) == EXAMPLE_BROWSER
    assert browser.read(from_base64(EXAMPLE_BODY)) == EXAMPLE_TEXT


def test_a_token_matches_the_example_of_rfc_8292() -> None:
    signed, _, signature = EXAMPLE_JWT.rpartition(".")
    _verify(signed, signature, EXAMPLE_SIGNER)
    key = private_key(EXAMPLE_SENDER)
    ours = vapid_token(key, "https://push.example.net", "mailto:push@example.com", 1453523768)
    assert ours.rpartition(".")[0] == signed
    _verify(signed, ours.rpartition(".")[2], application_server_key(EXAMPLE_SENDER))


async def test_a_browser_can_decrypt_the_message(service: PushService, exchange: Exchange) -> None:
    options = {"ttl": 60, "urgency": "high", "topic": "order_1", "notification": {"icon": "/bell.png"}}
    assert await sent(exchange, message(service.subscribe(), options=options)) == [Sent("1")]
    (received,) = service.received
    assert received.json() == {
        "title": "Pedido",
        "body": "Chegou",
        "id": "key-1",
        "data": {"order": 1},
        "icon": "/bell.png",
    }
    assert [received.headers[name] for name in ("ttl", "urgency", "topic")] == ["60", "high", "order_1"]
    assert received.claims["sub"] == "mailto:ops@example.org"


async def test_outcomes_are_in_order_and_an_invalid_message_does_not_affect_the_others(
    service: PushService, exchange: Exchange
) -> None:
    browsers = [service.subscribe() for _ in range(WebPush.batch)]
    browsers[3].is_gone = True
    batch = [message(browser, number) for number, browser in enumerate(browsers)]
    batch[7] = message(browsers[7], 7, options={"ttl": -1})
    outcomes = await sent(exchange, *batch)
    ids = {number: outcome.provider_id for number, outcome in enumerate(outcomes) if isinstance(outcome, Sent)}
    assert set(ids) == set(range(20)) - {3, 7}
    assert isinstance(outcomes[3], Invalid)
    assert isinstance(outcomes[7], Failed)
    for number, provider_id in ids.items():
        assert service.received[int(provider_id or 0) - 1].json()["id"] == f"key-{number}"


async def test_the_largest_text_is_sent_and_one_byte_more_is_not(service: PushService, exchange: Exchange) -> None:
    browser = service.subscribe()
    await sent(exchange, message(browser, body=""))
    left = LARGEST_TEXT - len(service.received[0].text)
    fits, too_large = await sent(exchange, message(browser, body="x" * left), message(browser, body="x" * (left + 1)))
    assert isinstance(fits, Sent)
    assert isinstance(too_large, Failed)
    assert too_large.code == "too_large"
    assert len(service.log[-1].body) == 4096


MALFORMED_KEYS: list[dict[str, Any]] = [
    {},
    {"p256dh": EXAMPLE_BROWSER},
    {"p256dh": EXAMPLE_BROWSER, "auth": "BTBZ"},
    {"p256dh": EXAMPLE_BROWSER, "auth": 7},
    {"p256dh": EXAMPLE_BROWSER, "auth": "é" * 22},
    {"p256dh": EXAMPLE_BROWSER[:-4], "auth": EXAMPLE_AUTH},
    {"p256dh": EXAMPLE_BROWSER * 1000, "auth": EXAMPLE_AUTH},
    {"p256dh": in_base64(b"\x04" + bytes(64)), "auth": EXAMPLE_AUTH},
    {"p256dh": in_base64(b"\x05" + from_base64(EXAMPLE_BROWSER)[1:]), "auth": EXAMPLE_AUTH},
]


async def test_malformed_keys_are_invalid_and_nothing_is_sent(
    service: PushService, exchange: Exchange, subtests: pytest.Subtests
) -> None:
    for keys in MALFORMED_KEYS:
        with subtests.test(keys=str(keys)[:160]):
            browser = service.subscribe()
            wrong = Message(delivery=1, key="k", address=browser.address, keys=keys)
            (outcome,) = await sent(exchange, wrong)
            assert isinstance(outcome, Invalid)
            assert outcome.code == "bad_keys"
            assert service.log == []


async def test_keys_with_padding_are_valid(service: PushService, exchange: Exchange) -> None:
    browser = service.subscribe()
    keys = {name: text + "=" * (-len(text) % 4) for name, text in browser.keys.items()}
    padded = Message(delivery=1, key="k", address=browser.address, keys=keys)
    assert await sent(exchange, padded) == [Sent("1")]


INVALID_OPTIONS: list[dict[str, Any]] = [
    {"ttl": -1},
    {"ttl": True},
    {"ttl": "60"},
    {"ttl": 10**9},
    {"urgency": "now"},
    {"urgency": ["high"]},
    {"urgency": "high\r\nX-Evil: 1"},
    {"topic": "x" * 33},
    {"topic": "a b"},
    {"topic": "a\nb"},
    {"topic": ""},
    {"topic": 7},
    {"notification": "bell"},
    {"notification": {"icon": object()}},
]


@pytest.mark.slow
async def test_invalid_options_fail_the_message_and_nothing_is_sent(
    service: PushService, exchange: Exchange, subtests: pytest.Subtests
) -> None:
    for options in INVALID_OPTIONS:
        with subtests.test(options=options):
            (outcome,) = await sent(exchange, message(service.subscribe(), options=options))
            assert isinstance(outcome, Failed)
            assert outcome.code == "bad_message"
            assert service.log == []


class Answering(PushService):
    """Returns the given response."""

    def __init__(self, **response: Any) -> None:
        super().__init__()
        self.response = response

    async def answer(self, request: Request) -> web.StreamResponse:  # noqa: ARG002 - the same for every request
        return web.Response(**self.response)


RESPONSES: list[tuple[dict[str, Any], type, str | None]] = [
    ({"status": 200}, Sent, None),
    ({"status": 202}, Sent, None),
    ({"status": 201, "headers": {"Location": "https://x/" + "y" * 400}}, Sent, None),
    ({"status": 200, "text": "<html>", "content_type": "text/html"}, Unknown, "no_push_service"),
    ({"status": 204}, Unknown, "http_204"),
    ({"status": 302, "headers": {"Location": "http://127.0.0.1:1/"}}, Failed, "http_302"),
    ({"status": 400}, Failed, "http_400"),
    ({"status": 401}, Down, "http_401"),
    ({"status": 403}, Down, "http_403"),
    ({"status": 404}, Invalid, "gone"),
    ({"status": 410}, Invalid, "gone"),
    ({"status": 413}, Failed, "http_413"),
    ({"status": 429}, Retryable, "http_429"),
    ({"status": 500}, Retryable, "http_500"),
    ({"status": 429, "headers": {"Retry-After": "Mon, 01 Jan 99999999999999999999 00:00 GMT"}}, Retryable, None),
]


async def test_each_response_has_an_outcome(exchange: Exchange, subtests: pytest.Subtests) -> None:
    for response, kind, code in RESPONSES:
        with subtests.test(response=response):
            async with Answering(**response) as service:
                (outcome,) = await sent(exchange, message(service.subscribe()))
            assert isinstance(outcome, kind)
            if isinstance(outcome, Sent):
                assert outcome.provider_id is None
            elif code is not None:
                assert getattr(outcome, "code", None) == code


async def test_the_time_to_wait_is_read_from_the_response(exchange: Exchange) -> None:
    async with Answering(status=503, headers={"Retry-After": "120"}) as service:
        (outcome,) = await sent(exchange, message(service.subscribe()))
    assert isinstance(outcome, Retryable)
    assert outcome.after == 120


async def test_a_subscription_with_another_key_does_not_stop_the_channel(exchange: Exchange) -> None:
    class Strict(PushService):
        stale = ""

        async def answer(self, request: Request) -> web.StreamResponse:
            if request.path == self.stale:
                return web.Response(status=403, text="the keys do not correspond")
            return await super().answer(request)

    async with Strict() as service:
        stale, good = service.subscribe(), service.subscribe()
        service.stale = stale.address.removeprefix(service.url)
        channel = WebPush()
        assert isinstance((await channel.send([message(stale)], exchange))[0], Down), (
            "no push service has accepted our key yet"
        )
        first, second = await channel.send([message(stale), message(good)], exchange)
        assert isinstance(second, Sent)
        assert isinstance(first, Failed)
        assert first.code == "other_key"
        assert isinstance((await channel.send([message(stale)], exchange))[0], Failed)


async def test_a_key_unknown_to_the_service_means_down(service: PushService, exchange: Exchange) -> None:
    service.sender = EXAMPLE_SIGNER
    outcomes = await sent(exchange, message(service.subscribe()), message(service.subscribe()))
    assert [type(outcome) for outcome in outcomes] == [Down, Down]


async def test_a_token_is_reused_for_an_hour(service: PushService, exchange: Exchange) -> None:
    clock = [1_800_000_000.0]
    channel, browser = WebPush(now=lambda: clock[0]), service.subscribe()
    for ahead in (0, TOKEN_USE - 1, TOKEN_USE + 1, -10):
        clock[0] = 1_800_000_000.0 + ahead
        await channel.send([message(browser)], exchange)
    tokens = [request.headers["authorization"] for request in service.log]
    assert tokens[0] == tokens[1]
    assert len(set(tokens)) == 3, "a clock that was set back causes a new token as well"


async def test_cached_tokens_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sereno.channels.web_push.MOST_TOKENS", 3)
    channel, key = WebPush(), private_key(EXAMPLE_SENDER)
    for number in range(9):
        channel._token(f"https://{number}.example.org", key, "mailto:a@example.org")
    assert len(channel._tokens) == 3


def pem(key: Any) -> str:
    made: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return made.decode()


async def test_the_key_of_the_account_may_be_pem(service: PushService) -> None:
    key = pem(private_key(EXAMPLE_SENDER))
    assert application_server_key(key) == application_server_key(EXAMPLE_SENDER)
    async with Exchange(ACCOUNT | {"vapid_private_key": key}, private=True) as exchange:
        assert await sent(exchange, message(service.subscribe())) == [Sent("1")]


WRONG_KEYS: list[Callable[[], Any]] = [
    lambda: None,
    lambda: 7,
    lambda: "",
    lambda: "secret-secret-secret",
    lambda: in_base64(bytes(32)),
    lambda: in_base64(b"\xff" * 32),
    lambda: pem(rsa.generate_private_key(65537, 1024)),  # noqa: S505 - small keys are made quickly
    lambda: pem(ec.generate_private_key(ec.SECP384R1())),
    lambda: "-----BEGIN PRIVATE KEY-----\nnothing\n-----END PRIVATE KEY-----",
    lambda: pem(private_key(EXAMPLE_SENDER)).replace("M", "ü"),
]


async def test_an_invalid_key_means_down_and_is_not_repeated(service: PushService, subtests: pytest.Subtests) -> None:
    for make in WRONG_KEYS:
        with subtests.test(make=make):
            key = make()
            with pytest.raises(ConfigurationError):
                private_key(key)
            async with Exchange(ACCOUNT | {"vapid_private_key": key}, private=True) as exchange:
                outcomes = await sent(exchange, message(service.subscribe()), message(service.subscribe()))
            assert [type(outcome) for outcome in outcomes] == [Down, Down]
            assert not key or str(key) not in repr(outcomes)
            assert service.log == []


async def test_nothing_is_sent_without_a_subject(service: PushService, subtests: pytest.Subtests) -> None:
    for subject in [None, "", "ops@example.org", "http://example.org", "mailto:a\r\nb", 7]:
        with subtests.test(subject=subject):
            async with Exchange(ACCOUNT | {"subject": subject}, private=True) as exchange:
                assert isinstance((await sent(exchange, message(service.subscribe())))[0], Down)
            assert service.log == []


async def test_the_account_wins_over_the_constructor(service: PushService) -> None:
    channel = WebPush(vapid_private_key="nonsense", subject="mailto:a@example.org", ttl=5)
    async with Exchange({"vapid_private_key": EXAMPLE_SENDER}, private=True) as exchange:
        assert await channel.send([message(service.subscribe())], exchange) == [Sent("1")]
    assert service.received[0].headers["ttl"] == "5"
    assert service.received[0].claims["sub"] == "mailto:a@example.org"


async def test_a_private_host_is_called_only_if_private_is_set(service: PushService, subtests: pytest.Subtests) -> None:
    for host in ["http://127.0.0.1", "https://127.0.0.1", "https://localhost", "https://[::1]"]:
        with subtests.test(host=host):
            port = service.url.rpartition(":")[2]
            endpoint = Message(delivery=1, key="k", address=f"{host}:{port}/push/1", keys=service.subscribe().keys)
            plain = Message(delivery=2, key="k", address=f"{host}/push/1", keys=endpoint.keys)
            async with Exchange(ACCOUNT, timeout=5.0) as exchange:
                outcomes = await sent(exchange, endpoint, plain)
            assert not any(isinstance(outcome, Sent) for outcome in outcomes)
            assert service.log == []


async def test_a_name_with_a_private_address_is_not_called(service: PushService) -> None:
    """The name passes the check of the URL; the connection is refused."""
    url = service.url.replace("127.0.0.1", "localhost")
    async with GuardedExchange(ACCOUNT, timeout=5.0) as exchange:
        with pytest.raises(ClientConnectorError) as caught:
            await exchange.http.post(url)
    assert isinstance(caught.value.os_error, AddressRefused)
    assert service.log == []


def test_invalid_endpoints_are_refused(subtests: pytest.Subtests) -> None:
    for address in [
        "",
        "push.example.net/1",
        "ftp://a/b",
        "https://",
        "https://user:pw@a/b",
        "https://a:99999/",
        "https://a/\n",
    ]:
        with subtests.test(address=address), pytest.raises(InvalidAddress):
            WebPush().check_address(address)


def test_endpoints_of_browsers_are_stored_unchanged(subtests: pytest.Subtests) -> None:
    for address in [
        "https://fcm.googleapis.com/fcm/send/dGVzdA:APA91b-_x",
        "https://updates.push.services.mozilla.com/wpush/v2/gAAAAABl_-x",
        "https://wns2-par02p.notify.windows.com/w/?token=BQYAAAD%2b%2fx",
        "https://web.push.apple.com/QGuQyavXutnMH",
    ]:
        with subtests.test(address=address):
            assert WebPush().check_address(address) == address


def test_only_a_known_push_service_can_stop_the_channel(subtests: pytest.Subtests) -> None:
    for address, kind in [
        ("https://fcm.googleapis.com/fcm/send/1", Down),
        ("https://web.push.apple.com/1", Down),
        ("https://push.example.org/1", Failed),
        ("https://storage.googleapis.com/1", Failed),
        ("https://notfcm.googleapis.com.example.org/1", Failed),
    ]:
        with subtests.test(address=address):
            message = Message(
                delivery=1, key="k", address=address, keys={"p256dh": EXAMPLE_BROWSER, "auth": EXAMPLE_AUTH}
            )
            ready = WebPush()._prepare(message, ACCOUNT, private_key(EXAMPLE_SENDER), ACCOUNT["subject"], private=False)
            assert isinstance(_final_outcome(ready, Down("http_401")), kind)
