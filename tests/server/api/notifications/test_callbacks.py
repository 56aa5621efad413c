"""Callbacks of providers need no token, but a valid signature."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import psycopg
import pytest

from sereno import Sereno
from sereno.channels.contract import Callback, Exchange
from sereno.channels.outcome import Receipt
from sereno.channels.twilio import Twilio, signature
from sereno.errors import RejectedCallback
from tests.facts import one
from tests.notifications.conftest import Pager, Tender
from tests.server.api.conftest import Ask

TOKEN = "t" * 32
PUBLIC_URL = "https://notify.example.com/sereno"


class Unreachable(Pager):
    """Cannot load what it needs to verify a callback."""

    async def read_callback(self, callback: Callback, exchange: Exchange) -> Sequence[Receipt]:  # noqa: ARG002 - of the contract
        raise ConnectionError("the certificate cannot be loaded")


class Signed(Pager):
    """Accepts callbacks that contain the secret of the account."""

    def __init__(self) -> None:
        super().__init__()
        self.received: list[Callback] = []

    def webhook(self, callback: Callback, account: Mapping[str, Any]) -> Sequence[Receipt]:
        self.received.append(callback)
        if callback.headers.get("x-word") != account.get("word", "open"):
            raise RejectedCallback("the word does not match")
        return self.receipts_to_return


@pytest.fixture
def pager() -> Signed:
    return Signed()


@pytest.fixture
def delivery(app: Sereno, pager: Signed) -> int:
    """The id of a sent delivery; the provider's callback will report that it arrived."""
    news = app.event("tender.published", Tender, channels=[pager])

    async def send_event() -> None:
        await app.recipients.aupsert("ada", {"pager": "a1"})
        await app.notifications.fanout.fan_out(await news.anotify(Tender("T1"), to="ada"))
        await app.notifications.sender.deliver(1, "pager", "", -2)
        await app.database.aclose()

    asyncio.run(send_event())
    delivery = pager.sent[0].delivery
    pager.receipts_to_return = [Receipt(provider_id=f"p{delivery}", outcome="delivered", id="r1")]
    return delivery


def test_a_signed_callback_is_accepted(ask: Ask, delivery: int, pager: Signed, connection: psycopg.Connection) -> None:
    client = ask(None)
    answer = client.post("/callbacks/pager?a=1", content=b"\xff\x00 as it came", headers={"X-Word": "open"})
    assert (answer.status_code, answer.json()) == (200, {"received": True})
    assert one(connection, "select state from sereno.deliveries where id = %s", delivery) == "delivered"
    (received,) = pager.received
    assert (received.body, received.query) == (b"\xff\x00 as it came", {"a": "1"})
    assert received.url == f"{client.base_url}callbacks/pager?a=1"


def test_an_unsigned_callback_is_refused_without_details(
    ask: Ask, delivery: int, app: Sereno, connection: psycopg.Connection
) -> None:
    client = ask(None)
    refused = client.post("/callbacks/pager", headers={"X-Word": "guess"})
    assert refused.status_code == 403
    assert "word" not in refused.text
    assert client.post("/callbacks/in_app").status_code == 403
    for path in ("/callbacks/unknown", "/callbacks/sms", "/callbacks/unknown/r42", "/callbacks/%00"):
        assert client.post(path).status_code == 404
    assert client.post(f"/callbacks/pager/{'x' * 3000}", headers={"X-Word": "open"}).status_code == 403
    assert client.post("/callbacks/pager/%00", headers={"X-Word": "open"}).status_code == 403
    assert client.post("/callbacks/pager", content=b"x" * 5_000_000, headers={"X-Word": "open"}).status_code == 413
    app.override(read_only=True)
    assert client.post("/callbacks/pager", headers={"X-Word": "open"}).status_code == 403
    assert one(connection, "select state from sereno.deliveries where id = %s", delivery) == "sent"


def test_the_reason_of_a_refusal_is_logged_at_a_rate(
    ask: Ask, app: Sereno, pager: Signed, caplog: pytest.LogCaptureFixture
) -> None:
    app.channels.add(pager)
    client = ask(None)
    for _ in range(20):
        client.post("/callbacks/pager", headers={"X-Word": "guess"})
    records = [each for each in caplog.records if getattr(each, "event", None) == "callback.refused"]
    assert len(records) < 20
    assert records[0].levelno == logging.WARNING
    assert records[0].getMessage() == "a callback of the channel pager was refused: the word does not match"


def test_a_callback_that_cannot_be_verified_now_is_sent_again(
    ask: Ask, app: Sereno, caplog: pytest.LogCaptureFixture
) -> None:
    app.channels.add(Unreachable())
    answer = ask(None).post("/callbacks/pager")
    assert answer.status_code == 503
    assert "Retry-After" in answer.headers
    assert "certificate" not in answer.text
    assert "Traceback" not in caplog.text


def test_an_account_has_its_own_secret(ask: Ask, app: Sereno, pager: Signed, connection: psycopg.Connection) -> None:
    app.channels.add(pager)
    connection.execute(
        """insert into sereno.accounts (channel, tenant, settings) values ('pager', 'r 42', '{"word": "w"}')"""
    )
    client = ask(None)
    app.override(public_url=PUBLIC_URL)
    assert client.post("/callbacks/pager/r%2042?x=%20y", headers={"X-Word": "w"}).status_code == 200
    assert pager.received[0].url == f"{PUBLIC_URL}/api/v1/callbacks/pager/r%2042?x=%20y"
    assert client.post("/callbacks/pager/r%2042", headers={"X-Word": "open"}).status_code == 403


def test_the_signature_of_twilio_is_checked_against_the_public_url(ask: Ask, app: Sereno) -> None:
    app.channels.add(Twilio(account_sid="AC1", auth_token=TOKEN, from_number="+37120000000"))
    app.override(public_url=PUBLIC_URL)
    form = {"MessageSid": "SM1", "MessageStatus": "delivered"}
    url = f"{PUBLIC_URL}/api/v1/callbacks/sms"
    client = ask(None)
    headers = {
        "Content-Type": "application/x-www-form-urlencoded",
        "X-Twilio-Signature": signature(TOKEN, url, form.items()).decode(),
    }
    assert client.post("/callbacks/sms", content=urlencode(form), headers=headers).status_code == 200
    headers["X-Twilio-Signature"] = signature("guess", url, form.items()).decode()
    assert client.post("/callbacks/sms", content=urlencode(form), headers=headers).status_code == 403
