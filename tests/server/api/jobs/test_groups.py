"""Groups and dependencies over HTTP: list, show, cancel; enqueue after other jobs."""

import psycopg
import pytest

from sereno import Sereno
from sereno.jobs.group import GroupHandle
from tests.facts import one, state
from tests.server.api.conftest import Ask


@pytest.fixture
def made(app: Sereno) -> GroupHandle:
    @app.task(name="work")
    def work(number: int) -> None: ...

    jobs = [work.using(tenant="ann").job(number) for number in range(3)]
    return app.group(jobs, then=work.using(tenant="ann").job(9), name="load", tenant="ann").enqueue()


def test_groups_are_listed_and_shown(ask: Ask, made: GroupHandle) -> None:
    assert made.then is not None
    viewer = ask("viewer")
    (line,) = viewer.get("/groups").json()["items"]
    assert (line["id"], line["name"], line["total"], line["remaining"]) == (made.id, "load", 3, 3)
    found = viewer.get(f"/groups/{made.id}").json()
    assert found["states"] == {"ready": {"value": 3, "exact": True}}
    assert found["then"] == {"id": made.then.id, "task": "work", "state": "waiting"}
    member = viewer.get("/jobs", params={"q": f"group:{made.id}", "limit": 1}).json()["items"][0]["id"]
    assert viewer.get(f"/jobs/{member}").json()["job"]["group_id"] == made.id
    assert viewer.get(f"/jobs/{made.then.id}").json()["job"]["after_group"] == made.id
    assert viewer.get("/groups/4711").status_code == 404


def test_groups_are_paged(app: Sereno, ask: Ask, made: GroupHandle) -> None:
    last = app.group([], name="empty").enqueue()
    first = ask("viewer").get("/groups", params={"limit": 1}).json()
    assert [line["id"] for line in first["items"]] == [last.id]
    second = ask("viewer").get("/groups", params={"limit": 1, "before": first["next"]}).json()
    assert ([line["id"] for line in second["items"]], second["next"]) == ([made.id], None)


def test_a_group_is_cancelled_with_the_job_that_follows(
    ask: Ask, made: GroupHandle, connection: psycopg.Connection
) -> None:
    answer = ask("operator").post(f"/groups/{made.id}/cancel", json={"reason": "wrong file"}).json()
    assert (len(answer["done"]), answer["stopping"]) == (4, [])
    reasons = connection.execute("select distinct reason from sereno.history").fetchall()
    assert reasons == [("wrong file",)]
    assert (
        one(connection, "select sum((detail ->> 'count')::integer) from sereno.audit where action = 'job.cancel'") == 4
    )
    assert ask("operator").post(f"/groups/{made.id}/cancel").json()["done"] == []
    assert ask("operator").post("/groups/4711/cancel").status_code == 404


def test_a_tenant_sees_only_its_groups(ask: Ask, made: GroupHandle, connection: psycopg.Connection) -> None:
    bob = ask("operator", tenant="bob")
    assert bob.get("/groups").json()["items"] == []
    assert bob.get("/groups", params={"tenant": "ann"}).status_code == 404
    for answer in (bob.get(f"/groups/{made.id}"), bob.post(f"/groups/{made.id}/cancel")):
        assert answer.status_code == 404
    assert one(connection, "select count(*) from sereno.jobs") == 4
    ann = ask("operator", tenant="ann")
    assert [line["id"] for line in ann.get("/groups").json()["items"]] == [made.id]
    assert len(ann.post(f"/groups/{made.id}/cancel").json()["done"]) == 4


def test_a_job_is_enqueued_after_others(
    app: Sereno, ask: Ask, made: GroupHandle, connection: psycopg.Connection
) -> None:
    assert made.then is not None
    operator = ask("operator")
    wanted = {"task": "work", "arguments": {"number": 1}}
    created = operator.post("/jobs", json=wanted | {"after": [made.then.id], "on_dead": "cancel"}).json()
    assert state(connection, created["id"]) == "waiting"
    detail = operator.get(f"/jobs/{created['id']}").json()["job"]
    assert (detail["after"], detail["on_dead"]) == ([made.then.id], "cancel")
    (sentence, *_) = operator.get(f"/jobs/{created['id']}/why").json()["sentences"]
    assert sentence == f"It waits for 1 job: {made.then.id} (work, waiting)."
    unknown = operator.post("/jobs", json=wanted | {"after": [4711]})
    assert unknown.status_code == 422
    assert "after: job 4711 does not exist" in unknown.json()["detail"]
    assert operator.post("/jobs", json=wanted | {"after": list(range(1001))}).status_code == 422
    assert operator.post("/jobs", json=wanted | {"after": [1], "on_dead": "ignore"}).status_code == 422


def test_a_tenant_cannot_wait_for_jobs_of_others(ask: Ask, made: GroupHandle, connection: psycopg.Connection) -> None:
    assert made.then is not None
    wanted = {"task": "work", "arguments": {"number": 1}, "after": [made.then.id]}
    refused = ask("operator", tenant="bob").post("/jobs", json=wanted)
    missing = ask("operator", tenant="bob").post("/jobs", json=wanted | {"after": [4711]})
    texts = [
        answer.json()["detail"].replace(str(number), "N")
        for answer, number in ((refused, made.then.id), (missing, 4711))
    ]
    assert refused.status_code == missing.status_code == 422
    assert texts[0] == texts[1]
    assert one(connection, "select count(*) from sereno.dependencies") == 0
    assert ask("operator", tenant="ann").post("/jobs", json=wanted).status_code == 201
