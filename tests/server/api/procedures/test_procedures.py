"""Procedures over HTTP: users see which functions jobs may call, and admins change the list."""

import psycopg
import pytest

from sereno import Sereno
from tests.facts import one
from tests.procedures.conftest import Login, login, result, run
from tests.server.api.conftest import Ask

__all__ = ["login"]

CLOSE = "/procedures/here/reporting.close_day"


@pytest.fixture
def app(app: Sereno, connection: psycopg.Connection, login: Login) -> Sereno:
    connection.execute(
        "create function reporting.close_day(day date, secret text default 'hunter2') returns jsonb language sql "
        "as $$ select jsonb_build_object('day', day, 'password', secret) $$"
    )
    app.override(procedure_url=login.url)
    return app


async def test_a_procedure_is_allowed_run_shown_and_revoked(
    app: Sereno, ask: Ask, connection: psycopg.Connection
) -> None:
    admin, viewer = ask("admin"), ask("viewer")
    made = admin.put(CLOSE, json={"timeout": "30m", "note": "monthly", "given": {"secret": "tenant"}})
    assert made.status_code == 200, made.text
    assert made.json()["signature"] == ("function reporting.close_day(day date, secret text = default) returns jsonb")
    assert made.json()["parameters"][0] == {"name": "day", "type": "date", "mode": "in", "has_default": False}
    (line,) = viewer.get("/procedures").json()["items"]
    assert (line["timeout"], line["lock_timeout"], line["last"]) == (1800, 10, None)
    job = app.procedure("reporting.close_day", tenant="r42").enqueue(day="2026-11-01")
    assert await run(app, connection, job.id) == "succeeded"
    assert result(connection, job.id)["rows"] == [{"day": "2026-11-01", "password": "r42"}]
    shown = viewer.get(CLOSE).json()
    assert shown["runs"][0]["job_id"] == job.id
    assert shown["runs"][0]["result"]["rows"] == [{"day": "2026-11-01", "password": "********"}]
    steps = viewer.get(f"/jobs/{job.id}").json()["steps"]
    assert steps[0]["result"]["rows"][0]["password"] == "********"  # noqa: S105 - the mask
    assert viewer.get("/procedures").json()["items"][0]["last"]["job_id"] == job.id
    assert admin.delete(CLOSE).status_code == 204
    assert admin.delete(CLOSE).status_code == 404
    assert viewer.get(CLOSE).status_code == 404
    audited = connection.execute("select action, actor from sereno.audit where action like 'procedure.%'").fetchall()
    assert [action for action, _ in audited] == ["procedure.allow", "procedure.revoke"]
    assert all("admin" in actor for _, actor in audited)


@pytest.mark.slow
async def test_an_operator_runs_a_procedure_by_its_name(app: Sereno, ask: Ask, connection: psycopg.Connection) -> None:
    operator = ask("operator")
    day = {"params": {"day": "2026-11-01"}, "tenant": "r42"}
    assert operator.post(f"{CLOSE}/run", json=day).status_code == 404
    assert ask("admin").put(CLOSE, json={}).is_success
    without_a_task = operator.post(f"{CLOSE}/run", json=day)
    assert (without_a_task.status_code, "app.procedure(" in without_a_task.json()["detail"]) == (409, True)
    app.procedure("reporting.close_day")
    for wrong in ({}, {"day": "no day"}, {"day": "2026-11-01", "x": 1}):
        assert operator.post(f"{CLOSE}/run", json={"params": wrong}).status_code == 422, wrong
    assert one(connection, "select count(*) from sereno.jobs") == 0
    made = operator.post(f"{CLOSE}/run", json=day)
    assert made.status_code == 201, made.text
    job = made.json()["job"]
    assert await run(app, connection, job) == "succeeded"
    assert result(connection, job)["rows"][0]["day"] == "2026-11-01"
    assert one(connection, "select tenant from sereno.history where id = %s", job) == "r42"
    assert one(connection, "select actor from sereno.audit where subject = %s", f"job {job}").startswith("operator")
    assert ask("viewer").post(f"{CLOSE}/run", json=day).status_code == 403


@pytest.mark.slow
def test_a_check_reports_a_procedure_that_is_gone(app: Sereno, ask: Ask, connection: psycopg.Connection) -> None:
    client = ask("admin")
    assert client.put(CLOSE, json={}).is_success
    assert client.post(f"{CLOSE}/check").json()["standing"] == "ok"
    connection.execute("revoke usage on schema reporting from public")
    connection.execute("drop function reporting.close_day")
    assert client.post(f"{CLOSE}/check").json()["standing"] == "gone"


# Path, body and status.
INVALID_PROCEDURES: list[tuple[str, dict[str, object], int]] = [
    ("here/close_day", {}, 422),
    ("here/reporting.nothing", {}, 409),
    ("here/pg_catalog.pg_read_file", {}, 409),
    ("here/sereno.enqueue", {}, 409),
    ("erp/reporting.close_day", {}, 422),
    ("here/reporting.close_day", {"params": "day text"}, 409),
    ("here/reporting.close_day", {"given": {"day": "secret"}}, 422),
    ("here/reporting.close_day", {"given": {"x": "job"}}, 422),
    ("here/reporting.close_day", {"timeout": "0s"}, 422),
    ("here/reporting.close_day", {"note": "a\u0000b"}, 422),
    ("here/%00.x", {}, 422),
]


@pytest.mark.slow
def test_invalid_procedures_cannot_be_allowed(
    app: Sereno, ask: Ask, connection: psycopg.Connection, subtests: pytest.Subtests
) -> None:
    client = ask("admin")
    for path, body, status in INVALID_PROCEDURES:
        with subtests.test(path=path, body=body):
            answer = client.put(f"/procedures/{path}", json=body)
            assert answer.status_code == status, answer.text
            assert answer.headers["content-type"] == "application/problem+json"
            assert one(connection, "select count(*) from sereno.procedures") == 0


def test_an_unreachable_login_is_reported_without_its_password(app: Sereno, ask: Ask) -> None:
    app.override(procedure_url="postgresql://app:hunter2@127.0.0.1:1/x")
    answer = ask("admin").put(CLOSE, json={})
    assert answer.status_code == 503
    assert "hunter2" not in answer.text
