"""Schedules are run at once over HTTP, by keys or by a filter."""

import psycopg
import pytest

from sereno import Sereno
from sereno.server.api.schedules import changes as schedule_changes
from tests.facts import one
from tests.schedules.schedule_steps import made
from tests.server.api.conftest import Ask
from tests.server.api.schedules.schedule_steps import fill


@pytest.fixture
def tasks(app: Sereno) -> Sereno:
    @app.task
    def work(name: str = "x") -> None: ...

    return app


def test_schedules_are_run_by_keys_and_by_filter(tasks: Sereno, ask: Ask, connection: psycopg.Connection) -> None:
    fill(ask("admin"))
    client = ask("operator")
    assert client.post("/schedules/run", json={"keys": ["menu:1", "close"]}).json()["total"] == 2
    assert [made(connection, key) for key in ("menu:1", "close", "menu:2")] == [1, 1, 0]
    dry = client.post("/schedules/run", json={"pattern": "menu:*", "dry_run": True}).json()
    assert (dry["total"], dry["by_task"], made(connection)) == (3, {"work": 3}, 2)
    assert client.post("/schedules/run", json={"pattern": "menu:*"}).status_code == 409
    assert client.post("/schedules/run", json={"pattern": "menu:*", "all": True}).json()["total"] == 3
    assert one(connection, "select count(*) from sereno.audit where action = 'schedule.run'") == 5
    assert ask("viewer").post("/schedules/run", json={"keys": ["close"]}).status_code == 403


def test_a_tenant_cannot_run_schedules_of_another(tasks: Sereno, ask: Ask, connection: psycopg.Connection) -> None:
    fill(ask("admin"))
    theirs = ask("operator", tenant="b")
    assert theirs.post("/schedules/run", json={"keys": ["menu:1", "close"]}).json()["total"] == 0
    assert theirs.post("/schedules/run", json={"tenant": "a", "all": True}).status_code == 404
    assert theirs.post("/schedules/run", json={"all": True}).json()["total"] == 1
    assert [made(connection, key) for key in ("menu:1", "menu:3", "close")] == [0, 1, 0]


@pytest.mark.slow
def test_a_schedule_with_an_invalid_rule_does_not_stop_the_others(
    tasks: Sereno, ask: Ask, connection: psycopg.Connection
) -> None:
    fill(ask("admin"))
    connection.execute("update sereno.schedules set rule = '{\"kind\": \"moon\"}' where key = 'menu:1'")
    assert ask("operator").post("/schedules/run", json={"pattern": "menu:*", "all": True}).json()["total"] == 2


def test_a_run_of_too_many_schedules_is_refused(
    tasks: Sereno, ask: Ask, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(ask("admin"))
    monkeypatch.setattr(schedule_changes, "MOST_RUN", 3)
    answer = ask("operator").post("/schedules/run", json={"pattern": "*", "all": True})
    assert (answer.status_code, made(connection)) == (409, 0)
    assert "narrow the filter" in answer.json()["detail"]
