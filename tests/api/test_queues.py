"""Queues over HTTP: seen, stopped and started again; tasks and tenants the same way."""

import psycopg
import pytest

from sereno import Sereno
from tests.api.conftest import Ask
from tests.facts import one


@pytest.fixture
def _jobs(app: Sereno) -> None:
    @app.task(queue="mail")
    def work() -> None: ...

    work.using(tenant="a").enqueue()
    work.enqueue()


@pytest.mark.usefixtures("_jobs")
def test_queues_with_what_waits(ask: Ask) -> None:
    found = ask("viewer").get("/queues").json()
    assert found["next"] is None
    (line,) = found["items"]
    assert (line["queue"], line["ready"], line["paused_at"]) == ("mail", {"value": 2, "exact": True}, None)


@pytest.mark.parametrize("kind", ["queue", "task", "tenant"])
def test_stopped_and_started_again(ask: Ask, connection: psycopg.Connection, kind: str) -> None:
    client = ask("operator")
    paused = client.post(f"/{kind}s/a%2Fb/pause", json={"note": "they are down"}).json()
    assert paused == {"kind": kind, "name": "a/b", "paused": True, "changed": True}
    assert client.post(f"/{kind}s/a%2Fb/pause").json()["changed"] is False
    (row,) = client.get("/pauses").json()["items"]
    assert (row["kind"], row["name"], row["note"]) == (kind, "a/b", "they are down")
    assert row["paused_by"].startswith("operator")
    assert client.post(f"/{kind}s/a%2Fb/resume").json() == paused | {"paused": False}
    assert client.post(f"/{kind}s/a%2Fb/resume").json()["changed"] is False
    assert client.get("/pauses").json()["items"] == []
    said = connection.execute("select action, subject, actor from sereno.audit order by id desc limit 2").fetchall()
    assert [line[:2] for line in said] == [(f"{kind}.resume", f"{kind} a/b"), (f"{kind}.pause", f"{kind} a/b")]
    assert all(line[2] == row["paused_by"] for line in said)


def test_an_operator_of_a_tenant_stops_that_tenant_alone(ask: Ask, connection: psycopg.Connection) -> None:
    ask("operator").post("/queues/mail/pause")
    ask("operator").post("/tenants/b/pause")
    client = ask("operator", tenant="a")
    assert client.post("/tenants/a/pause").status_code == 200
    assert [row["name"] for row in client.get("/pauses").json()["items"]] == ["a"]
    for word in ("pause", "resume"):
        assert client.post(f"/tenants/b/{word}").status_code == 404
        assert client.post(f"/queues/mail/{word}").status_code == 403
        assert client.post(f"/tasks/work/{word}").status_code == 403
    assert client.get("/queues").status_code == 403
    assert one(connection, "select count(*) from sereno.pauses") == 3
    assert client.post("/tenants/a/resume").json()["changed"] is True


def test_who_may_stop(ask: Ask) -> None:
    assert ask(None).get("/queues").status_code == 401
    assert ask(None).get("/pauses").status_code == 401
    for path in ("/queues/q", "/tasks/t", "/tenants/a"):
        for word in ("pause", "resume"):
            assert ask("viewer").post(f"{path}/{word}").status_code == 403
            assert ask("viewer", tenant="a").post(f"{path}/{word}").status_code == 403


def test_names_that_make_no_sense(ask: Ask, connection: psycopg.Connection) -> None:
    client = ask("admin")
    for name in ("", "x" * 501, "a%00b"):
        for word in ("pause", "resume"):
            for kind in ("queues", "tasks", "tenants"):
                answer = client.post(f"/{kind}/{name}/{word}")
                assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
    assert client.post("/queues/q/pause", json={"note": "x" * 501}).status_code == 422
    assert client.post("/queues/q/pause", json={"note": "a\x00b"}).status_code == 422
    assert one(connection, "select count(*) from sereno.pauses") == 0
