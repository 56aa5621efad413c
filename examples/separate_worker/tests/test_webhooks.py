"""Inbound webhooks over real HTTP: signed, stored once, and handled by a worker."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import pytest
from standardwebhooks import Webhook

from separate_worker.leads import follow_up, push_lead
from separate_worker.queues import connect, settings
from separate_worker.stand_ins import Crm
from separate_worker.tests.conftest import new_lead, scalar
from separate_worker.webhooks import LARGEST, add_integration, forget_messages, handle_message
from sereno.testing.kit import Kit

pytestmark = pytest.mark.slow

OTHER_SECRET = "whsec_" + "QUJD" * 8


@pytest.fixture
async def secret(kit: Kit) -> str:
    async with await connect() as connection:
        return await add_integration(connection, "forms", "acme")


def signed(secret: str, body: bytes, *, message: str = "msg_1", ago: float = 0.0) -> dict[str, str]:
    """Return the headers of Standard Webhooks for a body that was sent some seconds ago."""
    sent = datetime.now(UTC) - timedelta(seconds=ago)
    try:
        text = body.decode()
    except UnicodeDecodeError:
        text = ""
    signature = Webhook(secret).sign(message, sent, text)
    return {"webhook-id": message, "webhook-timestamp": str(int(sent.timestamp())), "webhook-signature": signature}


def created(reference: str, **more: Any) -> bytes:
    data = {"reference": reference, "email": f"{reference}@example.org", **more}
    return json.dumps({"type": "lead.created", "data": data}).encode()


def closed(reference: str) -> bytes:
    return json.dumps({"type": "lead.closed", "data": {"reference": reference}}).encode()


async def post(
    http: aiohttp.ClientSession, secret: str, body: bytes, message: str, where: str = "forms"
) -> tuple[int, Any]:
    async with http.post(f"/webhooks/{where}", data=body, headers=signed(secret, body, message=message)) as answer:
        return answer.status, await answer.json()


@pytest.mark.quick
async def test_a_signed_message_is_stored_once_and_handled_by_a_worker(
    kit: Kit, crm: Crm, http: aiohttp.ClientSession, secret: str
) -> None:
    status, first = await post(http, secret, created("form-1"), "msg_1")
    assert (status, kit.job(first["job"]).task) == (202, handle_message.name)
    assert await post(http, secret, created("form-1"), "msg_1") == (202, {"job": None})
    kit.assert_enqueued(handle_message, times=1, tenant="acme")
    assert not (await kit.adrain()).failed
    kit.assert_enqueued(push_lead, times=1, tenant="acme")
    assert [request.path for request in crm.log] == ["/acme/leads"]
    # Another message about the same lead is handled, and changes nothing.
    assert (await post(http, secret, created("form-1"), "msg_2"))[0] == 202
    assert not (await kit.adrain()).failed
    kit.assert_enqueued(push_lead, times=1)
    assert await scalar("select count(*) from separate_worker.webhook_messages where handled_at is not null") == 2


async def test_repeats_at_the_same_time_make_one_job(kit: Kit, http: aiohttp.ClientSession, secret: str) -> None:
    answers = await asyncio.gather(*(post(http, secret, created("form-1"), "msg_1") for _ in range(10)))
    assert {status for status, _ in answers} == {202}
    assert len([body for _, body in answers if body["job"] is not None]) == 1
    kit.assert_enqueued(handle_message, times=1)


async def test_a_closed_lead_gets_no_follow_up(kit: Kit, crm: Crm, http: aiohttp.ClientSession, secret: str) -> None:
    for number in (1, 2):
        await new_lead(f"form-{number}")
    _, answer = await post(http, secret, closed("form-1"), "msg_1")
    await kit.adrain()
    assert kit.job(answer["job"]).state == "succeeded"
    async with await connect() as connection:
        await connection.execute("update separate_worker.leads set follow_up_at = now()")
    kit.travel(settings.interval)
    assert not (await kit.adrain()).failed
    assert [job.args for job in kit.jobs(follow_up)] == [{"lead": 2}]


async def test_messages_may_arrive_in_any_order(kit: Kit, crm: Crm, http: aiohttp.ClientSession, secret: str) -> None:
    _, early = await post(http, secret, closed("form-1"), "msg_1")
    await kit.adrain()
    assert kit.job(early["job"]).state == "scheduled"
    await post(http, secret, created("form-1"), "msg_2")
    await kit.adrain()
    # The retry may be due already: its delay has a random part.
    kit.travel("1h")
    await kit.adrain()
    assert kit.job(early["job"]).state == "succeeded"
    assert await scalar("select count(*) from separate_worker.leads where closed_at is not null") == 1


async def test_a_message_that_no_code_can_handle_is_a_dead_letter_and_stays_stored(
    kit: Kit, http: aiohttp.ClientSession, secret: str
) -> None:
    bodies = (b'{"type": "lead.sold", "data": {}}', created("a/../b"), created("form-1", email="no address"))
    for number, body in enumerate(bodies):
        assert (await post(http, secret, body, f"msg_{number}"))[0] == 202
    assert [job.state for job in (await kit.adrain()).failed] == ["dead"] * 3
    reasons = [str(job.reason) for job in kit.jobs(handle_message)]
    assert "no code handles messages of type lead.sold" in reasons[0]
    assert all("the data of lead.created are invalid" in reason for reason in reasons[1:])
    assert await scalar("select count(*) from separate_worker.webhook_messages where handled_at is null") == 3


async def test_hostile_messages_are_refused(
    kit: Kit, http: aiohttp.ClientSession, secret: str, subtests: pytest.Subtests
) -> None:
    good = created("form-1")
    headers = signed(secret, good)
    surrogate = b'{"type": "lead.created", "data": {"reference": "\\ud800"}}'
    nul = b'{"type": "lead.created", "data": {"reference": "\\u0000"}}'
    deep = b'{"type": "a", "data": {"a": ' + b"[" * 20_000 + b"]" * 20_000 + b"}}"
    for name, path, body, given, status in [
        ("no headers", "forms", good, {}, 401),
        ("another body", "forms", created("form-2"), headers, 401),
        ("another id", "forms", good, {**headers, "webhook-id": "msg_2"}, 401),
        ("another secret", "forms", good, signed(OTHER_SECRET, good), 401),
        ("an old message", "forms", good, signed(secret, good, ago=600), 401),
        ("a message from the future", "forms", good, signed(secret, good, ago=-600), 401),
        ("no integration of this name", "unknown", good, headers, 401),
        ("an injection", "forms'--", good, headers, 401),
        ("a name with NUL", "forms%00", good, headers, 401),
        ("a signature without a version", "forms", good, {**headers, "webhook-signature": "v1"}, 401),
        ("a signature that is not base64", "forms", good, {**headers, "webhook-signature": "v1,***"}, 401),
        ("a timestamp that is no number", "forms", good, {**headers, "webhook-timestamp": "nan"}, 401),
        ("an endless timestamp", "forms", good, {**headers, "webhook-timestamp": "9" * 400}, 401),
        ("an id with dots", "forms", good, signed(secret, good, message="msg.1"), 401),
        ("a long id", "forms", good, signed(secret, good, message="m" * 201), 401),
        ("a body that is not text", "forms", b"\xff\xfe", signed(secret, b"\xff\xfe"), 401),
        ("a large body", "forms", b" " * (LARGEST + 1), signed(secret, b" " * (LARGEST + 1)), 413),
        ("no JSON", "forms", b"hello", signed(secret, b"hello"), 422),
        ("an array", "forms", b"[]", signed(secret, b"[]"), 422),
        ("no data", "forms", b'{"type": "a"}', signed(secret, b'{"type": "a"}'), 422),
        ("deep nesting", "forms", deep, signed(secret, deep), 422),
        ("a NUL character", "forms", nul, signed(secret, nul), 422),
        ("half a character", "forms", surrogate, signed(secret, surrogate), 422),
    ]:
        with subtests.test(name):
            async with http.post(f"/webhooks/{path}", data=body, headers=given) as answer:
                assert answer.status == status, await answer.text()
    assert kit.jobs() == []
    assert await scalar("select count(*) from separate_worker.webhook_messages") == 0


async def test_a_message_and_its_job_are_written_together_or_not_at_all(
    kit: Kit, http: aiohttp.ClientSession, secret: str
) -> None:
    """The job cannot be noted: the message is not stored either, and a repeat of the sender is a new message."""
    async with await connect() as connection:
        await connection.execute("alter table separate_worker.uncounted_jobs rename to away")
        try:
            async with http.post("/webhooks/forms", data=created("a"), headers=signed(secret, created("a"))) as answer:
                assert answer.status == 500
        finally:
            await connection.execute("alter table separate_worker.away rename to uncounted_jobs")
    assert kit.jobs() == []
    assert await scalar("select count(*) from separate_worker.webhook_messages") == 0
    status, answered = await post(http, secret, created("a"), "msg_1")
    assert (status, kit.job(answered["job"]).state) == (202, "ready")


async def test_a_replaced_secret_stays_valid_until_the_next_one(
    kit: Kit, http: aiohttp.ClientSession, secret: str
) -> None:
    async with await connect() as connection:
        second = await add_integration(connection, "forms", "acme")
        statuses = [(await post(http, each, created("a"), "msg_1"))[0] for each in (secret, second)]
        await add_integration(connection, "forms", "acme")
    statuses += [(await post(http, each, created("a"), "msg_1"))[0] for each in (secret, second)]
    assert statuses == [202, 202, 401, 202]


async def test_handled_messages_are_deleted_after_their_retention(
    kit: Kit, crm: Crm, http: aiohttp.ClientSession, secret: str
) -> None:
    await post(http, secret, created("form-1"), "msg_1")
    await post(http, secret, b'{"type": "lead.sold", "data": {}}', "msg_2")
    await kit.adrain()
    async with await connect() as connection:
        await connection.execute(
            "update separate_worker.webhook_messages set handled_at = handled_at - interval '31 days'"
        )
    assert settings.keep_messages_days == 30
    forgotten = await forget_messages.aenqueue()
    await kit.adrain()
    assert await forgotten.aresult() == 1
    # The dead letter keeps its message.
    assert await scalar("select string_agg(message_id, ' ') from separate_worker.webhook_messages") == "msg_2"
