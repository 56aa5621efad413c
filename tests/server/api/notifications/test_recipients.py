"""Recipients over HTTP: admins create, change and delete them; their addresses are masked."""

from typing import Any

import psycopg
import pytest

from sereno import Sereno
from tests.facts import one
from tests.notifications.conftest import Pager, Tender
from tests.server.api.conftest import Ask

ADDRESS = "ana@example.lv"
SECRET = "whsec_do_not_show"  # noqa: S105 - not a real secret


@pytest.fixture
def recipients(app: Sereno) -> None:
    app.event("tender.published", Tender, channels=[Pager()], category="tenders")
    app.recipients.upsert("user:7", {"email": {"address": ADDRESS, "secrets": [SECRET]}}, data={"name": "Ana"})
    app.recipients.upsert("user:7", {"pager": "a-pager-of-a"}, tenant="a")
    app.recipients.upsert("user/8", {"pager": "b-pager-of-b"}, tenant="b")


@pytest.mark.usefixtures("recipients")
def test_recipients_are_listed_and_shown(ask: Ask) -> None:
    client = ask("viewer")
    listed = client.get("/recipients", params={"limit": 2}).json()
    assert [each["key"] for each in listed["items"]] == ["user/8", "user:7"]
    rest = client.get("/recipients", params={"before": listed["next"]}).json()
    assert [each["channels"] for each in rest["items"]] == [["email"]]
    assert len(client.get("/recipients", params={"pattern": "user:*"}).json()["items"]) == 2
    shown = client.get("/recipients/user:7")
    found = shown.json()
    assert (found["recipient"]["data"], found["unread"]) == ({"name": "Ana"}, 0)
    assert [(each["channel"], each["address"], each["has_keys"]) for each in found["addresses"]] == [
        ("email", "ana….lv", True)
    ]
    assert ADDRESS not in shown.text
    assert SECRET not in ask("admin").post("/recipients/user:7/reveal").text
    assert ask("operator").post("/recipients/user:7/reveal").json()["addresses"][0]["address"] == ADDRESS
    assert client.post("/recipients/user:7/reveal").status_code == 403
    assert client.get("/recipients/user%2F8", params={"tenant": "b"}).json()["recipient"]["key"] == "user/8"
    assert client.get("/recipients/user:9").status_code == 404
    assert client.get("/recipients/user:7", params={"tenant": "b"}).status_code == 404


@pytest.mark.slow
@pytest.mark.usefixtures("recipients")
def test_recipients_are_created_changed_and_deleted(ask: Ask, connection: psycopg.Connection) -> None:
    client = ask("admin")
    body: dict[str, Any] = {
        "addresses": {"email": ["new@example.lv", {"address": "other@example.lv", "note": 7}]},
        "zone": "Europe/Riga",
        "locale": "lv",
        "data": {"seat": 4},
    }
    made = client.put("/recipients/user:9", json=body)
    assert made.status_code == 200
    assert [each["address"] for each in made.json()["addresses"]] == ["new….lv", "othe…e.lv"]
    assert one(connection, "select keys->>'note' from sereno.addresses where address = 'other@example.lv'") == "7"
    changed = client.put("/recipients/user:9", json={"locale": "en"}).json()
    assert (changed["recipient"]["zone"], changed["recipient"]["locale"]) == ("Europe/Riga", "en")
    unsubscribed = client.post("/recipients/user:9/unsubscribe", json={"channel": "email", "address": "new@example.lv"})
    assert [each["state"] for each in unsubscribed.json()["addresses"]] == ["unsubscribed", "active"]
    missing = {"channel": "email", "address": "unknown@example.lv"}
    assert client.post("/recipients/user:9/unsubscribe", json=missing).status_code == 404
    assert client.post("/recipients/unknown/unsubscribe", json=missing).status_code == 404
    assert client.delete("/recipients/user:9").status_code == 204
    assert client.delete("/recipients/user:9").status_code == 404
    actions = connection.execute(
        "select action, actor, detail::text from sereno.audit where subject = 'recipient user:9'"
    )
    audited = actions.fetchall()
    assert [action for action, _, _ in audited] == [
        "recipient.set", "recipient.set", "recipient.unsubscribe", "recipient.delete",
    ]  # fmt: skip
    assert all(actor.startswith("admin") for _, actor, _ in audited)
    assert not any("new@example.lv" in detail for _, _, detail in audited)


@pytest.mark.usefixtures("recipients")
def test_preferences_and_their_defaults_are_set(ask: Ask) -> None:
    client = ask("admin")
    preference = {
        "event": "tender.published",
        "wanted": True,
        "quiet": [{"start": "22:00", "end": "08:00", "days": ["fri"]}],
    }
    (row,) = client.put("/recipients/user:7/preferences", json=preference).json()["preferences"]
    assert (row["is_own"], row["event"], row["wanted"], row["quiet"][0]["days"]) == (
        True,
        "tender.published",
        True,
        [5],
    )
    (row,) = client.put(
        "/recipients/user:7/preferences",
        json={"event": "tender.published", "quiet": None, "condition": {"region": "RM"}},
    ).json()["preferences"]
    assert (row["wanted"], row["quiet"], row["condition"], row["digest"]) == (True, None, {"region": "RM"}, None)
    for given, stored in (("1h", 3600), (0, 0), (90.5, 90.5)):
        changed = client.put("/recipients/user:7/preferences", json={"event": "tender.published", "digest": given})
        assert [each["digest"] for each in changed.json()["preferences"]] == [stored], changed.text
    (default,) = client.put("/preferences", json={"category": "tenders", "wanted": False}).json()
    assert (default["is_own"], default["wanted"]) == (False, False)
    assert client.get("/preferences").json() == [default]
    assert client.get("/preferences", params={"tenant": "a"}).json() == []
    assert len(client.get("/recipients/user:7").json()["preferences"]) == 2
    assert client.put("/recipients/unknown/preferences", json={"wanted": True}).status_code == 404


@pytest.mark.usefixtures("recipients")
def test_why_explains_whether_a_recipient_is_notified(ask: Ask) -> None:
    client = ask("viewer")
    sentences = client.get("/recipients/user:7/why", params={"event": "tender.published", "tenant": "a"}).json()[
        "sentences"
    ]
    assert any("If it happened now, by pager: it would be sent immediately" in each for each in sentences)
    sentences = client.get("/recipients/unknown/why", params={"event": "tender.published"}).json()["sentences"]
    assert "There is no recipient unknown" in sentences[0]
    assert client.get("/recipients/user:7/why").status_code == 422


@pytest.mark.usefixtures("recipients")
def test_invalid_recipient_requests_are_refused(ask: Ask) -> None:
    client = ask("admin")
    for body in (
        {"addresses": {"": ["x"]}},
        {"addresses": {"email": [""]}},
        {"addresses": {"email": [{"state": "active"}]}},
        {"addresses": {"email": [{"address": "x", "state": "lost"}]}},
        {"addresses": {"email": [{"address": "x", "keys": {"a": "\x00"}}]}},
        {"addresses": {"email": "x" * 5}},
        {"zone": "Riga"},
        {"locale": "l" * 500},
        {"locale": "\x00"},
        {"data": {"a": "\x00"}},
        {"data": 7},
    ):
        assert client.put("/recipients/user:7", json=body).status_code == 422, body
    raw = b'{"data": {"a": "\\ud800", "b": NaN}, "addresses": {"\\ud800": []}}'
    json = {"Content-Type": "application/json"}
    assert client.put("/recipients/user:7", content=raw, headers=json).status_code == 422
    assert client.put(f"/recipients/{'x' * 3000}", json={}).status_code == 422
    assert client.get("/recipients/%00").status_code == 422
    deep: dict[str, Any] = {"region": "RM"}
    for _ in range(200):
        deep = {"and": [deep]}
    invalid_preferences: tuple[dict[str, Any], ...] = (
        {},
        {"event": "x"},
        {"wanted": "perhaps"},
        {"digest": "8d"},
        {"digest": "soon"},
        {"digest": -1},
        {"quiet": [{"start": "25:00", "end": "08:00"}]},
        {"quiet": [{"start": "08:00", "end": "08:00"}]},
        {"quiet": [{"start": "22:00", "end": "08:00", "days": ["someday"]}]},
        {"condition": {"region": {"near": 1}}},
        {"condition": deep},
        {"wanted": True, "event": "\x00"},
    )
    for preference in invalid_preferences:
        assert client.put("/recipients/user:7/preferences", json=preference).status_code == 422, preference
    assert client.post("/recipients/user:7/unsubscribe", json={"channel": "email", "address": ""}).status_code == 422


@pytest.mark.usefixtures("recipients")
def test_a_tenants_token_gives_access_to_that_tenants_recipients_only(ask: Ask, connection: psycopg.Connection) -> None:
    client = ask("admin", tenant="a")
    assert [each["tenant"] for each in client.get("/recipients").json()["items"]] == ["a"]
    assert client.get("/recipients/user:7").json()["recipient"]["tenant"] == "a"
    for path in ("/recipients", "/recipients/user%2F8", "/recipients/user%2F8/why?event=x", "/preferences"):
        assert client.get(path, params={"tenant": "b", "event": "x"}).status_code == 404
    assert client.get("/recipients/user%2F8").status_code == 404
    assert client.put("/recipients/user:9", json={}).json()["recipient"]["tenant"] == "a"
    assert client.put("/recipients/user:9", json={}, params={"tenant": "b"}).status_code == 404
    assert client.put("/preferences", json={"wanted": False}).json()[0]["tenant"] == "a"
    assert client.delete("/recipients/user%2F8").status_code == 404
    assert client.delete("/recipients/user:7").status_code == 204
    assert one(connection, "select count(*) from sereno.recipients where key = 'user:7'") == 1


@pytest.mark.slow
@pytest.mark.usefixtures("recipients")
def test_roles_for_recipients(ask: Ask) -> None:
    assert ask(None).get("/recipients").status_code == 401
    operator = ask("operator")
    assert operator.put("/recipients/user:7", json={}).status_code == 403
    assert operator.put("/recipients/user:7/preferences", json={"wanted": True}).status_code == 403
    assert operator.put("/preferences", json={"wanted": True}).status_code == 403
    address = {"channel": "email", "address": ADDRESS}
    assert operator.post("/recipients/user:7/unsubscribe", json=address).status_code == 403
    assert operator.delete("/recipients/user:7").status_code == 403
