"""Bulk changes in the background, over HTTP: asked for, looked at and stopped by those who may."""

import json
from typing import Any

import psycopg
import pytest

from sereno import Sereno
from tests.api.conftest import Ask
from tests.facts import auntil, one, state


@pytest.fixture
def work(app: Sereno) -> Any:
    @app.task(queue="elsewhere")
    def work(number: int) -> None: ...

    return work


@pytest.fixture
def jobs(work: Any) -> list[int]:
    return [work.using(tenant=tenant).enqueue(number).id for number, tenant in enumerate(["a", "a", "b", None])]


async def test_it_is_accepted_and_done_by_a_worker(
    app: Sereno, ask: Ask, jobs: list[int], connection: psycopg.Connection
) -> None:
    client = ask("operator")
    body = {"task": "work", "tenant": "a", "in_background": True, "rate": 1000, "reason": "enough"}
    assert client.post("/jobs/cancel", json=body).status_code == 409
    dry = client.post("/jobs/cancel", json=body | {"dry_run": True})
    assert (dry.status_code, dry.json()["total"]) == (200, 2)
    assert client.get("/operations").json() == {"items": [], "next": None}
    accepted = client.post("/jobs/cancel", json=body | {"all": True})
    made = accepted.json()
    assert accepted.status_code == 202
    assert {
        name: made[name] for name in ("action", "state", "total", "total_exact", "done", "tenant", "waits_for")
    } == {
        "action": "job.cancel",
        "state": "waiting",
        "total": 2,
        "total_exact": True,
        "done": 0,
        "tenant": "a",
        "waits_for": "a worker",
    }
    where = f"/operations/{made['id']}"
    async with app.working({"default": 1}):
        await auntil(lambda: client.get(where).json()["state"] == "done")
    found = client.get(where).json()
    assert (found["done"], found["error"], found["waits_for"]) == (2, None, None)
    assert [each["id"] for each in client.get("/operations").json()["items"]] == [made["id"]]
    assert [state(connection, number) for number in jobs] == ["cancelled", "cancelled", "ready", "ready"]
    who = one(connection, "select actor from sereno.audit where action = 'job.cancel'")
    assert who.startswith("operator")
    assert client.post(f"{where}/stop").status_code == 409


def test_small_ones_are_still_done_at_once(ask: Ask, jobs: list[int]) -> None:
    answer = ask("operator").post("/jobs/cancel", json={"ids": jobs})
    assert (answer.status_code, answer.json()["done"]) == (200, jobs)


def test_it_is_stopped(ask: Ask, jobs: list[int], connection: psycopg.Connection) -> None:
    client = ask("operator")
    number = client.post("/jobs/cancel", json={"ids": jobs, "in_background": True}).json()["id"]
    assert ask("viewer").post(f"/operations/{number}/stop").status_code == 403
    stopped = client.post(f"/operations/{number}/stop")
    assert (stopped.status_code, stopped.json()["state"]) == (200, "stopped")
    assert one(connection, "select count(*) from sereno.audit where action = 'operation.stop'") == 1
    assert client.post(f"/operations/{number}/stop").json()["detail"] == f"operation {number} is over: it is stopped"


def test_a_tenant_sees_and_stops_its_own_alone(ask: Ask, jobs: list[int]) -> None:
    ann, bob, everybody = ask("operator", tenant="a"), ask("admin", tenant="b"), ask("admin")
    mine = ann.post("/jobs/cancel", json={"q": "task:w*", "in_background": True, "all": True}).json()
    assert (mine["tenant"], mine["total"], mine["wanted"]["tenant"]) == ("a", 2, "a")
    of_all = everybody.post("/jobs/cancel", json={"ids": jobs, "in_background": True}).json()
    assert [each["id"] for each in ann.get("/operations").json()["items"]] == [mine["id"]]
    assert bob.get("/operations").json()["items"] == []
    for number in (mine["id"], of_all["id"], 7_000_000):
        for answer in (bob.get(f"/operations/{number}"), bob.post(f"/operations/{number}/stop")):
            assert answer.status_code == 404
            assert answer.json()["detail"] == f"there is no operation {number}, or it is not yours to see"
    assert everybody.get(f"/operations/{mine['id']}").json()["state"] == "waiting"
    refused = ann.post("/jobs/cancel", json={"tenant": "b", "in_background": True, "all": True})
    assert refused.status_code == 404
    assert ann.post("/jobs/delete", json={"ids": jobs, "in_background": True}).status_code == 403
    assert ann.post(f"/operations/{mine['id']}/stop").json()["state"] == "stopped"


async def test_a_tenants_operation_touches_nothing_of_others(
    app: Sereno, ask: Ask, jobs: list[int], connection: psycopg.Connection
) -> None:
    ann = ask("operator", tenant="a")
    number = ann.post("/jobs/cancel", json={"ids": jobs, "in_background": True}).json()["id"]
    async with app.working({"default": 1}):
        await auntil(lambda: ann.get(f"/operations/{number}").json()["state"] == "done")
    assert [state(connection, each) for each in jobs] == ["cancelled", "cancelled", "ready", "ready"]


def test_lists_come_in_pages(ask: Ask, jobs: list[int]) -> None:
    client = ask("operator")
    body = {"ids": jobs, "in_background": True}
    made = [client.post("/jobs/cancel", json=body).json()["id"] for _ in range(3)]
    first = client.get("/operations", params={"limit": 2}).json()
    assert [each["id"] for each in first["items"]] == made[:0:-1]
    rest = client.get("/operations", params={"limit": 2, "before": first["next"]}).json()
    assert ([each["id"] for each in rest["items"]], rest["next"]) == (made[:1], None)


@pytest.mark.parametrize(
    "hostile",
    [
        {"task": "a\x00b"},
        {"task": "\ud800"},
        {"ids": [2**70]},
        {"ids": ["1; drop table sereno.jobs"]},
        {"reason": "x\x00y"},
        {"reason": "x" * 501},
        {"rate": 0},
        {"rate": -1},
        {"rate": 1e9},
        {"q": "state:dead state:"},
        {"created_after": "yesterday"},
    ],
)
def test_hostile_filters_are_a_problem_with_words(
    ask: Ask, jobs: list[int], connection: psycopg.Connection, hostile: dict[str, Any]
) -> None:
    for verb in ("retry", "cancel", "delete"):
        body = json.dumps({"in_background": True, "all": True} | hostile).encode()
        answer = ask("admin").post(f"/jobs/{verb}", content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code == 422, answer.text
        assert answer.json()["detail"]
    assert one(connection, "select count(*) from sereno.bulk_operations") == 0
    assert ask("admin").get("/operations/x").status_code == 422
    assert ask("admin").get(f"/operations/{2**63 - 1}").status_code == 404
    assert ask("admin").get(f"/operations/{2**63}").status_code == 422


def test_what_is_answered_is_declared(ask: Ask) -> None:
    paths = ask("viewer").get("/openapi.json").json()["paths"]
    for verb in ("retry", "cancel", "delete"):
        accepted = paths[f"/jobs/{verb}"]["post"]["responses"]["202"]["content"]
        assert accepted == {"application/json": {"schema": {"$ref": "#/components/schemas/BulkOperation"}}}


def test_the_same_request_makes_one_operation(ask: Ask, jobs: list[int]) -> None:
    client = ask("operator")
    body, key = {"ids": jobs, "in_background": True}, {"Idempotency-Key": "k"}
    first, again = (client.post("/jobs/cancel", json=body, headers=key) for _ in range(2))
    assert (first.status_code, again.status_code) == (202, 202)
    assert first.json() == again.json()


def test_one_job_again_with_other_arguments(
    ask: Ask, work: Any, jobs: list[int], connection: psycopg.Connection
) -> None:
    client = ask("operator")
    old = work.using(tenant="a", tags=["t"], priority=2, trace="x", unique_key="k").enqueue(7).id
    other = {"arguments": {"number": 8}}
    assert client.post(f"/jobs/{old}/retry", json=other).status_code == 409
    client.post("/jobs/cancel", json={"ids": [old]})
    answer = client.post(f"/jobs/{old}/retry", json=other)
    assert answer.status_code == 201
    new = answer.json()["id"]
    made = client.get(f"/jobs/{new}").json()["job"]
    assert {name: made[name] for name in ("task", "queue", "tenant", "tags", "priority", "trace", "args")} == {
        "task": "work",
        "queue": "elsewhere",
        "tenant": "a",
        "tags": ["t", f"retry-of:{old}"],
        "priority": 2,
        "trace": "x",
        "args": {"number": 8},
    }
    assert made["unique_key"] is None
    assert state(connection, old) == "cancelled"
    for search in ({"tag": f"retry-of:{old}"}, {"q": f"tag:retry-of:{old}"}):
        assert [each["id"] for each in client.get("/jobs", params=search).json()["items"]] == [new]
    assert one(
        connection, "select detail->>'made' from sereno.audit where subject = %s order by id desc", f"job {old}"
    ) == str(new)
    client.post("/jobs/cancel", json={"ids": [new]})
    newest = client.post(f"/jobs/{new}/retry", json=other).json()["id"]
    assert client.get(f"/jobs/{newest}").json()["job"]["tags"] == ["t", f"retry-of:{new}"]
    for wrong in ({"arguments": {"number": "x"}}, {"arguments": {"nobody": 1}}, {}, {"arguments": []}):
        assert client.post(f"/jobs/{old}/retry", json=wrong).status_code == 422
    assert ask("operator", tenant="b").post(f"/jobs/{old}/retry", json=other).status_code == 404
    assert ask("viewer").post(f"/jobs/{old}/retry", json=other).status_code == 403
