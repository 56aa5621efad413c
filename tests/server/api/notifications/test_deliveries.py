"""Deliveries over HTTP: they are shown with masked addresses, and failed ones are requeued."""

import asyncio
from typing import Any

import psycopg
import pytest

from sereno import Sereno
from sereno.channels.outcome import Failed, Invalid
from sereno.notifications import operations
from sereno.notifications.deliveries import lists
from tests.facts import one
from tests.notifications.conftest import Pager, Tender
from tests.server.api.conftest import Ask

ADDRESS = "pager-number-7777"


class NotifiedEvents:
    """Events to recipients whose pagers have different results; `deliveries`: delivery ids by recipient key."""

    def __init__(self, app: Sereno, connection: psycopg.Connection) -> None:
        pager = Pager()
        pager.outcomes = {"fails": Failed("too_big"), "bad": Invalid("NotRegistered"), "theirs": Failed("too_big")}
        self._published = app.event("tender.published", Tender, channels=[pager], category="tenders")
        asyncio.run(self._notify(app))
        rows = connection.execute(
            "select key, d.id from sereno.deliveries d join sereno.recipients r on r.id = d.recipient_id"
        )
        self.deliveries: dict[str, int] = dict(rows.fetchall())

    async def _notify(self, app: Sereno) -> None:
        addresses = {"ok": ADDRESS, "fails": "fails", "bad": "bad", "off": "off"}
        for key, address in addresses.items():
            await app.recipients.aupsert(key, {"pager": address})
        await app.recipients.aprefer("off", wanted=False)
        await app.recipients.aupsert("theirs", {"pager": "theirs"}, tenant="a")
        self.event = await self._published.anotify(Tender("T1"), subject="T1", to=list(addresses))
        other = await self._published.anotify(Tender("T2"), to="theirs", tenant="a")
        for event in (self.event, other):
            await app.notifications.fanout.fan_out(event)
        for job in (1, 2):
            await app.notifications.sender.deliver(job, "pager", "", -2)
        await app.database.aclose()


@pytest.fixture
def notified(app: Sereno, connection: psycopg.Connection) -> NotifiedEvents:
    return NotifiedEvents(app, connection)


def ids(answer: Any) -> set[int]:
    assert answer.status_code == 200, answer.text
    return {each["id"] for each in answer.json()["items"]}


@pytest.mark.slow
def test_deliveries_are_filtered_and_listed_in_pages(ask: Ask, notified: NotifiedEvents) -> None:
    client, mine = ask("viewer"), notified.deliveries
    assert ids(client.get("/deliveries")) == set(mine.values())
    assert ids(client.get("/deliveries", params={"state": ["failed", "invalid"]})) == {
        mine["fails"], mine["bad"], mine["theirs"],
    }  # fmt: skip
    assert ids(client.get("/deliveries", params={"tenant": "a"})) == {mine["theirs"]}
    assert ids(client.get("/deliveries", params={"subject": "T1"})) == set(mine.values()) - {mine["theirs"]}
    assert ids(client.get("/deliveries", params={"type": "tender.published", "subject": "T9"})) == set()
    assert ids(client.get("/deliveries", params={"type": "tender.published"})) == set(mine.values())
    assert ids(client.get("/deliveries", params={"event": notified.event, "state": "sent"})) == {mine["ok"]}
    assert ids(client.get("/deliveries", params={"recipient": "bad"})) == {mine["bad"]}
    assert ids(client.get("/deliveries", params={"channel": "other"})) == set()
    first = client.get("/deliveries", params={"limit": 2}).json()
    rest = client.get("/deliveries", params={"limit": 200, "before": first["next"]}).json()
    assert len(first["items"] + rest["items"]) == len(mine)
    assert client.get("/deliveries", params={"recipient": "unknown"}).status_code == 404
    assert client.get("/deliveries", params={"state": "lost"}).status_code == 422
    assert client.get("/deliveries", params={"event": 0}).status_code == 422


def test_an_address_is_masked_until_an_operator_reveals_it(ask: Ask, notified: NotifiedEvents) -> None:
    path = f"/deliveries/{notified.deliveries['ok']}"
    viewer = ask("viewer").get(path)
    assert viewer.json()["delivery"]["address"] == "page…7777"
    assert viewer.json()["delivery"]["payload"]["code"] == "T1"
    assert ADDRESS not in viewer.text
    assert ask("viewer").post(f"{path}/reveal").status_code == 403
    assert ask("operator").post(f"{path}/reveal").json()["delivery"]["address"] == ADDRESS
    assert ask("viewer").get("/deliveries/999999").status_code == 404


@pytest.mark.slow
def test_only_failed_deliveries_are_requeued(
    ask: Ask, notified: NotifiedEvents, connection: psycopg.Connection
) -> None:
    client, mine = ask("operator"), notified.deliveries
    refused = client.post("/deliveries/requeue", json={"ids": sorted(mine.values())})
    assert refused.status_code == 409
    for key, state in (("ok", "sent"), ("bad", "invalid"), ("off", "skipped")):
        assert f"{mine[key]} is {state}" in refused.json()["detail"]
    assert one(connection, "select count(*) from sereno.deliveries where state = 'pending'") == 0
    dry = client.post("/deliveries/requeue", json={"ids": [mine["fails"]], "dry_run": True}).json()
    assert (dry["dry_run"], dry["total"], dry["by_state"], dry["done"]) == (True, 1, {"failed": 1}, [])
    done = client.post("/deliveries/requeue", json={"ids": [mine["fails"], 999999]}).json()
    assert (done["done"], done["left"]) == ([mine["fails"]], [999999])
    assert one(connection, "select state from sereno.deliveries where id = %s", mine["fails"]) == "pending"
    assert client.post("/deliveries/requeue", json={"ids": [mine["fails"]]}).status_code == 409
    wider = client.post("/deliveries/requeue", json={"ids": [mine["bad"], mine["off"]], "any_ended": True}).json()
    assert sorted(wider["done"]) == sorted([mine["bad"], mine["off"]])
    assert client.post("/deliveries/requeue", json={"ids": [mine["ok"]], "any_ended": True}).status_code == 409
    assert one(connection, "select count(*) from sereno.audit where action = 'delivery.requeue'") == 2
    assert one(connection, "select actor from sereno.audit where action = 'delivery.requeue'").startswith("operator")


def test_a_requeue_by_filter_needs_a_confirmation(ask: Ask, notified: NotifiedEvents) -> None:
    client, mine = ask("operator"), notified.deliveries
    wanted = {"channel": "pager"}
    assert client.post("/deliveries/requeue", json=wanted | {"dry_run": True}).json()["by_state"] == {"failed": 2}
    assert client.post("/deliveries/requeue", json=wanted).status_code == 409
    assert client.post("/deliveries/requeue", json=wanted | {"states": ["sent"], "all": True}).status_code == 409
    done = client.post("/deliveries/requeue", json=wanted | {"all": True}).json()
    assert set(done["done"]) == {mine["fails"], mine["theirs"]}
    wider = client.post("/deliveries/requeue", json=wanted | {"all": True, "any_ended": True}).json()
    assert set(wider["done"]) == {mine["bad"], mine["off"]}
    invalid: list[dict[str, Any]] = [
        {},
        {"dry_run": True},
        {"ids": []},
        {"ids": [0]},
        {"ids": [2**63]},
        {"ids": [1], "channel": "pager"},
    ]
    for body in invalid:
        assert client.post("/deliveries/requeue", json=body).status_code == 422, body
    assert client.post("/deliveries/requeue", json={"recipient": "unknown"}).status_code == 404


@pytest.mark.slow
def test_failed_deliveries_below_newer_ones_are_listed_and_requeued(
    ask: Ask, notified: NotifiedEvents, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name in ((lists, "WINDOW"), (operations, "REQUEUE_WINDOW")):
        monkeypatch.setattr(module, name, 5)
    connection.execute(
        "insert into sereno.deliveries (event_id, recipient_id, channel, due_at, state, sent_at) "
        "select event_id, recipient_id, 'newer', due_at, 'delivered', sereno.now() from sereno.deliveries"
    )
    client, mine = ask("operator"), notified.deliveries
    both = {mine["fails"], mine["theirs"]}
    assert ids(client.get("/deliveries", params={"state": "sent"})) == set(), "not among the newest"
    assert ids(client.get("/deliveries", params={"state": "failed", "channel": "pager"})) == both
    assert ids(client.get("/deliveries", params={"state": "failed", "tenant": "a"})) == {mine["theirs"]}
    assert ids(client.get("/deliveries", params={"subject": "T1", "channel": "pager"})) == set(mine.values()) - {
        mine["theirs"]
    }
    assert ids(client.get("/deliveries", params={"q": "state:failed,invalid subject:T1"})) == {
        mine["fails"],
        mine["bad"],
    }
    assert ids(ask("viewer", tenant="a").get("/deliveries", params={"state": "failed"})) == {mine["theirs"]}
    first = client.get("/deliveries", params={"state": "failed", "limit": 1}).json()
    rest = client.get("/deliveries", params={"state": "failed", "limit": 1, "before": first["next"]}).json()
    assert [first["items"][0]["id"], rest["items"][0]["id"]] == sorted(both, reverse=True)
    wanted = {"states": ["failed"], "channel": "pager"}
    assert client.post("/deliveries/requeue", json=wanted | {"dry_run": True}).json()["total"] == 2
    assert set(client.post("/deliveries/requeue", json=wanted | {"all": True}).json()["done"]) == both
    assert ids(client.get("/deliveries", params={"state": "failed"})) == set()


@pytest.mark.slow
def test_a_tenants_token_gives_access_to_that_tenants_deliveries_only(ask: Ask, notified: NotifiedEvents) -> None:
    client, mine = ask("operator", tenant="a"), notified.deliveries
    assert ids(client.get("/deliveries")) == {mine["theirs"]}
    assert client.get("/deliveries", params={"tenant": "b"}).status_code == 404
    assert client.get("/deliveries", params={"recipient": "ok"}).status_code == 404
    assert client.get(f"/deliveries/{mine['theirs']}").status_code == 200
    assert client.get(f"/deliveries/{mine['ok']}").status_code == 404
    done = client.post("/deliveries/requeue", json={"ids": [mine["ok"], mine["fails"], mine["theirs"]]}).json()
    assert (done["done"], done["left"]) == ([mine["theirs"]], sorted([mine["ok"], mine["fails"]]))
    assert client.post("/deliveries/requeue", json={"channel": "pager", "all": True}).json()["done"] == []


def test_roles_for_deliveries(ask: Ask, notified: NotifiedEvents) -> None:
    assert ask(None).get("/deliveries").status_code == 401
    assert ask("viewer").post("/deliveries/requeue", json={"ids": [notified.deliveries["fails"]]}).status_code == 403


def test_the_error_of_a_provider_is_masked_for_viewers(
    ask: Ask, notified: NotifiedEvents, connection: psycopg.Connection
) -> None:
    error = "550 no mailbox ana.maria@example.lv; Authorization: Bearer abcdefgh12345678"
    number = notified.deliveries["fails"]
    connection.execute("update sereno.deliveries set error_message = %s where id = %s", [error, number])
    for client, is_whole in ((ask("viewer"), False), (ask("operator"), True)):
        lines = {each["id"]: each["error_message"] for each in client.get("/deliveries").json()["items"]}
        detail = client.get(f"/deliveries/{number}").json()["delivery"]["error_message"]
        assert lines[number] == detail
        assert (detail == error) is is_whole
        assert detail.startswith("550 no mailbox an")
        assert ("ana.maria" in detail, "abcdefgh" in detail) == (is_whole, is_whole)
        assert lines[notified.deliveries["ok"]] is None
