"""Events over HTTP: they are listed, shown and published within the rights of a token."""

from typing import Any

import psycopg
import pytest

from sereno import Sereno
from tests.facts import one
from tests.notifications.conftest import Pager, Tender
from tests.server.api.conftest import Ask


@pytest.fixture
def events(app: Sereno) -> list[int]:
    published = app.event("tender.published", Tender, channels=[Pager()], category="tenders")
    app.event("tender.closed", Tender, channels=["in_app"])
    app.recipients.upsert("ada", {"pager": "a1"}, tenant="a")
    return [
        published.notify(Tender(f"T{number}"), subject=f"T{number}", to="ada", tenant=tenant)
        for number, tenant in enumerate(["a", "b", None])
    ]


def test_events_are_listed_and_shown(ask: Ask, events: list[int]) -> None:
    client = ask("viewer")
    first = client.get("/events", params={"limit": 2}).json()
    assert [each["id"] for each in first["items"]] == events[:0:-1]
    rest = client.get("/events", params={"limit": 2, "before": first["next"]}).json()
    assert ([each["id"] for each in rest["items"]], rest["next"]) == ([events[0]], None)
    assert client.get("/events", params={"type": "other"}).json()["items"] == []
    assert client.get("/events", params={"since": "2099-01-01T00:00:00Z"}).json()["items"] == []
    found = client.get(f"/events/{events[0]}").json()
    assert found["event"]["payload"] == {"code": "T0", "region": "RM", "amount": 100}
    assert (found["event"]["audience"], found["total"]) == (["ada"], {"value": 0, "exact": True})
    assert client.get("/events/999999").status_code == 404


def test_recipients_are_notified_once_per_subject(
    ask: Ask, app: Sereno, events: list[int], connection: psycopg.Connection
) -> None:
    client = ask("operator")
    body: dict[str, Any] = {
        "type": "tender.published",
        "payload": {"code": "T9"},
        "to": ["ada"],
        "subject": "T9",
        "tenant": "a",
        "at": "2031-01-01T00:00:00+01:00",
        "ttl": "2h",
    }
    made = client.post("/events", json=body)
    assert made.status_code == 201
    number = made.json()["id"]
    assert (made.json()["created"], made.json()["event"]["named"]) == (True, 1)
    assert made.json()["event"]["due_at"] == "2030-12-31T23:00:00Z"
    again = client.post("/events", json=body).json()
    assert (again["id"], again["created"]) == (number, False)
    assert one(connection, "select count(*) from sereno.jobs where task = 'sereno.fan_out'") == len(events) + 1
    assert one(connection, "select count(*) from sereno.audit where action = 'event.notify'") == 2
    assert one(connection, "select actor from sereno.audit where action = 'event.notify' limit 1").startswith(
        "operator"
    )


INVALID_CHANGES: list[dict[str, Any]] = [
    {"type": "not.declared"},
    {"payload": {"code": 7}},
    {"payload": {}},
    {"payload": {"code": "a\x00b"}},
    {"payload": {"code": "x" * 70_000}},
    {"to": []},
    {"to": [""]},
    {"subject": ""},
    {"at": "2031-01-01T00:00:00"},
    {"at": "0001-01-01T00:00:00Z"},
    {"ttl": "soon"},
    {"ttl": -1},
    {"ttl": 1e300},
    {"tenant": "t" * 5000},
]


def test_invalid_events_are_refused(ask: Ask, events: list[int], connection: psycopg.Connection) -> None:
    client = ask("operator")
    for change in INVALID_CHANGES:
        answer = client.post("/events", json={"type": "tender.published", "payload": {"code": "T"}} | change)
        assert answer.status_code == 422, change
        assert answer.json()["detail"]
    assert one(connection, "select count(*) from sereno.events") == len(events)


def test_json_that_postgresql_cannot_store_is_refused(app: Sereno, ask: Ask, events: list[int]) -> None:
    app.event("anything", dict, channels=["in_app"])
    client = ask("operator")
    for value in (b'"\\ud800"', b"NaN", b"[" * 900 + b"null" + b"]" * 900, b"[" * 9000 + b"]" * 9000, b"9" * 5000):
        raw = b'{"type": "anything", "payload": {"a": ' + value + b"}}"
        answer = client.post("/events", content=raw, headers={"Content-Type": "application/json"})
        assert answer.status_code == 422, value[:20]
    assert len(client.get("/events").json()["items"]) == len(events)


def test_a_tenants_token_gives_access_to_that_tenants_events_only(ask: Ask, events: list[int]) -> None:
    client = ask("operator", tenant="a")
    assert [each["id"] for each in client.get("/events").json()["items"]] == events[:1]
    assert client.get("/events", params={"tenant": "b"}).status_code == 404
    assert client.get(f"/events/{events[0]}").status_code == 200
    assert client.get(f"/events/{events[1]}").status_code == 404
    assert client.get(f"/events/{events[2]}").status_code == 404
    body = {"type": "tender.published", "payload": {"code": "T"}}
    assert client.post("/events", json=body).json()["event"]["tenant"] == "a"
    assert client.post("/events", json=body | {"tenant": "b"}).status_code == 404


def test_roles_for_events(ask: Ask, events: list[int]) -> None:
    assert ask(None).get("/events").status_code == 401
    assert ask(None).get(f"/events/{events[0]}").status_code == 401
    body = {"type": "tender.published", "payload": {"code": "T"}}
    assert ask("viewer").post("/events", json=body).status_code == 403


def test_an_event_is_cancelled_once_and_audited(
    ask: Ask, app: Sereno, events: list[int], connection: psycopg.Connection
) -> None:
    client = ask("operator")
    found = client.post(f"/events/{events[0]}/cancel").json()
    assert found == {
        "event": events[0],
        "changed": True,
        "sent": 0,
        "unsent": 0,
        "total": {"value": 0, "exact": True},
    }
    assert client.post(f"/events/{events[0]}/cancel").json()["changed"] is False
    assert client.get(f"/events/{events[0]}").json()["event"]["cancelled_at"]
    assert client.post("/events/999999/cancel").status_code == 404
    theirs = ask("operator", tenant="b")
    assert theirs.post(f"/events/{events[0]}/cancel").status_code == 404
    assert theirs.post(f"/events/{events[1]}/cancel").json()["changed"] is True
    assert ask("viewer").post(f"/events/{events[2]}/cancel").status_code == 403
    audited = connection.execute("select subject, detail from sereno.audit where action = 'event.cancel' order by id")
    assert audited.fetchall() == [(f"event {number}", {"sent": 0, "unsent": 0}) for number in events[:2]]


def test_a_rate_is_stored_with_the_event(
    ask: Ask, app: Sereno, events: list[int], connection: psycopg.Connection
) -> None:
    client = ask("operator")
    body: dict[str, Any] = {"type": "tender.published", "payload": {"code": "T"}, "rate": "90/m"}
    assert client.post("/events", json=body).json()["event"]["rate"] == 1.5
    # Of a type that the code of another service declares.
    connection.execute("insert into sereno.event_types (name, definition) values ('other', '{\"channels\": []}')")
    assert client.post("/events", json=body | {"type": "other", "rate": 2}).json()["event"]["rate"] == 2
    for rate in ("fast", 0, -1, "1/w", 1e9):
        for kind in ("tender.published", "other"):
            assert client.post("/events", json=body | {"rate": rate, "type": kind}).status_code == 422, (rate, kind)
