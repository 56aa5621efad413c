"""Likely secrets are masked over HTTP until an operator reveals them, which the audit records."""

from typing import Any

import psycopg
import pytest

from sereno import Sereno
from tests.facts import one
from tests.server.api.conftest import Ask

ARGUMENTS: dict[str, Any] = {"account": 7, "api_token": "hunter2", "to": "ann@shop.example"}


@pytest.fixture
def job(app: Sereno) -> int:
    @app.task
    def charge(account: int, api_token: str, to: str) -> None: ...

    return charge.using(tenant="a").enqueue(**ARGUMENTS).id


def test_secrets_are_masked_where_a_job_is_shown(ask: Ask, job: int) -> None:
    for role in ("viewer", "operator", "admin"):
        answer = ask(role).get(f"/jobs/{job}")
        assert answer.json()["job"]["args"] == {"account": 7, "api_token": "********", "to": "an…le"}
        assert "hunter2" not in answer.text


def test_an_operator_reveals_secrets_and_the_audit_records_it(
    ask: Ask, job: int, connection: psycopg.Connection
) -> None:
    audited = "select actor || ' ' || subject from sereno.audit where action = 'job.reveal'"
    assert ask("viewer").post(f"/jobs/{job}/reveal").status_code == 403
    assert one(connection, audited) is None
    operator = ask("operator")
    assert operator.post(f"/jobs/{job}/reveal").json() == {"arguments": ARGUMENTS}
    assert one(connection, audited) == f"operator None 1 job {job}"
    # The audit does not contain the revealed values.
    assert "hunter2" not in one(connection, "select string_agg(detail::text, ' ') from sereno.audit")
    assert operator.post("/jobs/999999/reveal").status_code == 404


def test_secrets_of_another_tenant_are_not_found(ask: Ask, job: int, connection: psycopg.Connection) -> None:
    assert ask("operator", tenant="a").post(f"/jobs/{job}/reveal").status_code == 200
    foreign = ask("admin", tenant="b").post(f"/jobs/{job}/reveal")
    assert foreign.status_code == 404
    assert "hunter2" not in foreign.text
    assert one(connection, "select count(*) from sereno.audit where action = 'job.reveal'") == 1
