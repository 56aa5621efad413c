"""A tenant's user can neither learn about other tenants nor undo changes of operators."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from sereno import Limit, Sereno
from sereno.error_text import describe
from sereno.jobs.attempt import Settlement
from sereno.jobs.pauses import pause
from tests.facts import one
from tests.jobs.limits.lane_steps import Claimer, keys, put, set_limit
from tests.server.api.conftest import PLAIN, Ask, Served
from tests.server.api.schedules.schedule_steps import body

Connection = psycopg.Connection[Any]
CANARY = "hunter2-of-an-operator"


@dataclass(frozen=True)
class Login:
    """An event with a secret in its payload."""

    code: str
    password: str


def _why(client: httpx.Client, job_id: int) -> str:
    return "\n".join(client.get(f"/jobs/{job_id}/why").json()["sentences"])


# Explanations


@pytest.mark.slow
def test_a_full_limit_does_not_reveal_who_holds_it(ask: Ask, served: Served, connection: Connection) -> None:
    claimer = Claimer(connection, tasks=("secret.task", "work"))
    set_limit(connection, "shared", Limit(2))
    theirs = put(connection, keys(("shared", "")), 2, task="secret.task", tenant="gamma-victim")
    assert claimer.take() == theirs
    (ours,) = put(connection, keys(("shared", "")), tenant="beta")
    claimer.take()
    viewer, tenant_user = ask("viewer"), ask("viewer", tenant="beta")
    named = f"jobs {theirs[0]} and {theirs[1]} (task secret.task"
    assert named in _why(viewer, ours)
    explanation = _why(tenant_user, ours)
    assert "The limit shared allows 2 at once, and 2 others are running." in explanation
    pages = [
        httpx.get(f"{served.url}/jobs", params={"job": ours}, headers=who.headers, **PLAIN).text
        for who in (viewer, tenant_user)
    ]
    # An explanation that was cached for an operator is not shown to the tenant's user.
    assert named in pages[0]
    assert "2 others are running" in pages[1]
    for text in (explanation, pages[1]):
        assert "secret.task" not in text
        assert f"worker session {claimer.session}" not in text
        assert f"jobs {theirs[0]}" not in text


@pytest.mark.slow
def test_fair_turns_do_not_reveal_other_tenants(ask: Ask, connection: Connection) -> None:
    claimer = Claimer(connection)
    put(connection, keys(fair="beta"), 3, tenant="beta")
    claimer.take(2)
    (ours,) = put(connection, keys(fair="beta"), tenant="beta")
    put(connection, keys(fair="gamma-victim"), tenant="gamma-victim")
    claimer.wake()
    connection.execute("update sereno.lanes set turn = case when fair = 'beta' then 9 else 0 end")
    assert "the next is 'gamma-victim'." in _why(ask("viewer"), ours)
    explanation = _why(ask("viewer", tenant="beta"), ours)
    assert "by its fair key 'beta' (weight 1): 1 other key is in front of it by turn." in explanation
    assert "gamma" not in explanation


@pytest.mark.slow
@pytest.mark.parametrize("delay", [None, "1h"], ids=["ready", "scheduled"])
def test_an_order_key_does_not_reveal_jobs_of_other_tenants(
    ask: Ask, connection: Connection, delay: str | None
) -> None:
    claimer = Claimer(connection, tasks=("secret.task", "work"))
    (head,) = put(connection, keys(order="acct"), task="secret.task", tenant="gamma-victim")
    assert claimer.take() == [head]
    (ours,) = put(connection, keys(order="acct"), tenant="beta", delay=delay)
    (own_head,) = put(connection, keys(order="own"), tenant="beta")
    (own,) = put(connection, keys(order="own"), tenant="beta", delay=delay)
    tenant_user = ask("viewer", tenant="beta")
    assert f"the first, job {head} (task secret.task), is running" in _why(ask("viewer"), ours)
    explanation = _why(tenant_user, ours)
    assert "1 job is before it with the order key 'acct': the first, which you may not see, is running." in explanation
    assert "secret.task" not in explanation
    assert "session" not in explanation
    assert f"the first, job {own_head} (task work), is ready" in _why(tenant_user, own)


@pytest.mark.slow
def test_a_blocking_dead_letter_of_another_tenant_is_not_named(ask: Ask, connection: Connection) -> None:
    claimer = Claimer(connection, tasks=("secret.task", "work"))
    (head,) = put(connection, keys(order="acct", blocks=True), task="secret.task", tenant="gamma-victim")
    claimer.wake()
    claimer.finish(claimer.claim().jobs, Settlement("dead", reason="failed", error=describe(OSError("x")), failed=1))
    (ours,) = put(connection, keys(order="acct", blocks=True), tenant="beta")
    assert f"The dead letter {head} (task secret.task) blocks" in _why(ask("viewer"), ours)
    explanation = _why(ask("viewer", tenant="beta"), ours)
    assert explanation.startswith("A dead letter that you may not see blocks its order key 'acct'")
    assert "secret.task" not in explanation
    assert "sereno job" not in explanation


# Rows


def test_rows_without_a_tenant_are_not_of_every_tenant(app: Sereno, ask: Ask, connection: Connection) -> None:
    """Nor does their id tell a tenant's user that they exist."""

    @app.task
    def work() -> None: ...

    job = work.enqueue().id
    user = ask("admin", tenant="beta")
    for method, path in (("GET", ""), ("GET", "/why"), ("POST", "/reveal")):
        details = []
        for number in (job, 7_000_001):
            answer = user.request(method, f"/jobs/{number}{path}")
            assert answer.status_code == 404, (number, path)
            details.append(answer.json()["detail"].replace(str(number), "N"))
        assert details[0] == details[1]
    assert user.post("/jobs/cancel", json={"ids": [job]}).json()["done"] == []
    assert one(connection, "select state from sereno.jobs where id = %s", job) == "ready"
    assert ask("viewer").get(f"/jobs/{job}").status_code == 200


# Pauses


def test_a_tenant_cannot_end_a_pause_of_an_operator(app: Sereno, ask: Ask, connection: Connection) -> None:
    tenant_user = ask("admin", tenant="beta")
    by_hand = pause("tenant", "beta", actor="ana@laptop")
    stops = (lambda: ask("operator").post("/tenants/beta/pause"), lambda: app.database.run(by_hand))
    for stop in stops:
        stop()
        # The tenant is paused already: it stays a pause of the operator.
        assert tenant_user.post("/tenants/beta/pause").json()["changed"] is False
        answer = tenant_user.post("/tenants/beta/resume")
        assert (answer.status_code, answer.headers["content-type"]) == (403, "application/problem+json")
        assert "no user of beta set this pause" in answer.json()["detail"]
        assert one(connection, "select count(*) from sereno.pauses") == 1
        assert ask("operator").post("/tenants/beta/resume").json()["changed"] is True
    assert one(connection, "select count(*) from sereno.audit where action = 'tenant.resume'") == len(stops)


def test_a_tenant_can_end_its_own_pause(ask: Ask, connection: Connection) -> None:
    assert ask("operator", tenant="beta").post("/tenants/beta/pause").json()["changed"] is True
    other = ask("operator", tenant="beta")
    assert other.post("/tenants/beta/resume").json()["changed"] is True
    assert other.post("/tenants/beta/resume").json()["changed"] is False
    assert one(connection, "select count(*) from sereno.pauses") == 0


def test_a_pause_that_an_operator_repeats_becomes_the_operators(ask: Ask, connection: Connection) -> None:
    tenant_user, operator = ask("operator", tenant="beta"), ask("operator")
    assert tenant_user.post("/tenants/beta/pause").json()["changed"] is True
    assert operator.post("/tenants/beta/pause").json()["changed"] is True
    assert tenant_user.post("/tenants/beta/pause").json()["changed"] is False
    assert tenant_user.post("/tenants/beta/resume").status_code == 403
    assert operator.post("/tenants/beta/pause").json()["changed"] is False
    assert operator.post("/tenants/beta/resume").json()["changed"] is True
    assert one(connection, "select count(*) from sereno.pauses") == 0


# Secrets


def test_an_export_masks_secrets_for_viewers(app: Sereno, ask: Ask) -> None:
    @app.task
    def work(password: str) -> None: ...

    made = ask("admin").put("/schedules/menu", json=body(args={"password": CANARY}, tenant="beta"))
    assert made.status_code == 200
    for tenant in (None, "beta"):
        shown = ask("viewer", tenant=tenant).get("/schedules/export")
        assert [each["args"] for each in shown.json()["items"]] == [{"password": "********"}]
        assert CANARY not in shown.text
        whole = ask("operator", tenant=tenant).get("/schedules/export").json()["items"]
        assert [each["args"] for each in whole] == [{"password": CANARY}]


def test_data_of_a_recipient_is_masked_for_viewers(app: Sereno, ask: Ask) -> None:
    data = {"api_key": CANARY, "name": "Ana"}
    app.recipients.upsert("user:7", {}, data=data, tenant="beta")
    for tenant in (None, "beta"):
        viewer = ask("viewer", tenant=tenant)
        shown = viewer.get("/recipients/user:7", params={"tenant": "beta"})
        assert shown.json()["recipient"]["data"] == {"api_key": "********", "name": "Ana"}
        assert CANARY not in shown.text + viewer.get("/recipients").text
        whole = ask("operator", tenant=tenant).get("/recipients/user:7", params={"tenant": "beta"})
        assert whole.json()["recipient"]["data"] == data


@pytest.mark.slow
def test_a_preview_of_the_last_event_is_masked_for_viewers(app: Sereno, ask: Ask, tmp_path: Path) -> None:
    folder = tmp_path / "login"
    folder.mkdir()
    (folder / "email.title.j2").write_text("{{ code }}")
    (folder / "email.body.j2").write_text("With {{ password }}")
    app.override(templates=str(tmp_path))
    app.event("login", Login, channels=["email"]).notify(Login("T7", CANARY))
    trial = {"event": "login", "channel": "email"}
    shown = ask("viewer").post("/templates/preview", json=trial | {"last": True}).json()
    assert (shown["title"], shown["body"]) == ("T7", "With ********")
    assert ask("operator").post("/templates/preview", json=trial | {"last": True}).json()["body"] == f"With {CANARY}"
    # A payload that the user sends is not masked.
    own = {"payload": {"code": "x", "password": "mine"}}
    assert ask("viewer").post("/templates/preview", json=trial | own).json()["body"] == "With mine"
