"""Topics over HTTP: listed, changed and audited within the tenant of a token."""

import psycopg
import pytest

from sereno import Sereno
from tests.server.api.conftest import Ask


@pytest.fixture
def topics(app: Sereno) -> None:
    for key, tenant in (("ada", None), ("bob", None), ("ada", "a")):
        app.recipients.upsert(key, tenant=tenant)
        app.topics.subscribe("tender/r42", key, tenant=tenant)
    app.topics.subscribe("tender/r7", "ada")


@pytest.mark.usefixtures("topics")
def test_topics_and_subscribers_are_listed_in_pages(ask: Ask) -> None:
    client = ask("viewer")
    first = client.get("/topics", params={"limit": 1}).json()
    assert first == {"items": [{"topic": "tender/r42", "tenant": None, "subscribers": 2}], "next": "tender/r42"}
    rest = client.get("/topics", params={"limit": 1, "after": first["next"]}).json()
    assert ([line["topic"] for line in rest["items"]], rest["next"]) == (["tender/r7"], None)
    assert client.get("/topics", params={"pattern": "*7"}).json()["items"] == rest["items"]
    page = client.get("/topics/tender/r42/subscribers", params={"limit": 1}).json()
    assert [line["recipient"] for line in page["items"]] == ["bob"]
    page = client.get("/topics/tender/r42/subscribers", params={"limit": 1, "before": page["next"]}).json()
    assert ([line["recipient"] for line in page["items"]], page["next"]) == (["ada"], None)
    theirs = ask("viewer", tenant="a")
    assert [line["tenant"] for line in theirs.get("/topics").json()["items"]] == ["a"]
    assert len(theirs.get("/topics/tender/r42/subscribers").json()["items"]) == 1
    assert theirs.get("/topics", params={"tenant": "b"}).status_code == 404


@pytest.mark.usefixtures("topics")
def test_subscriptions_are_changed_and_audited(ask: Ask, app: Sereno, connection: psycopg.Connection) -> None:
    client = ask("admin")
    body = {"recipients": ["ada", "bob"]}
    assert client.post("/topics/tender/r7/subscribe", json=body).json() == {"count": 1}
    assert client.post("/topics/tender/r42/unsubscribe", json=body).json() == {"count": 2}
    assert app.topics.of("ada") == app.topics.of("bob") == ["tender/r7"]
    assert app.topics.of("ada", tenant="a") == ["tender/r42"]
    refused: list[dict[str, list[str]]] = [{"recipients": keys} for keys in (["nobody"], [], [""])]
    for wrong in [*refused, {}]:
        assert client.post("/topics/tender/r7/subscribe", json=wrong).status_code == 422, wrong
    assert ask("operator").post("/topics/tender/r7/subscribe", json=body).status_code == 403
    theirs = ask("admin", tenant="a")
    assert theirs.post("/topics/new/subscribe", json={"recipients": ["bob"]}).status_code == 422
    assert theirs.post("/topics/new/subscribe", json={"recipients": ["ada"]}).json() == {"count": 1}
    query = "select action, subject, detail from sereno.audit where action like 'topic.%' order by id"
    assert connection.execute(query).fetchall() == [
        ("topic.subscribe", "topic tender/r7", {"tenant": None, "recipients": ["ada", "bob"], "count": 1}),
        ("topic.unsubscribe", "topic tender/r42", {"tenant": None, "recipients": ["ada", "bob"], "count": 2}),
        ("topic.subscribe", "topic new", {"tenant": "a", "recipients": ["ada"], "count": 1}),
    ]


@pytest.mark.usefixtures("topics")
def test_an_event_for_a_topic_is_published_and_shown(ask: Ask, app: Sereno) -> None:
    app.event("tender.published", dict[str, str], channels=["in_app"])
    client = ask("operator")
    body = {"type": "tender.published", "payload": {"code": "T"}, "to": ["topic:tender/r42"]}
    event = client.post("/events", json=body).json()["event"]
    assert (event["topic"], event["named"], event["audience"]) == ("tender/r42", None, None)
    assert client.post("/events", json=body | {"to": ["topic:a", "ada"]}).status_code == 422
