"""Expo: one outcome per message, whatever Expo returns; an accepted message is never sent twice."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any, get_args

import pytest

from sereno.channels.contract import Exchange, Message
from sereno.channels.expo import Expo
from sereno.channels.outcome import Down, Failed, Invalid, Outcome, Receipt, Retryable, Sent, Unknown
from sereno.errors import InvalidAddress
from sereno.testing.expo import ExpoProvider
from sereno.testing.provider import RETRY_AFTER, Fault

SECRET = "canary-9d41-access-token"  # noqa: S105 - a canary, and no secret
UUID = "7f3a1b2c-0d4e-4f5a-8b6c-1d2e3f4a5b6c"
MIXED = "PUSH_TOO_MANY_EXPERIENCE_IDS"


@pytest.fixture
async def expo() -> AsyncIterator[ExpoProvider]:
    async with ExpoProvider() as provider:
        yield provider


def token(name: object) -> str:
    return f"ExponentPushToken[{name}]"


def message(name: object, **fields: Any) -> Message:
    return Message(delivery=1, key="k", address=token(name), **{"title": "Hi", "body": "there", **fields})


async def send(provider: ExpoProvider, *messages: Message, timeout: float = 20.0, **account: Any) -> list[Outcome]:
    async with Exchange({"url": provider.url, **account}, timeout=timeout) as exchange:
        return list(await Expo().send(messages, exchange))


def kinds(outcomes: list[Outcome]) -> list[type]:
    return [type(outcome) for outcome in outcomes]


def test_an_address_is_a_push_token_or_a_uuid(subtests: pytest.Subtests) -> None:
    for address in [token("a-b_c:1"), "ExpoPushToken[x]", UUID, f"  {token('a')}\n"]:
        with subtests.test(address=address):
            assert Expo().check_address(address) == address.strip()


async def test_invalid_addresses_are_refused_and_never_reach_expo(subtests: pytest.Subtests) -> None:
    for address in [
        "",
        "ExponentPushToken[]",
        "ExponentPushToken[a",
        "x" + token("a"),
        token("a b"),
        token("a]["),
        UUID[:-1],
        "fcm:x",
    ]:
        with subtests.test(address=address):
            async with ExpoProvider() as expo:
                with pytest.raises(InvalidAddress):
                    Expo().check_address(address)
                wrong = Message(delivery=1, key="k", address=address, title="Hi")
                outcomes = await send(expo, message(1), wrong, message(2))
                assert kinds(outcomes) == [Sent, Invalid, Sent]
                assert expo.batches() == [[token(1), token(2)]]


async def test_a_message_is_sent_with_its_fields_and_known_options_only(expo: ExpoProvider) -> None:
    options = {
        "sound": "default",
        "badge": 3,
        "ttl": 60,
        "priority": "high",
        "channelId": "orders",
        "categoryId": "c",
        "subtitle": "s",
        "mutableContent": True,
    }
    unknown = {"to": token("other"), "title": "another", "_contentAvailable": True}
    sent = message(1, data={"order": 7}, options={**options, **unknown})
    assert kinds(await send(expo, sent, message(2, title="", options={"badge": None}))) == [Sent, Sent]
    assert expo.accepted == [
        {"to": token(1), "title": "Hi", "body": "there", "data": {"order": 7}, **options},
        {"to": token(2), "body": "there"},
    ]


async def test_outcomes_are_in_the_order_of_the_messages(expo: ExpoProvider) -> None:
    expo.tickets = {token(1): "DeviceNotRegistered", token(3): "MessageRateExceeded"}
    outcomes = await send(expo, *[message(n) for n in range(5)], message(5, body="x" * 5000))
    assert kinds(outcomes) == [Sent, Invalid, Sent, Retryable, Sent, Failed]
    ids = [outcome.provider_id for outcome in outcomes if isinstance(outcome, Sent)]
    assert len(set(ids)) == 3
    assert [each["to"] for each in expo.accepted] == [token(0), token(2), token(4)]


TICKET_CODES: list[tuple[str, type]] = [
    ("DeviceNotRegistered", Invalid),
    ("MessageTooBig", Failed),
    ("MessageRateExceeded", Retryable),
    ("MismatchSenderId", Down),
    ("InvalidCredentials", Down),
    ("ProviderError", Retryable),
    ("ExpoError", Retryable),
    ("TOO_MANY_REQUESTS", Retryable),
    ("NewerThanThisCode", Failed),
]


async def test_a_code_in_a_ticket_is_for_that_message_only(subtests: pytest.Subtests) -> None:
    for code, kind in TICKET_CODES:
        with subtests.test(code=code):
            async with ExpoProvider() as expo:
                expo.tickets[token(2)] = code
                outcomes = await send(expo, message(1), message(2), message(3))
                assert kinds(outcomes) == [Sent, kind, Sent]
                assert getattr(outcomes[1], "code", None) == code
                # A reader of the outcome could push with the token.
                assert token(2) not in repr(outcomes)


INVALID_MESSAGES: list[tuple[dict[str, Any], str]] = [
    ({"body": "é" * 2048}, "MessageTooBig"),
    ({"data": {"x": "y" * 4090}}, "MessageTooBig"),
    ({"options": {"badge": "three"}}, "Malformed"),
    ({"options": {"priority": "urgent"}}, "Malformed"),
    ({"data": {"x": object()}}, "Malformed"),
    ({"body": "\ud800"}, "Malformed"),
]


async def test_an_invalid_message_does_not_affect_the_others(subtests: pytest.Subtests) -> None:
    for wrong, code in INVALID_MESSAGES:
        with subtests.test(wrong=str(wrong)[:40], code=code):
            async with ExpoProvider() as expo:
                outcomes = await send(expo, message(1), message(2, **wrong), message(3))
                assert kinds(outcomes) == [Sent, Failed, Sent]
                assert getattr(outcomes[1], "code", None) == code
                assert expo.batches() == [[token(1), token(3)]]


async def test_the_largest_message_is_sent(expo: ExpoProvider) -> None:
    frame = len('{"title":"Hi","body":""}')
    assert kinds(await send(expo, message(1, body="x" * (4096 - frame), options={"ttl": 9}))) == [Sent]
    assert kinds(await send(expo, message(1, body="x" * (4097 - frame)))) == [Failed]


async def test_a_large_body_is_compressed_and_a_small_one_is_not(expo: ExpoProvider) -> None:
    assert kinds(await send(expo, message(1))) == [Sent]
    assert kinds(await send(expo, *[message(n, body="x" * 50) for n in range(100)])) == [Sent] * 100
    small, large = expo.log
    assert "content-encoding" not in small.headers
    assert large.headers["content-encoding"] == "gzip"
    assert int(large.headers["content-length"]) < 2000 < len(json.dumps(expo.accepted[1:]))


async def test_messages_are_sent_in_requests_of_a_hundred(expo: ExpoProvider) -> None:
    assert kinds(await send(expo, *[message(n) for n in range(250)])) == [Sent] * 250
    assert [len(batch) for batch in expo.batches()] == [100, 100, 50]
    assert await send(expo) == []
    assert len(expo.log) == 3


async def test_each_project_gets_its_own_request(expo: ExpoProvider) -> None:
    expo.projects = {token(n): f"@shop/{'abc'[n % 3]}" for n in range(7)}
    expo.tickets[token(4)] = "DeviceNotRegistered"
    outcomes = await send(expo, *[message(n) for n in range(7)])
    assert kinds(outcomes) == [Sent, Sent, Sent, Sent, Invalid, Sent, Sent]
    parts = [[token(0), token(3), token(6)], [token(1), token(4)], [token(2), token(5)]]
    assert expo.batches()[1:] == parts
    assert len(expo.accepted) == 6


async def test_tokens_that_a_split_does_not_name_are_retried(expo: ExpoProvider) -> None:
    expo.say({"errors": [{"code": MIXED, "details": {"@a": [token(1)], "@b": [token(3), 7], "@c": None}}]}, 400)
    outcomes = await send(expo, *[message(n) for n in range(1, 5)])
    assert kinds(outcomes) == [Sent, Retryable, Sent, Retryable]
    assert expo.batches()[1:] == [[token(1)], [token(3)]]


SPLITS: list[Any] = [None, [], {}, {"@a": [token(1), token(2)]}, {"@a": {"x": 1}}]


async def test_a_split_into_one_project_ends(subtests: pytest.Subtests) -> None:
    for details in SPLITS:
        with subtests.test(details=details):
            async with ExpoProvider() as expo:
                expo.say({"errors": [{"code": MIXED, "message": "m", "details": details}]}, 400)
                assert await send(expo, message(1), message(2)) == [Retryable(MIXED, "m")] * 2
                assert len(expo.log) == 1


async def test_a_refused_request_is_halved_until_the_faulty_message_is_alone(expo: ExpoProvider) -> None:
    expo.refused = {token(37)}
    outcomes = await send(expo, *[message(n) for n in range(100)])
    assert kinds(outcomes) == [Sent] * 37 + [Failed] + [Sent] * 62
    assert getattr(outcomes[37], "code", None) == "VALIDATION_ERROR"
    assert sorted(each["to"] for each in expo.accepted) == sorted(token(n) for n in range(100) if n != 37)
    assert len(expo.log) <= 15


async def test_a_request_with_too_many_messages_is_halved(expo: ExpoProvider) -> None:
    expo.say({"errors": [{"code": "PUSH_TOO_MANY_NOTIFICATIONS"}]}, 400)
    assert kinds(await send(expo, message(1), message(2), message(3))) == [Sent] * 3
    assert expo.batches()[1:] == [[token(1), token(2)], [token(3)]]


REQUEST_ERRORS: list[tuple[int, Any, Outcome]] = [
    (429, {"errors": [{"code": "TOO_MANY_REQUESTS"}]}, Retryable("TOO_MANY_REQUESTS", after=3.0)),
    (200, {"errors": [{"code": "TOO_MANY_REQUESTS"}]}, Retryable("TOO_MANY_REQUESTS", after=3.0)),
    (200, {"errors": [{"code": "ExpoError"}], "data": []}, Retryable("ExpoError", after=3.0)),
    (400, {"errors": [{"code": "InvalidCredentials"}]}, Down("InvalidCredentials")),
    (403, {"errors": [{"code": "UNAUTHORIZED"}]}, Down("UNAUTHORIZED")),
    (404, b"nothing", Down("http_404", "nothing")),
    (302, b"", Down("http_302")),
    (200, {"errors": [{"code": "SOMETHING_NEW"}]}, Unknown("SOMETHING_NEW")),
    (200, {"errors": [{"code": "x" * 999}]}, Unknown("unspecified")),
]


async def test_an_error_of_the_request_is_the_outcome_of_all_messages(subtests: pytest.Subtests) -> None:
    for status, content, expected in REQUEST_ERRORS:
        with subtests.test(status=status, content=str(content)[:80]):
            async with ExpoProvider() as expo:
                expo.say(content, status, {"Retry-After": "3"})
                assert await send(expo, message(1), message(2)) == [expected] * 2
                assert len(expo.log) == 1


INVALID_RESPONSES: list[Any] = [
    {"data": [{"status": "ok", "id": "1"}]},
    {"data": [{"status": "ok", "id": str(n)} for n in range(3)]},
    {"data": {"status": "ok", "id": "1"}},
    {"data": [None, "ok"]},
    {"data": [{"status": "ok"}, {"status": "ok", "id": 7}]},
    {"data": []},
    {"errors": "no"},
    [],
    b"[" * 100_000,
    b'{"data": "\xff"}',
    b"",
]


async def test_an_invalid_response_leaves_the_outcome_unknown(subtests: pytest.Subtests) -> None:
    for content in INVALID_RESPONSES:
        with subtests.test(content=str(content)[:80]):
            async with ExpoProvider() as expo:
                expo.say(content)
                assert kinds(await send(expo, message(1), message(2))) == [Unknown] * 2
                assert len(expo.log) == 1


async def test_an_invalid_ticket_does_not_affect_the_others(expo: ExpoProvider) -> None:
    expo.say({"data": [{"status": "ok", "id": "1"}, {"status": "?"}, {"status": "error", "details": 7}]})
    outcomes = await send(expo, message(1), message(2), message(3))
    assert kinds(outcomes) == [Sent, Unknown, Failed]


async def test_every_message_of_a_request_has_the_outcome_of_a_fault(expo: ExpoProvider) -> None:
    expo.fault = "busy"
    outcomes = await send(expo, message(1), message(2), access_token=SECRET)
    assert outcomes == [Retryable("http_429", "slow down", after=RETRY_AFTER)] * 2
    assert len(expo.log) == 1


async def test_remaining_parts_are_not_sent_after_a_failure(expo: ExpoProvider) -> None:
    expo.projects = {token(1): "@a", token(2): "@b"}
    expo.say({"errors": [{"code": MIXED, "details": {"@a": [token(1)], "@b": [token(2)]}}]}, 400)
    expo.say(b"<html>")
    outcomes = await send(expo, message(1), message(2))
    assert kinds(outcomes) == [Unknown, Retryable]
    assert getattr(outcomes[1], "code", None) == "not_sent"
    assert expo.batches()[1:] == [[token(1)]]


INVALID_SETTINGS: list[dict[str, Any]] = [
    {"url": 7},
    {"url": "http://u:p@h"},
    {"url": "http://.."},
    {"access_token": "a\r\nb"},
]


async def test_invalid_settings_are_reported_before_anything_is_sent(
    expo: ExpoProvider, subtests: pytest.Subtests
) -> None:
    for account in INVALID_SETTINGS:
        with subtests.test(account=account):
            assert kinds(await send(expo, message(1), **{"url": expo.url, **account})) == [Down]
            assert expo.log == []


async def test_the_access_token_is_sent_to_expo_only() -> None:
    async with ExpoProvider(access_token=SECRET) as expo:
        async with Exchange({"url": expo.url}) as exchange:
            assert kinds(list(await Expo().send([message(1)], exchange))) == [Down]
            assert kinds(list(await Expo(SECRET).send([message(1)], exchange))) == [Sent]
        assert kinds(await send(expo, message(1), access_token=SECRET)) == [Sent]
        wrong = await send(expo, message(1), access_token=SECRET[::-1])
        expo.say({"errors": [{"code": SECRET, "message": "x" * 290 + SECRET}]}, 403)
        escaped = "".join(f"\\u{ord(letter):04x}" for letter in SECRET)
        expo.say(f'{{"data": [{{"status": "error", "message": "{escaped}"}}]}}'.encode())
        outcomes_of_both = [await send(expo, message(1), access_token=SECRET) for _ in range(2)]
        assert expo.keys == [SECRET, SECRET, SECRET[::-1], SECRET, SECRET]
    assert [kinds(wrong), *map(kinds, outcomes_of_both)] == [[Down], [Down], [Failed]]
    assert SECRET[::-1] not in repr(wrong)
    assert "canary" not in repr([outcomes_of_both, Expo(SECRET)])


async def test_the_seventh_concurrent_connection_is_refused(expo: ExpoProvider) -> None:
    expo.open.clear()
    calls = [asyncio.ensure_future(send(expo, message(n))) for n in range(7)]
    done, held = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
    expo.open.set()
    assert [kinds(each.result()) for each in done] == [[Retryable]]
    assert [kinds(each) for each in await asyncio.gather(*held)] == [[Sent]] * 6


async def test_a_throttled_project_gets_the_time_to_wait() -> None:
    clock = [0.0]
    async with ExpoProvider(per_second=3, now=lambda: clock[0]) as expo:
        assert kinds(await send(expo, message(1), message(2))) == [Sent, Sent]
        late = await send(expo, message(3), message(4))
        assert [getattr(each, "after", None) for each in late] == [1.0, 1.0]
        clock[0] = 1.0
        assert kinds(await send(expo, message(3), message(4))) == [Sent, Sent]


RECEIPTS = {
    "DeviceNotRegistered": "invalid",
    "MessageRateExceeded": "retry",
    "MismatchSenderId": "down",
    "InvalidCredentials": "down",
    "MessageTooBig": "failed",
    "ProviderError": "failed",
    "NewerThanThisCode": "failed",
}


async def ids_of(expo: ExpoProvider, *names: object) -> list[str]:
    outcomes = await send(expo, *[message(name) for name in names])
    return [str(outcome.provider_id) for outcome in outcomes if isinstance(outcome, Sent)]


async def test_receipts_have_an_outcome_and_missing_ones_are_omitted(expo: ExpoProvider) -> None:
    expo.receipts_of = {token(code): code for code in RECEIPTS} | {token("later"): None}
    ids = await ids_of(expo, "fine", "later", *RECEIPTS)
    async with Exchange({"url": expo.url}) as exchange:
        found = await Expo().receipts([*ids, UUID, ids[0]], exchange)
    assert [each.provider_id for each in found] == [ids[0], *ids[2:]]
    assert [(each.code, each.outcome) for each in found] == [("", "delivered"), *RECEIPTS.items()]
    assert "PushToken[fine" not in repr(found)


async def test_an_invalid_id_does_not_hide_the_other_receipts(expo: ExpoProvider) -> None:
    ids = await ids_of(expo, 1, 2, 3)
    expo.say({"errors": [{"code": "PUSH_TOO_MANY_RECEIPTS"}]}, 400)
    async with Exchange({"url": expo.url}) as exchange:
        found = await Expo().receipts([ids[0], "no id", *ids[1:]], exchange)
    assert [each.provider_id for each in found] == ids


async def test_receipts_are_requested_in_batches_of_a_thousand(expo: ExpoProvider) -> None:
    async with Exchange({"url": expo.url}) as exchange:
        assert await Expo().receipts([f"{n:08}{UUID[8:]}" for n in range(1500)], exchange) == ()
    assert [len(request.json()["ids"]) for request in expo.log] == [1000, 500]


async def receipts_with_fault(fault: Fault) -> Sequence[Receipt]:
    async with ExpoProvider() as expo, Exchange({"url": expo.url}, timeout=1.0) as exchange:
        expo.fault = fault
        return await Expo().receipts([UUID], exchange)


@pytest.mark.slow
async def test_a_provider_with_a_fault_has_no_receipts() -> None:
    faults: tuple[Fault, ...] = get_args(Fault)
    assert await asyncio.gather(*map(receipts_with_fault, faults)) == [()] * len(faults)


async def test_invalid_receipts_are_ignored(subtests: pytest.Subtests) -> None:
    for content in [b"<html>", [], {"data": []}, {"data": {UUID: 7}}, {"errors": [{"code": "x"}]}]:
        with subtests.test(content=content):
            async with ExpoProvider() as expo:
                expo.say(content)
                async with Exchange({"url": expo.url}) as exchange:
                    assert await Expo().receipts([UUID], exchange) == ()
