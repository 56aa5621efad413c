"""Attacks with a valid token: the engine's own tasks, more than a fair share, and stored or guessed secrets."""

from collections.abc import Callable
from itertools import product
from typing import Any

import httpx
import psycopg
import pytest

from sereno import Sereno
from sereno.bulk import operations as bulk
from sereno.bulk.operations import MOST_OF_A_TENANT
from sereno.database.driver import drive
from sereno.jobs import operations as jobs
from sereno.jobs.bulk import TASK
from sereno.jobs.filters import JobFilter
from tests.facts import one
from tests.notifications.conftest import Pager, Tender
from tests.server.api.conftest import Ask, Served
from tests.server.api.schedules.schedule_steps import DAILY, JSON, body

KEY = {"Idempotency-Key": "k"}
USERS = [(role, tenant) for role in ("viewer", "operator", "admin") for tenant in (None, "a")]
REFUSAL = "is a task of the engine"
ADDRESS = "pager-of-ana-7777"
STORED_RESPONSES = "select count(*) from sereno.idempotency_keys"


@pytest.fixture
def work(app: Sereno) -> Any:
    @app.task(queue="elsewhere")
    def work(account: int, password: str = "", api_key: str = "") -> None: ...

    return work


# The engine's own tasks


@pytest.fixture
def own_job(app: Sereno, work: Any, connection: psycopg.Connection) -> int:
    """A finished job of an engine task, assigned to a tenant."""
    wanted = JobFilter(ids=[work.enqueue(1).id])
    number = app.database.run(bulk.begin("job.cancel", wanted, actor="test")).job_id
    assert number is not None
    connection.execute("update sereno.jobs set tenant = 'a' where id = %s", [number])
    drive(jobs.cancel(JobFilter(ids=[number]), actor="test"), app.database.run)
    assert one(connection, "select state from sereno.history where id = %s", number) == "cancelled"
    return number


@pytest.mark.slow
def test_tasks_of_the_engine_cannot_be_enqueued(
    app: Sereno, ask: Ask, own_job: int, connection: psycopg.Connection
) -> None:
    # Registered, as in a process that also runs a worker.
    app.task(name="sereno.tick")(_nothing)
    for role, tenant in USERS:
        client = ask(role, tenant)
        answers = [client.post(f"/jobs/{own_job}/retry", json={"arguments": {"operation": 1}})]
        for task in (TASK, "sereno.tick", "sereno.anything"):
            answers.append(client.post("/jobs", json={"task": task, "arguments": {"operation": 1}}))
            answers.append(client.put("/schedules/k", json=body(task=task)))
            answers.append(client.put("/schedules/k", json=body(task=task), params={"unchecked": True}))
        assert {each.status_code for each in answers} == {403}, (role, tenant)
        if role == "admin":
            assert all(REFUSAL in each.json()["detail"] for each in answers)
    assert one(connection, "select count(*) from sereno.jobs where task like 'sereno.%%'") == 0
    assert one(connection, "select count(*) from sereno.schedules") == 0


def _nothing() -> None: ...


def test_tasks_of_the_engine_cannot_be_imported(app: Sereno, ask: Ask, connection: psycopg.Connection) -> None:
    """A refused definition is reported at its position; with `strict`, nothing is imported."""
    app.task(name="sereno.tick")(_nothing)
    definitions = [{"key": f"k{at}", **body(task=task)} for at, task in enumerate((TASK, "sereno.tick"))]
    for client, params in product((ask("admin"), ask("admin", tenant="a")), ({}, {"unchecked": True})):
        answer = client.post("/schedules/import", json={"schedules": definitions}, params=params).json()
        assert [(each["at"], REFUSAL in each["problem"]) for each in answer["refused"]] == [(0, True), (1, True)]
        assert answer["created"] == 0
        strict = client.post("/schedules/import", json={"schedules": definitions, "strict": True}, params=params)
        assert strict.status_code == 422
    for role in ("viewer", "operator"):
        assert ask(role).post("/schedules/import", json={"schedules": definitions}).status_code == 403
    assert one(connection, "select count(*) from sereno.schedules") == 0


# Bulk operations


def test_a_rate_has_a_minimum(ask: Ask, work: Any) -> None:
    client = ask("operator")
    request = {"ids": [work.enqueue(1).id], "in_background": True}
    for path, given in (
        ("/jobs/cancel", request),
        ("/jobs/retry", request),
        ("/schedules/pause", {"keys": ["k"], "in_background": True}),
        ("/deliveries/requeue", {"ids": [1], "in_background": True}),
    ):
        assert client.post(path, json=given | {"rate": 0.099}).status_code == 422, path
    assert client.post("/jobs/cancel", json=request | {"rate": 0.1}).status_code == 202


@pytest.mark.slow
def test_operations_of_a_tenant_are_limited(ask: Ask, work: Any) -> None:
    job = work.using(tenant="a").enqueue(1).id
    client, given = ask("operator", tenant="a"), {"ids": [job], "in_background": True}
    made = [client.post("/jobs/cancel", json=given) for _ in range(MOST_OF_A_TENANT)]
    assert [each.status_code for each in made] == [202] * MOST_OF_A_TENANT
    for path, more in (
        ("/jobs/cancel", given),
        ("/jobs/retry", given),
        ("/schedules/pause", {"all": True, "in_background": True}),
        ("/deliveries/requeue", {"channel": "pager", "all": True, "in_background": True}),
    ):
        refused = client.post(path, json=more)
        assert (refused.status_code, "operations are in progress" in refused.json()["detail"]) == (409, True), path
    assert ask("operator", tenant="b").post("/jobs/cancel", json=given).status_code == 202
    assert ask("operator").post("/jobs/cancel", json=given).status_code == 202
    assert client.post(f"/operations/{made[0].json()['id']}/stop").json()["state"] == "stopped"
    assert client.post("/jobs/cancel", json=given).status_code == 202


@pytest.mark.slow
def test_all_operations_together_are_limited_to_fifty(app: Sereno, ask: Ask, work: Any) -> None:
    wanted = JobFilter(ids=[work.enqueue(1).id])
    for _ in range(50):
        app.database.run(bulk.begin("job.cancel", wanted, actor="test"))
    given = {"ids": [1], "in_background": True}
    assert ask("admin").post("/jobs/cancel", json=given).status_code == 409
    assert ask("operator", tenant="a").post("/jobs/cancel", json=given).status_code == 409


# Stored responses


async def test_no_secret_is_stored_for_a_repeated_request(
    app: Sereno, ask: Ask, work: Any, connection: psycopg.Connection
) -> None:
    """A reveal that is repeated with the same key is audited each time."""
    published = app.event("tender.published", Tender, channels=[Pager()])
    await app.recipients.aupsert("ana", {"pager": ADDRESS})
    await app.notifications.fanout.fan_out(await published.anotify(Tender("T1"), to="ana"))
    job, delivery = (await work.aenqueue(7, "hunter2")).id, one(connection, "select id from sereno.deliveries")
    client = ask("admin")
    for path, action, secret in (
        (f"/jobs/{job}/reveal", "job.reveal", "hunter2"),
        ("/recipients/ana/reveal", "recipient.reveal", ADDRESS),
        (f"/deliveries/{delivery}/reveal", "delivery.reveal", ADDRESS),
    ):
        for times in (1, 2):
            answer = client.post(path, headers=KEY)
            assert (answer.status_code, secret in answer.text) == (200, True), path
            assert "idempotent-replay" not in answer.headers
            assert one(connection, "select count(*) from sereno.audit where action = %s", action) == times
    assert client.post("/tokens", json={"name": "n"}, headers=KEY).status_code == 201
    assert one(connection, STORED_RESPONSES) == 0


@pytest.mark.slow
def test_a_request_is_authenticated_before_its_body_is_read(ask: Ask, connection: psycopg.Connection) -> None:
    anonymous, viewer = ask(None), ask("viewer")
    for path in ("/tokens", "/jobs/1/reveal", "/recipients/ana/reveal", "/deliveries/1/reveal"):
        for client, status in ((anonymous, 401), (viewer, 403)):
            answer = client.post(path, content=b'{"name": ', headers=JSON | KEY)
            assert answer.status_code == status, path
    assert one(connection, STORED_RESPONSES) == 0


def test_only_responses_of_changes_are_stored(ask: Ask, work: Any, connection: psycopg.Connection) -> None:
    """A request that changes nothing stores nothing, so a viewer cannot fill the table."""
    for client in (ask("viewer"), ask("admin")):
        for _ in range(2):
            assert client.post("/schedules/preview", json={"when": DAILY}, headers=KEY).status_code == 200
    assert one(connection, STORED_RESPONSES) == 0
    client, wanted = ask("operator"), {"task": "work", "arguments": {"account": 1}}
    assert client.post("/jobs", json=wanted, headers=KEY).status_code == 201
    again = client.post("/jobs", json=wanted, headers=KEY)
    assert again.headers["idempotent-replay"] == "true"
    assert one(connection, "select count(*) from sereno.jobs") == 1


# Guessed secrets


def test_masked_values_cannot_be_found_by_guessing(ask: Ask, work: Any) -> None:
    work.using(tenant="a").enqueue(7, "hunter2", "x")
    for tenant in (None, "a"):
        viewer, operator = ask("viewer", tenant), ask("operator", tenant)
        for guess in ("args.password:hunter2", "args.api_key:x", "-args.password:a state:ready"):
            refused = viewer.get("/jobs", params={"q": guess})
            assert refused.status_code == 403
            assert "is masked: only an operator can search by it" in refused.json()["detail"]
            found = operator.get("/jobs", params={"q": guess})
            assert (found.status_code, len(found.json()["items"])) == (200, 1)
        # All that a secret contains is masked with it.
        assert viewer.get("/jobs", params={"q": "args.credentials.user:ana"}).status_code == 403
        for text, count in (("args.account:7", 1), ("args.account:8", 0)):
            assert len(viewer.get("/jobs", params={"q": text}).json()["items"]) == count


# Actors in the audit


@pytest.mark.slow
def test_the_audit_names_the_tenant_of_an_actor(ask: Ask, work: Any, connection: psycopg.Connection) -> None:
    """A tenant's users choose their names; with the tenant in the audit they cannot pass for operators."""
    job = work.using(tenant="a").enqueue(1).id
    theirs, admin = ask("admin", tenant="a"), ask("admin")
    many = {"ids": [job], "in_background": True}
    requests: dict[str, Callable[[httpx.Client], httpx.Response]] = {
        "job.enqueue": lambda client: client.post("/jobs", json={"task": "work", "arguments": {"account": 1}}),
        "schedule.write": lambda client: client.put(
            f"/schedules/of {client.headers['Authorization'][-5:]}", json=body(task="work", args={"account": 1})
        ),
        "job.reveal": lambda client: client.post(f"/jobs/{job}/reveal"),
        "operation.begin": lambda client: client.post("/jobs/cancel", json=many),
    }
    for action, act in requests.items():
        for client, name in ((admin, "admin None 1"), (theirs, "admin a 0 of a")):
            answer = act(client)
            assert answer.is_success, (action, answer.text)
            newest = "select actor from sereno.audit where action = %s order by id desc limit 1"
            assert one(connection, newest, action) == name
    assert theirs.post("/tokens", json={"name": "root"}).status_code == 201
    assert one(connection, "select actor from sereno.audit where action = 'token.create' order by id desc limit 1") == (
        "admin a 0 of a"
    )


# Host header


@pytest.mark.slow
def test_no_redirect_uses_the_host_header(bare_ask: Ask, bare_served: Served) -> None:
    for client in (bare_ask("admin"), bare_ask(None)):
        for path in (
            "/api/v1/jobs/",
            "/jobs/",
            "/api/v1/jobs//",
            "/api/v1/tokens/",
            "/sign-in/",
            "/static/",
            "/livez/",
        ):
            answer = client.get(f"{bare_served.url}{path}", headers={"Host": "evil.example"})
            assert (answer.status_code, answer.headers.get("location")) == (404, None), path
        for path in ("/api/v1", "/jobs", "/"):
            answer = client.get(f"{bare_served.url}{path}", headers={"Host": "evil.example"})
            assert "evil.example" not in answer.headers.get("location", ""), path
