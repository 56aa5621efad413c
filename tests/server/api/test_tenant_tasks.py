"""With a token of one tenant, only tasks that are declared open to tenants can be run over HTTP."""

import httpx
import psycopg
import pytest

from sereno import Sereno
from sereno.database.driver import drive
from sereno.jobs import operations as jobs
from sereno.jobs.filters import JobFilter
from sereno.jobs.job import JobOptions
from tests.server.api.conftest import Ask

PROCEDURE = "procedure.reporting.close_day"
DAILY = {"kind": "daily", "at": "03:00", "tz": "Europe/Riga"}
PAST = {"start": "2026-01-01T00:00:00Z", "end": "2026-01-03T00:00:00Z"}
CLOSED = (PROCEDURE, "purge", "sereno.deliver", "not.declared")


@pytest.fixture
def tasks(app: Sereno) -> Sereno:
    """An open task, a closed task and a procedure."""

    @app.task
    def work(text: str = "") -> None: ...

    @app.task(tenants=False)
    def purge(text: str = "") -> None: ...

    app.procedure("reporting.close_day")
    return app


def finished_job(app: Sereno, task: str) -> int:
    """Return the id of a finished job of the tenant that an operator created."""
    made = app.enqueue_many([app.new_job(task, b"{}", JobOptions(tenant="acme"))])[0]
    drive(jobs.cancel(JobFilter(ids=[made.id]), actor="test"), app.database.run)
    return made.id


@pytest.mark.slow
def test_a_tenant_enqueues_only_tasks_that_are_open(tasks: Sereno, ask: Ask, connection: psycopg.Connection) -> None:
    """`POST /jobs` and schedules of the tenant refuse other tasks, also with `unchecked`."""
    operator, admin = ask("operator", tenant="acme"), ask("admin", tenant="acme")
    assert operator.post("/jobs", json={"task": "work"}).status_code == 201
    for task in CLOSED:
        assert operator.post("/jobs", json={"task": task}).status_code == 403, task
        for params in ({}, {"unchecked": True}):
            body = {"task": task, "when": DAILY}
            assert admin.put("/schedules/k", json=body, params=params).status_code == 403, (task, params)
            imported = admin.post("/schedules/import", json={"schedules": [{**body, "key": "k"}]}, params=params).json()
            assert (imported["created"], len(imported["refused"])) == (0, 1), (task, params)
    count = connection.execute("select count(*) from sereno.jobs where task <> 'work'").fetchone()
    assert count == (0,)
    assert connection.execute("select count(*) from sereno.schedules where key = 'k'").fetchone() == (0,)


@pytest.mark.slow
def test_a_tenant_retries_only_jobs_of_open_tasks(tasks: Sereno, ask: Ask) -> None:
    """A retry by id or with other arguments is refused; a retry by a filter leaves other jobs out."""
    operator = ask("operator", tenant="acme")
    mine = finished_job(tasks, "work")
    closed = [finished_job(tasks, task) for task in (PROCEDURE, "purge")]
    for job in closed:
        answer = operator.post("/jobs/retry", json={"ids": [mine, job]})
        assert (answer.status_code, "not open to tenants" in answer.json()["detail"]) == (403, True)
        assert operator.post(f"/jobs/{job}/retry", json={"arguments": {}}).status_code == 403
        answer = operator.post("/jobs/retry", json={"ids": [job], "in_background": True})
        assert answer.status_code == 403
    assert operator.post("/jobs/retry", json={"all": True, "dry_run": True}).json()["by_task"] == {"work": 1}
    assert operator.post("/jobs/retry", json={"all": True}).json()["done"] == [mine]
    assert ask("operator").post("/jobs/retry", json={"ids": closed}).json()["done"] == closed


@pytest.mark.slow
@pytest.mark.parametrize("task", [PROCEDURE, "purge"])
def test_a_tenant_fires_only_schedules_of_tasks_that_are_open(tasks: Sereno, ask: Ask, task: str) -> None:
    """A schedule that an operator created for the tenant cannot be run, backfilled or resumed by the tenant."""
    operator, tenant = ask("admin"), ask("admin", tenant="acme")
    for key, what in (("closed", task), ("open", "work")):
        made = operator.put(f"/schedules/{key}", json={"task": what, "when": DAILY, "tenant": "acme"})
        assert made.status_code == 200, made.text
    assert tenant.post("/schedules/closed/run").status_code == 403
    assert tenant.post("/schedules/closed/backfill", json=PAST).status_code == 403
    assert tenant.post("/schedules/run", json={"keys": ["closed", "open"]}).status_code == 403
    assert tenant.post("/schedules/run", json={"all": True}).json()["total"] == 1
    assert tenant.post("/schedules/pause", json={"keys": ["closed", "open"]}).json()["total"] == 2
    assert tenant.post("/schedules/resume", json={"keys": ["closed"]}).status_code == 403
    background = {"keys": ["closed"], "in_background": True}
    assert tenant.post("/schedules/resume", json=background).status_code == 403
    assert tenant.post("/schedules/resume", json={"all": True}).json()["total"] == 1
    assert operator.post("/schedules/resume", json={"keys": ["closed"]}).json()["total"] == 1
    assert operator.post("/schedules/closed/run").status_code == 201


def test_a_server_without_the_code_uses_declarations_of_workers(database_url: str, ask: Ask) -> None:
    """Declarations of workers are in the database; an undeclared task is closed, and closed wins over open."""
    operator = ask("admin")
    tenant = ask("admin", tenant="acme")
    unknown = ("remote", "guarded", PROCEDURE)
    assert [_put(tenant, task) for task in unknown] == [403, 403, 403]
    for service, guarded in (("one", True), ("two", False)):
        with_code = Sereno(database_url, service=service)
        with_code.task(name="remote")(lambda: None)
        with_code.task(name="guarded", tenants=guarded)(lambda: None)
        with_code.procedure("reporting.close_day")
        with_code.declare()
        with_code.close()
    assert [_put(tenant, task) for task in unknown] == [200, 403, 403]
    assert _put(operator, "guarded") == 200


def test_a_procedure_can_be_opened_to_tenants(app: Sereno, ask: Ask) -> None:
    app.procedure("reporting.close_day", tenants=True)
    assert ask("operator", tenant="acme").post("/jobs", json={"task": PROCEDURE}).status_code == 201


def _put(client: httpx.Client, task: str) -> int:
    body = {"task": task, "when": DAILY}
    return client.put(f"/schedules/{task}", json=body, params={"unchecked": True}).status_code
