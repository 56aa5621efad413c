"""Limits over HTTP: they are listed, changed, closed and opened; weights of fair keys are set."""

from typing import Any

import psycopg
import pytest

from sereno import Limit, Rate, Sereno
from sereno.jobs.limits.store import declare
from tests.server.api.conftest import Ask


@pytest.fixture(autouse=True)
def _declared(app: Sereno) -> None:
    @app.task(concurrency=Limit(2, name="of.code"), rate=Rate(10, per="1m", key="{tenant}", name="ifood"))
    def work() -> None: ...

    app.database.run(declare(app.registry, "test"))
    work.using(tenant="r42").enqueue()


def test_limits_are_shown_with_a_description_and_keys(ask: Ask) -> None:
    client = ask("viewer")
    found = {line["name"]: line for line in client.get("/limits").json()["items"]}
    assert {name: line["says"] for name, line in found.items()} == {
        "ifood": "10 a minute, burst 1",
        "of.code": "2 at once",
    }
    assert found["of.code"]["declared"] == {"slots": 2}
    assert [line["name"] for line in client.get("/limits", params={"pattern": "of.*"}).json()["items"]] == ["of.code"]
    assert len(client.get("/limits", params={"limit": 1}).json()["items"]) == 1
    page = client.get("/limits/ifood", params={"key": "r42", "keys": 5}).json()
    assert page["limit"]["key"] == "{tenant}"
    assert page["keys"] == []
    missing = client.get("/limits/ifod")
    assert missing.status_code == 404
    assert "did you mean ifood" in missing.json()["detail"]


def test_a_limit_is_changed_and_reset(ask: Ask, connection: psycopg.Connection) -> None:
    client = ask("admin")
    changed = client.put("/limits/of.code", json={"slots": 5, "note": "a big day"}).json()
    assert (changed["says"], changed["overridden"], changed["note"]) == ("5 at once", True, "a big day")
    assert changed["changed_by"].startswith("admin")
    assert client.put("/limits/ifood", json={"rate": 50, "per": "1h", "burst": 3}).json()["says"] == (
        "50 an hour, burst 3"
    )
    back = client.post("/limits/of.code/reset").json()["limit"]
    assert (back["says"], back["overridden"]) == ("2 at once", False)
    whole = client.put("/queues/mail%2Fbig/limit", json={"slots": 1}).json()
    assert (whole["name"], whole["queue"]) == ("queue.mail/big.concurrency", "mail/big")
    other = client.put("/limits/mine", json={"slots": 1, "queue": "mail"}).json()
    assert (other["name"], other["queue"]) == ("mine", "mail")
    assert client.get("/limits/queue.mail%2Fbig.concurrency").status_code == 200
    assert client.post("/limits/mine/reset").json() == {"limit": None}
    assert client.post("/limits/mine/reset").status_code == 404
    actors = connection.execute("select distinct actor from sereno.audit where action like 'limit.%%'").fetchall()
    assert actors == [(changed["changed_by"],)]


@pytest.mark.slow
def test_a_limit_is_closed_and_opened(ask: Ask) -> None:
    client = ask("operator")
    assert client.post("/limits/of.code/close", json={"seconds": "30s"}).json()["until"]
    assert client.post("/limits/of.code/open").json() == {"opened": 1}
    assert client.post("/limits/of.code/open", json={}).json() == {"opened": 0}
    assert client.post("/limits/ifood/close", json={"seconds": 30}).status_code == 422
    assert client.post("/limits/ifood/close", json={"seconds": 30, "key": "r42"}).status_code == 200
    (key,) = client.get("/limits/ifood").json()["keys"]
    assert (key["key"], key["closed_until"] is None) == ("r42", False)
    assert client.post("/limits/ifood/open", json={"key": "r41"}).json() == {"opened": 0}
    assert client.post("/limits/ifood/open", json={"key": "r42"}).json() == {"opened": 1}
    assert client.post("/limits/unknown/close", json={"seconds": 1}).status_code == 404
    assert client.post("/limits/unknown/open").status_code == 404


def test_weights_of_fair_keys_are_set(ask: Ask) -> None:
    client = ask("admin")
    assert client.put("/weights/r42", json={"weight": 3}).json() == {"key": "r42", "weight": 3}
    assert client.put("/weights/", json={"weight": 0.5}).json() == {"key": "", "weight": 0.5}
    assert client.put("/weights/a%2Fb", json={"weight": 2}).status_code == 200
    weights = {line["key"]: line["weight"] for line in client.get("/weights").json()["items"]}
    assert weights == {"r42": 3, "a/b": 2, "": 0.5}
    assert client.put("/weights/r42", json={"weight": 1}).status_code == 200
    assert "r42" not in {line["key"] for line in client.get("/weights").json()["items"]}


@pytest.mark.slow
def test_roles_for_limits(ask: Ask) -> None:
    assert ask(None).get("/limits").status_code == 401
    viewer, operator, theirs = ask("viewer"), ask("operator"), ask("admin", tenant="r42")
    for client in (viewer, operator):
        assert client.put("/limits/of.code", json={"slots": 1}).status_code == 403
        assert client.put("/queues/q/limit", json={"slots": 1}).status_code == 403
        assert client.post("/limits/of.code/reset").status_code == 403
        assert client.put("/weights/r42", json={"weight": 3}).status_code == 403
        assert client.get("/weights").status_code == 200
    assert viewer.post("/limits/of.code/close", json={"seconds": 1}).status_code == 403
    assert viewer.post("/limits/of.code/open").status_code == 403
    assert theirs.get("/limits").status_code == 403
    assert theirs.get("/limits/ifood").status_code == 403
    assert theirs.post("/limits/ifood/close", json={"seconds": 1, "key": "r42"}).status_code == 403
    assert theirs.put("/weights/r42", json={"weight": 3}).status_code == 403


INVALID_LIMITS: list[dict[str, Any]] = [
    {},
    {"slots": 1, "rate": 1},
    {"slots": -1},
    {"slots": 10**30},
    {"slots": 1, "per": "1s"},
    {"slots": 1, "note": "a\x00b"},
    {"rate": 0},
    {"rate": 10**400},
    {"rate": 1e-9, "per": "52w"},
    {"rate": 1, "per": "soon"},
    {"rate": 1, "per": 1e11},
    {"rate": 1, "per": "9" * 60},
    {"rate": 1, "burst": 0.5},
    {"rate": 1},
]


def test_invalid_limits_are_refused(ask: Ask, subtests: pytest.Subtests) -> None:
    client = ask("admin")
    for body in INVALID_LIMITS:
        with subtests.test(body=str(body)[:60]):
            answer = client.put("/limits/of.code", json=body)
            assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
            assert answer.json()["detail"]


def test_invalid_names_keys_and_weights_are_refused(ask: Ask) -> None:
    client = ask("admin")
    infinite = {"content": b'{"weight": Infinity}', "headers": {"Content-Type": "application/json"}}
    for answer in (
        client.get("/limits", params={"pattern": "x" * 501}),
        client.get("/limits", params={"pattern": "a\x00b"}),
        client.get("/limits", params={"limit": 1001}),
        client.get("/limits/a%00b"),
        client.get("/limits/ifood", params={"key": "a\x00b"}),
        client.put("/limits/a%00b", json={"slots": 1}),
        client.put("/limits/no%20name", json={"slots": 1, "queue": "q"}),
        client.put("/queues/" + "q" * 300 + "/limit", json={"slots": 1}),
        client.post("/limits/ifood/close", json={}),
        client.post("/limits/ifood/close", json={"seconds": 0, "key": "r42"}),
        client.post("/limits/ifood/close", json={"seconds": "99999w", "key": "r42"}),
        client.post("/limits/ifood/open", json={"key": "x" * 501}),
        client.put("/weights/r42", json={"weight": 0}),
        client.put("/weights/r42", **infinite),  # type: ignore[arg-type]  # content and headers
        client.put("/weights/a%00b", json={"weight": 2}),
    ):
        assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json"), answer.text
