"""Bulk changes in the background over HTTP: they are started, followed and stopped within the rights of a token."""

import json
from typing import Any

import httpx
import psycopg
import pytest

from sereno import Sereno
from tests.facts import auntil, one, state
from tests.server.api.conftest import Ask, Document
from tests.server.api.notifications.test_deliveries import NotifiedEvents, notified
from tests.server.api.schedules.schedule_steps import body as definition

__all__ = ["notified"]

# Further request fields of each bulk change of schedules.
SCHEDULE_CHANGES: dict[str, dict[str, Any]] = {
    "pause": {"until": "2099-01-01T00:00:00Z", "note": "closed"},
    "resume": {},
    "disable": {"note": "closed"},
    "delete": {},
    "spread": {"over": "20m"},
}


@pytest.fixture
def work(app: Sereno) -> Any:
    @app.task(queue="elsewhere")
    def work(number: int) -> None: ...

    return work


@pytest.fixture
def jobs(work: Any) -> list[int]:
    return [work.using(tenant=tenant).enqueue(number).id for number, tenant in enumerate(["a", "a", "b", None])]


@pytest.mark.slow
async def test_an_operation_is_accepted_and_done_by_a_worker(
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


def test_without_in_background_jobs_are_changed_at_once(ask: Ask, jobs: list[int]) -> None:
    answer = ask("operator").post("/jobs/cancel", json={"ids": jobs})
    assert (answer.status_code, answer.json()["done"]) == (200, jobs)


def test_an_operation_can_be_stopped(ask: Ask, jobs: list[int], connection: psycopg.Connection) -> None:
    client = ask("operator")
    number = client.post("/jobs/cancel", json={"ids": jobs, "in_background": True}).json()["id"]
    assert ask("viewer").post(f"/operations/{number}/stop").status_code == 403
    stopped = client.post(f"/operations/{number}/stop")
    assert (stopped.status_code, stopped.json()["state"]) == (200, "stopped")
    assert one(connection, "select count(*) from sereno.audit where action = 'operation.stop'") == 1
    assert (
        client.post(f"/operations/{number}/stop").json()["detail"]
        == f"operation {number} has ended already: it is stopped"
    )


@pytest.mark.slow
def test_a_tenant_sees_and_stops_only_its_own_operations(ask: Ask, jobs: list[int]) -> None:
    ann, bob, admin = ask("operator", tenant="a"), ask("admin", tenant="b"), ask("admin")
    mine = ann.post("/jobs/cancel", json={"q": "task:w*", "in_background": True, "all": True}).json()
    assert (mine["tenant"], mine["total"], mine["wanted"]["tenant"]) == ("a", 2, "a")
    of_all = admin.post("/jobs/cancel", json={"ids": jobs, "in_background": True}).json()
    assert [each["id"] for each in ann.get("/operations").json()["items"]] == [mine["id"]]
    assert bob.get("/operations").json()["items"] == []
    for number in (mine["id"], of_all["id"], 7_000_000):
        for answer in (bob.get(f"/operations/{number}"), bob.post(f"/operations/{number}/stop")):
            assert answer.status_code == 404
            assert answer.json()["detail"] == f"there is no operation {number}, or you have no access to it"
    assert admin.get(f"/operations/{mine['id']}").json()["state"] == "waiting"
    refused = ann.post("/jobs/cancel", json={"tenant": "b", "in_background": True, "all": True})
    assert refused.status_code == 404
    assert ann.post("/jobs/delete", json={"ids": jobs, "in_background": True}).status_code == 403
    assert ann.post(f"/operations/{mine['id']}/stop").json()["state"] == "stopped"


@pytest.mark.slow
async def test_a_tenants_operation_changes_nothing_of_other_tenants(
    app: Sereno, ask: Ask, jobs: list[int], connection: psycopg.Connection
) -> None:
    ann = ask("operator", tenant="a")
    number = ann.post("/jobs/cancel", json={"ids": jobs, "in_background": True}).json()["id"]
    async with app.working({"default": 1}):
        await auntil(lambda: ann.get(f"/operations/{number}").json()["state"] == "done")
    assert [state(connection, each) for each in jobs] == ["cancelled", "cancelled", "ready", "ready"]


def test_operations_are_listed_in_pages(ask: Ask, jobs: list[int]) -> None:
    client = ask("operator")
    body = {"ids": jobs, "in_background": True}
    made = [client.post("/jobs/cancel", json=body).json()["id"] for _ in range(3)]
    first = client.get("/operations", params={"limit": 2}).json()
    assert [each["id"] for each in first["items"]] == made[:0:-1]
    rest = client.get("/operations", params={"limit": 2, "before": first["next"]}).json()
    assert ([each["id"] for each in rest["items"]], rest["next"]) == (made[:1], None)


INVALID_FILTERS: list[dict[str, Any]] = [
    {"task": "a\x00b"},
    {"task": "\ud800"},
    {"ids": [2**70]},
    {"ids": [2**63]},
    {"ids": [-1]},
    {"states": ["dead"] * 21},
    {"states": ["x" * 51]},
    {"ids": ["1; drop table sereno.jobs"]},
    {"reason": "x\x00y"},
    {"reason": "x" * 501},
    {"rate": 0},
    {"rate": -1},
    {"rate": 1e9},
    {"q": "state:dead state:"},
    {"created_after": "yesterday"},
]


@pytest.mark.slow
def test_invalid_bulk_filters_get_a_problem_with_a_message(
    ask: Ask, jobs: list[int], connection: psycopg.Connection, subtests: pytest.Subtests
) -> None:
    client, is_json = ask("admin"), {"Content-Type": "application/json"}
    for hostile in INVALID_FILTERS:
        with subtests.test(hostile=str(hostile)):
            for verb in ("retry", "cancel", "delete"):
                body = json.dumps({"in_background": True, "all": True} | hostile).encode()
                answer = client.post(f"/jobs/{verb}", content=body, headers=is_json)
                assert answer.status_code == 422, answer.text
                assert answer.json()["detail"]
            assert one(connection, "select count(*) from sereno.bulk_operations") == 0
    assert client.get("/operations/x").status_code == 422
    assert client.get(f"/operations/{2**63 - 1}").status_code == 404
    assert client.get(f"/operations/{2**63}").status_code == 422


@pytest.mark.slow
def test_accepted_responses_are_documented(document: Document) -> None:
    paths = document["paths"]
    for path in (
        *(f"/jobs/{verb}" for verb in ("retry", "cancel", "delete")),
        *(f"/schedules/{verb}" for verb in SCHEDULE_CHANGES),
        "/deliveries/requeue",
    ):
        accepted = paths[path]["post"]["responses"]["202"]["content"]
        assert accepted == {"application/json": {"schema": {"$ref": "#/components/schemas/BulkOperation"}}}


@pytest.mark.slow
def test_a_repeated_idempotency_key_creates_one_operation(ask: Ask, jobs: list[int]) -> None:
    client = ask("operator")
    body, key = {"ids": jobs, "in_background": True}, {"Idempotency-Key": "k"}
    first, again = (client.post("/jobs/cancel", json=body, headers=key) for _ in range(2))
    assert (first.status_code, again.status_code) == (202, 202)
    assert first.json() == again.json()


@pytest.mark.slow
def test_retry_of_one_job_with_other_arguments(
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
    refused: list[dict[str, Any]] = [
        {"arguments": {"number": "x"}},
        {"arguments": {"unknown": 1}},
        {},
        {"arguments": []},
    ]
    for wrong in refused:
        assert client.post(f"/jobs/{old}/retry", json=wrong).status_code == 422
    assert ask("operator", tenant="b").post(f"/jobs/{old}/retry", json=other).status_code == 404
    assert ask("viewer").post(f"/jobs/{old}/retry", json=other).status_code == 403


# Schedules


def _fill(client: httpx.Client) -> None:
    for key, tenant in (("menu:1", "a"), ("menu:2", "a"), ("menu:3", "b"), ("close", None)):
        given = definition(tenant=tenant, args={"number": 1})
        assert client.put(f"/schedules/{key}", json=given).status_code == 200


@pytest.mark.slow
async def test_bulk_changes_of_schedules_in_the_background(
    app: Sereno, ask: Ask, work: Any, connection: psycopg.Connection
) -> None:
    admin, operator = ask("admin"), ask("operator")
    _fill(admin)
    many: dict[str, Any] = {"tenant": "a", "in_background": True, "rate": 1000}
    assert operator.post("/schedules/pause", json=many).status_code == 409
    dry = operator.post("/schedules/pause", json=many | {"dry_run": True})
    assert (dry.status_code, dry.json()["total"]) == (200, 2)
    made = []
    for verb, how in SCHEDULE_CHANGES.items():
        answer = admin.post(f"/schedules/{verb}", json=many | how | {"all": True})
        assert answer.status_code == 202, answer.text
        made.append(answer.json())
    assert [(each["action"], each["reason"], each["options"]) for each in made] == [
        ("schedule.pause", "closed", {"until": "2099-01-01T00:00:00Z"}),
        ("schedule.resume", None, {}),
        ("schedule.disable", "closed", {}),
        ("schedule.delete", None, {}),
        ("schedule.spread", None, {"window": 1200}),
    ]
    assert [(each["total"], each["tenant"]) for each in made] == [(2, "a"), (0, "a"), *[(2, "a")] * 3]
    for each in (made[1], *made[3:]):
        assert admin.post(f"/operations/{each['id']}/stop").json()["state"] == "stopped"
    async with app.working({"default": 1}):
        for each in (made[0], made[2]):
            where = f"/operations/{each['id']}"
            await auntil(lambda: operator.get(where).json()["state"] == "done")  # noqa: B023 - awaited here
            assert operator.get(where).json()["done"] == 2
    states = connection.execute("select key, state, note from sereno.schedules order by key").fetchall()
    assert states == [
        ("close", "enabled", None),
        ("menu:1", "disabled", "closed"),
        ("menu:2", "disabled", "closed"),
        ("menu:3", "enabled", None),
    ]
    assert one(connection, "select actor from sereno.audit where action = 'schedule.disable'").startswith("admin")


@pytest.mark.slow
def test_roles_for_schedules_in_the_background(ask: Ask, work: Any, connection: psycopg.Connection) -> None:
    _fill(ask("admin"))
    ann, bob = ask("operator", tenant="a"), ask("operator", tenant="b")
    mine = ann.post("/schedules/pause", json={"in_background": True, "all": True}).json()
    assert (mine["tenant"], mine["total"], mine["wanted"]["tenant"]) == ("a", 2, "a")
    assert ann.post("/schedules/pause", json={"tenant": "b", "in_background": True, "all": True}).status_code == 404
    assert ann.post("/schedules/delete", json={"in_background": True, "all": True}).status_code == 403
    assert bob.get(f"/operations/{mine['id']}").status_code == 404
    assert ask("viewer").post("/schedules/pause", json={"in_background": True, "all": True}).status_code == 403
    before = one(connection, "select count(*) from sereno.bulk_operations")
    for verb, wrong in (
        ("pause", {"until": "2020-01-01T00:00:00Z"}),
        ("pause", {"note": "a\x00b"}),
        ("pause", {"task": "a\x00b"}),
        ("pause", {"pattern": "\ud800"}),
        ("pause", {"keys": ["x"] * 10_001}),
        ("resume", {"rate": 0}),
        ("resume", {"rate": 5, "in_background": False}),
        ("spread", {"over": "soon"}),
        ("spread", {}),
    ):
        body = json.dumps({"in_background": True, "all": True} | wrong).encode()
        answer = ask("admin").post(f"/schedules/{verb}", content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code == (409 if "until" in wrong else 422), answer.text
    assert one(connection, "select count(*) from sereno.bulk_operations") == before


# Deliveries


@pytest.mark.slow
async def test_deliveries_are_requeued_in_the_background(
    app: Sereno, ask: Ask, notified: NotifiedEvents, connection: psycopg.Connection
) -> None:
    client, there = ask("operator"), notified.deliveries
    many = {"channel": "pager", "in_background": True}
    assert client.post("/deliveries/requeue", json=many).status_code == 409
    dry = client.post("/deliveries/requeue", json=many | {"dry_run": True})
    assert (dry.status_code, dry.json()["total"]) == (200, 2)
    answer = client.post("/deliveries/requeue", json=many | {"all": True, "rate": 100})
    made = answer.json()
    assert (answer.status_code, made["action"], made["total"], made["rate"]) == (202, "delivery.requeue", 2, 100)
    async with app.working({"default": 1}):
        await auntil(lambda: client.get(f"/operations/{made['id']}").json()["state"] == "done")
    assert client.get(f"/operations/{made['id']}").json()["done"] == 2
    again = connection.execute("select id from sereno.deliveries where reason = 'requeued' order by id").fetchall()
    assert again == [(number,) for number in sorted([there["fails"], there["theirs"]])]
    assert one(connection, "select actor from sereno.audit where action = 'delivery.requeue'").startswith("operator")


@pytest.mark.slow
def test_roles_for_requeue_in_the_background(
    ask: Ask, notified: NotifiedEvents, connection: psycopg.Connection
) -> None:
    ann, there = ask("operator", tenant="a"), notified.deliveries
    many = {"ids": [there["fails"], there["theirs"]], "in_background": True}
    made = ann.post("/deliveries/requeue", json=many).json()
    assert (made["tenant"], made["total"], made["wanted"]["ids"]) == ("a", 1, [there["theirs"]])
    assert ask("operator", tenant="b").get(f"/operations/{made['id']}").status_code == 404
    assert ask("viewer").post("/deliveries/requeue", json=many).status_code == 403
    client = ask("operator")
    assert client.post("/deliveries/requeue", json=many | {"ids": [there["ok"]]}).status_code == 409
    refusals: list[tuple[dict[str, Any], int]] = [
        ({"recipient": "unknown"}, 404),
        ({"states": ["sent"]}, 409),
        ({"channel": "a\x00b"}, 422),
        ({"channel": "pager", "rate": -1}, 422),
        ({"channel": "pager", "rate": 5, "in_background": False}, 422),
        ({}, 422),
    ]
    for wrong, status in refusals:
        body = {"in_background": True, "all": True} | wrong
        assert client.post("/deliveries/requeue", json=body).status_code == status, wrong
    assert one(connection, "select count(*) from sereno.bulk_operations") == 1
