"""A server without the application's code enqueues the tasks that workers have declared."""

from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from sereno import Limit, Sereno
from sereno.jobs.task_rows import declare_code
from tests.server.api.conftest import Ask


@pytest.fixture
def declared(app: Sereno, database_url: str) -> Iterator[Sereno]:
    """The application of a worker, which the server has not imported."""
    with closing(Sereno(database_url)) as theirs:

        @theirs.task(queue="mail", version=2, concurrency=Limit(2, key="{account}", name="account"))
        def remind(account: str, days: int = 3) -> None: ...

        @theirs.task(tenants=False)
        def purge() -> None: ...

        @theirs.task(encrypt=["card"])
        def pay(card: str) -> None: ...

        app.database.run(declare_code(theirs.registry, "shop"))
        yield theirs


def test_parameters_of_declared_tasks_are_listed(ask: Ask, declared: Sereno) -> None:
    found = {task["name"]: task for task in ask("viewer").get("/tasks/parameters").json()["items"]}
    assert list(found) == ["pay", "purge", "remind"]
    assert (found["remind"]["queue"], found["remind"]["version"], found["remind"]["services"]) == ("mail", 2, ["shop"])
    account, days = found["remind"]["parameters"]
    assert (account["name"], account["type"], account["required"]) == ("account", "text", True)
    assert (days["name"], days["type"], days["default"]) == ("days", "integer", "3")
    theirs = ask("viewer", tenant="acme").get("/tasks/parameters").json()["items"]
    assert [task["name"] for task in theirs] == ["pay", "remind"]


def test_a_job_of_a_declared_task_has_its_queue_limits_and_version(
    ask: Ask, declared: Sereno, connection: psycopg.Connection
) -> None:
    made = ask("operator").post("/jobs", json={"task": "remind", "arguments": {"account": "a1"}})
    assert made.status_code == 201, made.text
    columns = "queue, args::text, keys is not null, requires::text"
    assert connection.execute(f"select {columns} from sereno.jobs where id = %s", [made.json()["id"]]).fetchone() == (
        "mail",
        '{"account": "a1"}',
        True,
        '{"version": 2}',
    )
    audit = connection.execute("select action from sereno.audit where subject = %s", [f"job {made.json()['id']}"])
    assert audit.fetchall() == [("job.enqueue",)]


def test_wrong_arguments_and_closed_tasks_are_refused(ask: Ask, declared: Sereno) -> None:
    operator = ask("operator")
    for arguments, problem in (
        ({}, "task remind: the argument account is missing; it takes (account, days)"),
        ({"account": "a", "day": 1}, "task remind: there is no argument 'day'; it takes (account, days)"),
    ):
        refused = operator.post("/jobs", json={"task": "remind", "arguments": arguments})
        assert (refused.status_code, refused.json()["detail"]) == (422, problem)
    refused = operator.post("/jobs", json={"task": "pay", "arguments": {"card": "4111"}})
    assert refused.status_code == 422
    assert "enqueue it from the application, which has the key" in refused.json()["detail"]
    tenant = ask("operator", tenant="acme")
    assert tenant.post("/jobs", json={"task": "purge"}).status_code == 403
    assert tenant.post("/jobs", json={"task": "remind", "arguments": {"account": "a"}}).status_code == 201
    assert tenant.post("/jobs", json={"task": "remind", "tenant": "b", "arguments": {}}).status_code == 404
