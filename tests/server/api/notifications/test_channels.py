"""Channels over HTTP: they are listed, paused and resumed."""

import asyncio

import psycopg
import pytest

from sereno import Sereno
from tests.facts import one
from tests.notifications.conftest import Pager, Tender
from tests.server.api.conftest import Ask


@pytest.fixture
def waiting(app: Sereno) -> None:
    """A recipient with one pending delivery by pager, and an address of a channel that the code does not know."""
    news = app.event("tender.published", Tender, channels=[Pager()])

    async def send_event() -> None:
        await app.recipients.aupsert("ada", {"pager": "a1", "sms": "+371"})
        await app.notifications.fanout.fan_out(await news.anotify(Tender("T1"), to="ada"))
        await app.database.aclose()

    asyncio.run(send_event())


@pytest.mark.usefixtures("waiting")
def test_channels_are_listed_paused_and_resumed(ask: Ask, connection: psycopg.Connection) -> None:
    client = ask("operator")
    channels = {each["channel"]: each for each in client.get("/channels").json()["items"]}
    assert {name: each["is_known"] for name, each in channels.items()} == {"in_app": True, "pager": True, "sms": False}
    assert (channels["pager"]["pending"], channels["pager"]["pauses"]) == ({"value": 1, "exact": True}, [])
    body = {"reason": "the provider is down"}
    assert client.post("/channels/pager/pause", json=body).json() == {"changed": True}
    assert client.post("/channels/pager/pause", json=body).json() == {"changed": False}
    assert client.post("/channels/pager/pause", json=body | {"account": "r42"}).json() == {"changed": True}
    (pager,) = [each for each in client.get("/channels").json()["items"] if each["channel"] == "pager"]
    assert [(each["account"], each["reason"]) for each in pager["pauses"]] == [
        ("", "the provider is down"), ("r42", "the provider is down"),
    ]  # fmt: skip
    assert client.post("/channels/pager/resume", json={"account": "r42"}).json() == {"accounts": ["r42"]}
    before = one(connection, "select count(*) from sereno.jobs where task = 'sereno.deliver'")
    assert client.post("/channels/pager/resume", json={}).json() == {"accounts": [""]}
    assert one(connection, "select count(*) from sereno.jobs where task = 'sereno.deliver'") > before
    assert client.post("/channels/pager/resume", json={}).json() == {"accounts": []}
    actions = connection.execute("select action from sereno.audit where actor like 'operator%%' order by id").fetchall()
    assert [action for (action,) in actions] == [
        "channel.pause", "channel.pause", "channel.resume", "channel.resume",
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.usefixtures("waiting")
def test_invalid_channel_requests_are_refused(ask: Ask) -> None:
    client = ask("operator")
    for body in ({}, {"reason": ""}, {"reason": "x" * 5000}, {"reason": "x", "account": "\x00"}):
        assert client.post("/channels/pager/pause", json=body).status_code == 422
    assert client.post("/channels/pager/resume", json={"account": "\x00"}).status_code == 422
    assert client.post(f"/channels/{'x' * 3000}/resume", json={}).status_code == 422
    assert client.post("/channels/%00/pause", json={"reason": "x"}).status_code == 422


@pytest.mark.slow
@pytest.mark.usefixtures("waiting")
def test_roles_for_channels(ask: Ask) -> None:
    assert ask(None).get("/channels").status_code == 401
    assert ask("viewer").get("/channels").status_code == 200
    assert ask("viewer").post("/channels/pager/pause", json={"reason": "x"}).status_code == 403
    assert ask("viewer").post("/channels/pager/resume", json={}).status_code == 403
    of_a = ask("admin", tenant="a")
    assert of_a.get("/channels").status_code == 403
    assert of_a.post("/channels/pager/pause", json={"reason": "x", "account": "a"}).status_code == 403
