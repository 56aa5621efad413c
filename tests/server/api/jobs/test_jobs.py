"""Jobs over HTTP: they are read and changed within the rights of a token."""

import psycopg
import pytest

from sereno import Sereno
from tests.facts import one, state
from tests.server.api.conftest import Ask


@pytest.fixture
def jobs(app: Sereno) -> list[int]:
    @app.task
    def work(number: int) -> None: ...

    return [work.using(tenant=tenant).enqueue(number).id for number, tenant in enumerate(["a", "a", "b", None])]


def test_jobs_are_listed_in_pages(ask: Ask, jobs: list[int]) -> None:
    client = ask("viewer")
    first = client.get("/jobs", params={"limit": 3}).json()
    assert [each["id"] for each in first["items"]] == jobs[:0:-1]
    rest = client.get("/jobs", params={"limit": 3, "before": first["next"]}).json()
    assert ([each["id"] for each in rest["items"]], rest["next"]) == ([jobs[0]], None)
    by_number = client.get("/jobs", params={"page": 2, "page_size": 3}).json()
    assert [each["id"] for each in by_number["items"]] == [jobs[0]]
    assert [each["id"] for each in client.get("/jobs", params={"tenant": "b"}).json()["items"]] == [jobs[2]]


def test_a_search_has_the_syntax_of_the_command_line(ask: Ask, jobs: list[int]) -> None:
    client = ask("operator")
    found = client.get("/jobs", params={"q": "tenant:a,b -args.number:1"}).json()["items"]
    assert [each["id"] for each in found] == [jobs[2], jobs[0]]
    assert client.post("/jobs/cancel", json={"q": "-tenant:*", "all": True}).json()["done"] == [jobs[3]]
    assert client.post("/jobs/cancel", json={"q": "tenant:a"}).status_code == 409
    wrong = client.get("/jobs", params={"q": "tenant:a stat:dead"})
    assert wrong.status_code == 422
    assert 'at character 10 of the search: there is no field "stat": did you mean state?' in wrong.json()["detail"]
    theirs = ask("operator", tenant="a")
    assert [each["id"] for each in theirs.get("/jobs", params={"q": "tenant:a,b"}).json()["items"]] == jobs[1::-1]
    assert theirs.get("/jobs", params={"q": "tenant:b"}).status_code == 404
    assert theirs.get("/jobs", params={"q": "-tenant:a"}).json()["items"] == []
    assert theirs.post("/jobs/cancel", json={"q": "tenant:*", "all": True}).json()["done"] == jobs[:2]


def test_a_job_is_shown_with_an_explanation(ask: Ask, jobs: list[int]) -> None:
    client = ask("viewer")
    found = client.get(f"/jobs/{jobs[0]}").json()
    assert (found["job"]["task"], found["job"]["args"], found["attempts"]) == ("work", {"number": 0}, [])
    assert client.get(f"/jobs/{jobs[0]}/why").json()["sentences"]
    missing = client.get("/jobs/999999")
    assert missing.status_code == 404
    assert missing.headers["content-type"] == "application/problem+json"
    assert missing.json() == {
        "type": "about:blank",
        "title": "Not Found",
        "status": 404,
        "detail": "there is no job 999999, or you have no access to it",
    }


@pytest.mark.slow
def test_a_tenants_token_gives_access_to_that_tenants_jobs_only(
    app: Sereno, ask: Ask, jobs: list[int], connection: psycopg.Connection
) -> None:
    client = ask("operator", tenant="a")
    assert {each["id"] for each in client.get("/jobs").json()["items"]} == set(jobs[:2])
    assert client.get("/jobs", params={"tenant": "b"}).status_code == 404
    assert client.get(f"/jobs/{jobs[2]}").status_code == 404
    assert client.get(f"/jobs/{jobs[2]}/why").status_code == 404
    assert client.post("/jobs/cancel", json={"ids": jobs}).json()["done"] == jobs[:2]
    assert state(connection, jobs[2]) == "ready"
    made = client.post("/jobs", json={"task": "work", "arguments": {"number": 7}}).json()
    assert one(connection, "select tenant from sereno.jobs where id = %s", made["id"]) == "a"
    assert client.post("/jobs", json={"task": "work", "arguments": {"number": 7}, "tenant": "b"}).status_code == 404


@pytest.mark.slow
def test_jobs_are_cancelled_retried_and_deleted(ask: Ask, jobs: list[int], connection: psycopg.Connection) -> None:
    client = ask("admin")
    dry = client.post("/jobs/cancel", json={"tenant": "a", "dry_run": True}).json()
    assert (dry["dry_run"], dry["total"], dry["by_tenant"], dry["done"]) == (True, 2, {"a": 2}, [])
    assert client.post("/jobs/cancel", json={"tenant": "a"}).status_code == 409
    assert client.post("/jobs/cancel", json={"tenant": "a", "all": True}).json()["done"] == jobs[:2]
    assert client.post("/jobs/retry", json={"ids": jobs[:1]}).json()["done"] == jobs[:1]
    assert client.post("/jobs/delete", json={"ids": jobs[:2]}).json()["done"] == jobs[:2]
    assert state(connection, jobs[0]) is None
    assert one(connection, "select count(*) from sereno.audit where actor like 'admin%%'") >= 3


def test_a_retry_names_the_live_job_that_has_the_unique_key(ask: Ask, jobs: list[int]) -> None:
    client = ask("operator")
    given = {"task": "work", "arguments": {"number": 7}, "unique_key": "k"}
    first = client.post("/jobs", json=given).json()["id"]
    client.post("/jobs/cancel", json={"ids": [first, jobs[0]]})
    live = client.post("/jobs", json=given).json()["id"]
    found = client.post("/jobs/retry", json={"ids": [first, jobs[0]]}).json()
    assert (found["done"], found["left"]) == ([jobs[0]], [first])
    assert found["conflicts"] == [{"job": first, "held_by": live}]


def test_roles_for_jobs(ask: Ask, jobs: list[int]) -> None:
    assert ask(None).get("/jobs").status_code == 401
    viewer = ask("viewer")
    assert viewer.post("/jobs/cancel", json={"ids": jobs}).status_code == 403
    assert ask("operator").post("/jobs/delete", json={"ids": jobs}).status_code == 403
    wrong = ask(None)
    wrong.headers["Authorization"] = "Bearer srn_" + "x" * 32
    assert wrong.get("/jobs").status_code == 401


def test_a_repeated_idempotency_key_creates_one_job(ask: Ask, jobs: list[int], connection: psycopg.Connection) -> None:
    client, other = ask("operator"), ask("operator")
    body = {"task": "work", "arguments": {"number": 9}}
    first = client.post("/jobs", json=body, headers={"Idempotency-Key": "k1"})
    again = client.post("/jobs", json=body, headers={"Idempotency-Key": "k1"})
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.json() == first.json()
    assert again.headers["idempotent-replay"] == "true"
    assert one(connection, "select count(*) from sereno.jobs") == len(jobs) + 1
    assert client.post("/jobs", json=body | {"queue": "q"}, headers={"Idempotency-Key": "k1"}).status_code == 422
    assert other.post("/jobs", json=body, headers={"Idempotency-Key": "k1"}).json() != first.json()
    refused = client.post("/jobs", json={"task": "unknown"}, headers={"Idempotency-Key": "k2"})
    assert refused.status_code == 422
    assert client.post("/jobs", json=body, headers={"Idempotency-Key": "k2"}).status_code == 201


def test_invalid_job_requests_get_a_problem_with_a_message(ask: Ask, jobs: list[int]) -> None:
    client = ask("admin")
    for answer in (
        client.get("/jobs", params={"limit": 0}),
        client.get("/jobs", params={"page": 500, "page_size": 100}),
        client.get("/jobs", params={"task": "a\x00b"}),
        client.post("/jobs", json={"task": "work", "arguments": {"number": "x"}}),
        client.post("/jobs", content=b"{", headers={"Content-Type": "application/json"}),
    ):
        assert answer.status_code == 422
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["detail"]
    assert client.post("/jobs", content=b"x" * 5_000_000).status_code == 413
