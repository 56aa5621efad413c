"""Queues, tasks and tenants over HTTP: they are paused and resumed; queues are listed."""

import httpx
import psycopg
import pytest

from sereno import Sereno
from sereno.access.operations import create
from tests.facts import one
from tests.plain_http import NO_CERTIFICATES
from tests.server.api.conftest import Ask, Served


@pytest.fixture
def _jobs(app: Sereno) -> None:
    @app.task(queue="mail")
    def work() -> None: ...

    work.using(tenant="a").enqueue()
    work.enqueue()


@pytest.mark.usefixtures("_jobs")
def test_queues_are_listed_with_waiting_jobs(ask: Ask) -> None:
    found = ask("viewer").get("/queues").json()
    assert found["next"] is None
    (line,) = found["items"]
    assert (line["queue"], line["ready"], line["paused_at"]) == ("mail", {"value": 2, "exact": True}, None)


@pytest.mark.slow
def test_queues_tasks_and_tenants_are_paused_and_resumed(
    ask: Ask, connection: psycopg.Connection, subtests: pytest.Subtests
) -> None:
    client = ask("operator")
    for kind in ("queue", "task", "tenant"):
        with subtests.test(kind=kind):
            paused = client.post(f"/{kind}s/a%2Fb/pause", json={"note": "they are down"}).json()
            assert paused == {"kind": kind, "name": "a/b", "paused": True, "changed": True}
            assert client.post(f"/{kind}s/a%2Fb/pause").json()["changed"] is False
            (row,) = client.get("/pauses").json()["items"]
            assert (row["kind"], row["name"], row["note"]) == (kind, "a/b", "they are down")
            assert row["paused_by"].startswith("operator")
            assert client.post(f"/{kind}s/a%2Fb/resume").json() == paused | {"paused": False}
            assert client.post(f"/{kind}s/a%2Fb/resume").json()["changed"] is False
            assert client.get("/pauses").json()["items"] == []
            audited = connection.execute(
                "select action, subject, actor from sereno.audit order by id desc limit 2"
            ).fetchall()
            assert [line[:2] for line in audited] == [
                (f"{kind}.resume", f"{kind} a/b"),
                (f"{kind}.pause", f"{kind} a/b"),
            ]
            assert all(line[2] == row["paused_by"] for line in audited)


def test_a_tenants_operator_pauses_only_that_tenant(ask: Ask, connection: psycopg.Connection) -> None:
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


def test_a_user_name_like_a_tenants_gives_no_rights_in_that_tenant(
    app: Sereno, ask: Ask, served: Served, connection: psycopg.Connection
) -> None:
    """Users choose their names, so a name gives no rights: only operators of all tenants end an operator's pause."""
    made = app.database.run(create("ann of acme", "operator", actor="test"))
    bearer = {"Authorization": f"Bearer {made.secret}"}
    theirs = ask("operator", tenant="acme")
    theirs.post("/tenants/acme/pause")
    assert theirs.post("/tenants/acme/resume").json()["changed"] is True
    theirs.post("/tenants/acme/pause")
    url = f"{served.url}/api/v1/tenants/acme/pause"
    assert httpx.post(url, headers=bearer, timeout=30, verify=NO_CERTIFICATES).json()["changed"] is True
    assert one(connection, "select paused_by from sereno.pauses") == "ann of acme"
    assert theirs.post("/tenants/acme/resume").status_code == 403
    assert theirs.post("/tenants/acme/pause").json()["changed"] is False, "a repeated pause does not change its owner"
    assert theirs.post("/tenants/acme/resume").status_code == 403
    assert ask("operator").post("/tenants/acme/resume").json()["changed"] is True


def test_roles_for_pauses(bare_ask: Ask) -> None:
    anonymous, viewers = bare_ask(None), (bare_ask("viewer"), bare_ask("viewer", tenant="a"))
    assert anonymous.get("/queues").status_code == 401
    assert anonymous.get("/pauses").status_code == 401
    for path in ("/queues/q", "/tasks/t", "/tenants/a"):
        for word in ("pause", "resume"):
            for client in viewers:
                assert client.post(f"{path}/{word}").status_code == 403


@pytest.mark.slow
def test_pauses_with_invalid_names_or_notes_are_refused(ask: Ask, connection: psycopg.Connection) -> None:
    client = ask("admin")
    for name in ("", "x" * 501, "a%00b"):
        for word in ("pause", "resume"):
            for kind in ("queues", "tasks", "tenants"):
                answer = client.post(f"/{kind}/{name}/{word}")
                assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
    assert client.post("/queues/q/pause", json={"note": "x" * 501}).status_code == 422
    assert client.post("/queues/q/pause", json={"note": "a\x00b"}).status_code == 422
    assert one(connection, "select count(*) from sereno.pauses") == 0
