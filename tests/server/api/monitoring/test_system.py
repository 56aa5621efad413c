"""The system over HTTP: status, health, invariants, figures, settings, the audit, tasks."""

from datetime import datetime
from threading import Thread

import httpx
import psycopg
import pytest

from sereno import Backoff, Every, Limit, Sereno
from sereno.access.masking import MASK
from sereno.jobs.queries import minute_stats
from sereno.telemetry.metrics import MetricTally
from tests.facts import one, until
from tests.manual_worker import ManualWorker
from tests.server.api.conftest import Ask


def test_me_returns_the_user_of_the_token(ask: Ask) -> None:
    assert ask("viewer").get("/me").json() == {"name": "viewer None 0", "role": "viewer", "tenant": None}
    assert ask("operator", tenant="r42").get("/me").json()["tenant"] == "r42"
    assert ask(None).get("/me").status_code == 401


def test_status_counts_workers_queues_and_dead_letters(ask: Ask, manual: ManualWorker) -> None:
    manual.worker()
    manual.enqueue()
    manual.dead()
    found = ask("viewer").get("/status").json()
    assert (found["workers_alive"], found["slots"], found["dead_letters"]["value"]) == (1, 2, 1)
    assert [(line["queue"], line["ready"]["value"]) for line in found["queues"]] == [("default", 1)]
    assert found["scheduler"]["alive"] is False


@pytest.mark.slow
def test_doctor_reports_a_queue_without_a_worker(ask: Ask, manual: ManualWorker) -> None:
    client = ask("viewer")
    assert client.get("/doctor").json()["healthy"] is True
    manual.enqueue()
    sick = client.get("/doctor").json()
    assert sick["healthy"] is False
    (check,) = [check for check in sick["checks"] if check["level"] == "fail"]
    assert (check["name"], check["remedy"]) == ("queues", "Start one: sereno worker -q default")


@pytest.mark.slow
def test_invariants_are_verified(ask: Ask, manual: ManualWorker, connection: psycopg.Connection) -> None:
    client = ask("admin")
    for body in (None, {"all": True}, {"seconds": 5}):
        found = client.post("/verify", json=body).json()
        assert found["holds"] is True
        assert len(found["invariants"]) > 30
    dead = manual.dead()
    connection.execute("update sereno.history set reason = null where id = %s", [dead])
    broken = client.post("/verify").json()
    assert broken["holds"] is False
    assert [
        (invariant["name"], len(invariant["violations"]))
        for invariant in broken["invariants"]
        if invariant["violations"]
    ] == [("dead_with_reason", 1)]


@pytest.mark.slow
def test_a_verification_ends_on_its_timeout(ask: Ask, connection: psycopg.Connection) -> None:
    client = ask("admin")
    with connection.transaction():
        connection.execute("lock sereno.jobs in access exclusive mode")
        answer = client.post("/verify", json={"seconds": 1})
    assert answer.status_code == 503
    assert "sereno verify" in answer.json()["detail"]
    assert client.post("/verify").json()["holds"] is True


def test_verifications_run_one_at_a_time(ask: Ask, connection: psycopg.Connection) -> None:
    client, answers = ask("admin"), list[httpx.Response]()
    waiting = (
        "select count(*) from pg_locks join pg_database on pg_database.oid = database"
        " where not granted and datname = current_database()"
    )
    with connection.transaction():
        connection.execute("lock sereno.jobs in access exclusive mode")
        verification = Thread(target=lambda: answers.append(client.post("/verify", json={"seconds": 60})))
        verification.start()
        until(lambda: one(connection, waiting) == 1)
        assert ask("admin").post("/verify").status_code == 409
    verification.join(30)
    assert answers[0].json()["holds"] is True
    assert client.post("/verify").json()["holds"] is True


def test_metrics_count_queues_tasks_and_dead_letters(ask: Ask, app: Sereno, manual: ManualWorker) -> None:
    manual.enqueue()
    manual.dead()
    client = ask("viewer")
    found = client.get("/metrics").json()
    assert found["last_tick"] == dict.fromkeys(
        ["at", "seconds_ago", "seconds", "fires", "error", "error_at", "lag_seconds"]
    )
    assert (found["dead_letters"]["value"], found["queues"][0]["ready"]["value"]) == (1, 1)
    assert [(line["task"], line["waiting"], line["dead"]) for line in found["tasks"]] == [("greet", 1, 1)]
    assert found["last_hour"] == {
        **dict.fromkeys(["succeeded", "retried", "dead", "cancelled", "other"], 0),
        "waited": {"median": None, "p95": None},
        "ran": {"median": None, "p95": None},
    }
    # PostgreSQL shows its counters when a connection ends or has been idle for ten seconds.
    app.database.close()
    until(lambda: client.get("/metrics").json()["finished_total"] == 1)


def test_metrics_of_the_last_tick(ask: Ask, app: Sereno, connection: psycopg.Connection) -> None:
    connection.execute(
        "insert into sereno.leases (name, holder, fence, since, until, ticked_at, tick_seconds, tick_fires)"
        " values ('scheduler', 'me', 1, now(), now() + interval '1 minute', now(), 0.25, 7)"
    )
    tick = ask("viewer").get("/metrics").json()["last_tick"]
    assert (tick["seconds"], tick["fires"]) == (0.25, 7)
    assert datetime.fromisoformat(tick["at"]).tzinfo is not None
    assert 0 <= tick["seconds_ago"] < 60


def test_metrics_of_the_last_hour(ask: Ask, app: Sereno) -> None:
    for seconds in (0.002, 40.0):
        tally = MetricTally()
        tally.job("default", "greet", "succeeded", seconds, 0.2)
        tally.job("default", "greet", "dead", seconds, 0.2)
        app.database.run(minute_stats.add(tally))
    found = ask("viewer").get("/metrics").json()["last_hour"]
    assert (found["succeeded"], found["dead"], found["retried"]) == (2, 2, 0)
    assert found["waited"]["median"] < 1
    assert found["waited"]["p95"] > 30
    assert 0.1 < found["ran"]["median"] <= found["ran"]["p95"] <= 0.25


def test_settings_are_shown_without_secrets(ask: Ask, app: Sereno) -> None:
    app.override(database_url=app.settings.database_url, metrics_token="m" * 40, secret="s" * 40, queues={"q": 3})
    found = {line["setting"]: line for line in ask("admin").get("/settings").json()["items"]}
    assert (found["secret"]["value"], found["metrics_token"]["value"]) == (MASK, MASK)
    assert found["queues"] == {"setting": "queues", "value": {"q": 3}, "source": "given"}
    assert found["lease"]["source"] == "default"
    assert list(found) == list(app.settings.__struct_fields__)


def test_the_audit_is_filtered_and_listed_in_pages(ask: Ask) -> None:
    client = ask("operator")
    for name in ("a", "b", "a"):
        client.post(f"/queues/{name}/pause")
        client.post(f"/queues/{name}/resume")
    of_a = client.get("/audit", params={"subject": "queue a", "limit": 3}).json()
    assert [line["action"] for line in of_a["items"]] == ["queue.resume", "queue.pause", "queue.resume"]
    rest = client.get("/audit", params={"subject": "queue a", "limit": 3, "before": of_a["next"]}).json()
    assert ([line["action"] for line in rest["items"]], rest["next"]) == (["queue.pause"], None)
    assert rest["items"][0]["actor"] == "operator None 0"
    by_action = client.get("/audit", params={"action": "queue.pause", "actor": "operator None 0"}).json()["items"]
    assert [line["subject"] for line in by_action] == ["queue a", "queue b", "queue a"]
    assert len(client.get("/audit", params={"action": "queue"}).json()["items"]) == 6
    assert client.get("/audit", params={"action": "queue.", "actor": "unknown"}).json()["items"] == []
    everything = client.get("/audit").json()["items"]
    assert [line["id"] for line in everything] == sorted((line["id"] for line in everything), reverse=True)
    assert everything[-1]["subject"] == "token operator None 0"


def test_tasks_of_the_application_are_listed(ask: Ask, app: Sereno) -> None:
    @app.task(
        queue="mail",
        retry=Backoff(3, delays=["15m", "30m"]),
        timeout=None,
        concurrency=Limit(1, name="one"),
        fair_key="{tenant}",
    )
    def send(to: str, subject: str = "") -> None: ...

    @app.schedule(Every("1h"))
    def count() -> None: ...

    found = {line["name"]: line for line in ask("viewer").get("/tasks").json()["items"]}
    assert {"send", "count"} <= found.keys()
    task = found["send"]
    assert (task["arguments"], task["queue"], task["timeout"], task["limits"], task["fair_key"]) == (
        ["to", "subject"],
        "mail",
        None,
        ["one"],
        "{tenant}",
    )
    assert (task["retry"]["retries"], task["retry"]["delays"]) == (3, [900, 1800])


@pytest.mark.slow
def test_system_requests_are_refused_for_users_of_one_tenant(bare_ask: Ask, subtests: pytest.Subtests) -> None:
    anonymous, theirs, of_all = (
        bare_ask(None),
        bare_ask("admin", tenant="a"),
        (bare_ask("viewer"), bare_ask("operator")),
    )
    for path in ("/status", "/metrics", "/doctor", "/audit", "/tasks", "/settings"):
        with subtests.test(path=path):
            assert anonymous.get(path).status_code == 401
            assert theirs.get(path).status_code == 403
            for client in of_all:
                assert client.get(path).status_code == (403 if path == "/settings" else 200)


def test_roles_for_verify(bare_ask: Ask) -> None:
    assert bare_ask(None).post("/verify").status_code == 401
    assert bare_ask("operator").post("/verify").status_code == 403
    assert bare_ask("admin", tenant="a").post("/verify").status_code == 403


def test_invalid_system_requests_are_refused(bare_ask: Ask) -> None:
    client = bare_ask("admin")
    for answer in (
        client.get("/audit", params={"subject": "x" * 1001}),
        client.get("/audit", params={"subject": "a\x00b"}),
        client.get("/audit", params={"actor": "x" * 501}),
        client.get("/audit", params={"action": "a\x00b"}),
        client.get("/audit", params={"limit": 0}),
        client.get("/audit", params={"before": 2**63}),
        client.post("/verify", json={"seconds": 0}),
        client.post("/verify", json={"seconds": 61}),
        client.post("/verify", json={"all": "everything"}),
    ):
        assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
