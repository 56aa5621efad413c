"""Alerts over HTTP: their conditions, rules and lists."""

from typing import Any

import httpx
import psycopg
import pytest

from sereno import Sereno
from sereno.jobs import pauses
from sereno.monitoring.alerts.condition import condition
from sereno.monitoring.alerts.watcher import ConditionSnapshot, follow
from sereno.notifications.deliveries import store as deliveries
from tests.facts import one
from tests.server.api.conftest import Ask

URL = "https://discord.com/api/webhooks/1/very-secret"
TO = [{"channel": "discord", "address": URL}]


@pytest.fixture
def admin(ask: Ask) -> httpx.Client:
    return ask("admin")


def open_alert(app: Sereno, rule: str, task: str = "work") -> None:
    found = condition("job.dead", task, "bad", "look", count=2, task=task)
    app.database.run(follow(rule, ConditionSnapshot([found], set())))


def test_conditions_of_the_system_and_of_a_tenant_are_listed(app: Sereno, ask: Ask) -> None:
    app.database.run(pauses.pause("tenant", "r42"))
    app.database.run(deliveries.pause_channel("sms", "", "401: bad"))
    found = ask("viewer").get("/attention").json()["items"]
    assert found[0]["kind"] == "channel.paused"
    assert found[0]["words"] == "The channel sms is paused: 401: bad"
    assert found[0]["sentence"] == "The channel %(channel)s is paused: %(reason)s"
    assert found[0]["values"] == {"channel": "sms", "reason": "401: bad"}
    assert found[0]["since"]
    theirs = ask("viewer", tenant="r42")
    assert [each["kind"] for each in theirs.get("/attention").json()["items"]] == ["tenant.paused"]
    assert theirs.get("/attention", params={"tenant": "r7"}).status_code == 404
    assert ask("viewer", tenant="r7").get("/attention").json()["items"] == []
    assert ask("viewer").get("/attention", params={"late": 0}).status_code == 422
    assert ask(None).get("/attention").status_code == 401


def test_a_rule_is_created_shown_changed_and_deleted(
    admin: httpx.Client, ask: Ask, connection: psycopg.Connection
) -> None:
    body: dict[str, Any] = {"to": TO, "kinds": ["queue.late"], "for_seconds": 60, "queue": "mails"}
    made = admin.put("/alerts/rules/late", json=body)
    assert made.status_code == 200, made.text
    assert made.json()["to"] == [{"channel": "discord", "address": "https://discord.com/…", "keys": []}]
    viewer = ask("viewer")
    for answer in (viewer.get("/alerts/rules"), viewer.get("/alerts/rules/late"), admin.get("/audit"), made):
        assert answer.status_code == 200
        assert "very-secret" not in answer.text
    shown = viewer.get("/alerts/rules/late").json()
    same = [{"channel": to["channel"], "address": to["address"]} for to in shown["to"]]
    changed = admin.put("/alerts/rules/late", json={"to": same, "log": {"event": "job.dead", "count": 5}})
    assert changed.json()["log"] == {"level": "error", "event": "job.dead", "count": 5, "within": 300}
    assert one(connection, "select targets -> 0 ->> 'address' from sereno.alert_rules") == URL
    assert admin.delete("/alerts/rules/late").status_code == 204
    for answer in (
        admin.delete("/alerts/rules/late"),
        admin.get("/alerts/rules/late"),
        admin.post("/alerts/rules/late/test"),
    ):
        assert answer.status_code == 404
        assert answer.headers["content-type"] == "application/problem+json"


def test_alerts_are_listed_and_silenced(app: Sereno, admin: httpx.Client, ask: Ask) -> None:
    admin.put("/alerts/rules/all", json={"to": TO})
    for task in ("a", "b", "c"):
        open_alert(app, "all", task)
    client = ask("operator")
    first = client.get("/alerts", params={"limit": 2}).json()
    assert [each["subject"] for each in first["items"]] == ["c", "b"]
    rest = client.get("/alerts", params={"limit": 2, "before": first["next"], "state": "open"}).json()
    assert ([each["subject"] for each in rest["items"]], rest["next"]) == (["a"], None)
    assert client.get("/alerts", params={"state": "past"}).json()["items"] == []
    assert client.get("/alerts", params={"rule": "another"}).json()["items"] == []
    number = rest["items"][0]["id"]
    silenced = client.post(f"/alerts/{number}/silence", json={"until": "2027-01-01T00:00:00Z"})
    assert silenced.json()["silenced_until"] == "2027-01-01T00:00:00Z"
    assert client.post(f"/alerts/{number}/silence", json={"until": None}).json()["silenced_until"] is None
    assert client.post("/alerts/999999/silence", json={"until": None}).status_code == 404


def test_a_test_of_a_rule_creates_a_job_for_each_target(
    admin: httpx.Client, ask: Ask, connection: psycopg.Connection
) -> None:
    admin.put("/alerts/rules/all", json={"to": [*TO, {"channel": "email", "address": "ann@example.com"}]})
    jobs = ask("operator").post("/alerts/rules/all/test").json()["jobs"]
    rows = connection.execute("select id, task, args::text from sereno.jobs order by id").fetchall()
    assert [(number, task) for number, task, _ in rows] == [(number, "sereno.alert") for number in jobs]
    assert len(jobs) == 2
    assert "very-secret" not in str(rows)


def test_roles_for_alerts(admin: httpx.Client, ask: Ask) -> None:
    admin.put("/alerts/rules/all", json={"to": TO})
    for role in ("viewer", "operator"):
        assert ask(role).put("/alerts/rules/all", json={"to": TO}).status_code == 403
        assert ask(role).delete("/alerts/rules/all").status_code == 403
    assert ask("viewer").post("/alerts/1/silence", json={"until": None}).status_code == 403
    assert ask("viewer").post("/alerts/rules/all/test").status_code == 403
    theirs = ask("admin", tenant="r42")
    for path in ("/alerts", "/alerts/rules", "/alerts/rules/all"):
        assert theirs.get(path).status_code == 403


INVALID_RULES: list[dict[str, Any]] = [
    {},
    {"to": []},
    {"to": TO * 21},
    {"to": [{"channel": "discord", "address": "https://example.com"}]},
    {"to": [{"channel": "discord", "address": "https://discord.com/…"}]},
    {"to": [{"channel": "webhook", "address": "http://169.254.169.254/"}]},
    {"to": TO, "kinds": ["nothing"]},
    {"to": TO, "kinds": ["queue.late"], "log": {}},
    {"to": TO, "level": "awful"},
    {"to": TO, "again_seconds": 0},
    {"to": TO, "log": {"count": 0}},
    {"to": TO, "note": "a\x00"},
    {"to": [{"channel": "pager", "address": "a\x00"}]},
    {"to": [{"channel": "pager", "address": "a", "keys": {"x": "\x00"}}]},
]


@pytest.mark.slow
def test_invalid_rules_get_a_problem_with_a_message(admin: httpx.Client, subtests: pytest.Subtests) -> None:
    for wrong in INVALID_RULES:
        with subtests.test(wrong=str(wrong)[:90]):
            answer = admin.put("/alerts/rules/wrong", json=wrong)
            assert answer.status_code == 422, answer.text
            assert answer.headers["content-type"] == "application/problem+json"
            assert "very-secret" not in answer.text
            assert admin.get("/alerts/rules").json()["items"] == []


def test_invalid_rule_names_are_refused(admin: httpx.Client) -> None:
    for name in ("a%20b", "%00", "x" * 101, "-a", "%F0%9F%98%80"):
        assert admin.put(f"/alerts/rules/{name}", json={"to": TO}).status_code == 422, name
        assert admin.get(f"/alerts/rules/{name}").status_code in (404, 422), name
