"""Requests about schedules that are refused: without the role, of another tenant, or invalid."""

import threading
from typing import Any

import httpx
import psycopg
import pytest

from sereno import Sereno
from tests.facts import one, until
from tests.jobs.job_steps import waits_for_a_lock
from tests.server.api.conftest import Ask
from tests.server.api.schedules.schedule_steps import DAILY, JSON, body, fill, keys


@pytest.fixture
def tasks(app: Sereno) -> Sereno:
    @app.task
    def work(name: str = "x") -> None: ...

    return app


@pytest.mark.slow
def test_a_tenants_token_gives_access_to_that_tenants_schedules_only(
    tasks: Sereno, ask: Ask, connection: psycopg.Connection
) -> None:
    fill(ask("admin"))
    client = ask("admin", tenant="a")
    assert keys(client.get("/schedules")) == keys(client.get("/schedules/export")) == ["menu:1", "menu:2"]
    past = {"start": "2026-03-01T00:00:00Z", "end": "2026-03-04T00:00:00Z"}
    for key in ("menu:3", "close", "nothing"):
        answers = [
            client.get(f"/schedules/{key}"),
            client.get(f"/schedules/{key}/next"),
            client.get(f"/schedules/{key}/fires"),
            client.post(f"/schedules/{key}/run"),
            client.post(f"/schedules/{key}/backfill", json=past),
        ]
        assert [each.status_code for each in answers] == [404] * 5
        assert {each.json()["detail"] for each in answers} == {
            f"there is no schedule '{key}', or you have no access to it"
        }
    assert client.put("/schedules/menu:3", json=body()).status_code == 404
    assert client.put("/schedules/close", json=body()).status_code == 404
    assert client.put("/schedules/menu:9", json=body(tenant="b")).status_code == 404
    assert client.get("/schedules", params={"tenant": "b"}).status_code == 404
    assert client.post("/schedules/pause", json={"tenant": "b", "all": True}).status_code == 404
    assert client.post("/schedules/tick").status_code == 403
    definitions = [{"key": "menu:3", **body()}, {"key": "menu:8", **body()}, {"key": "menu:7", **body(tenant="b")}]
    imported = client.post("/schedules/import", json={"schedules": definitions}).json()
    assert (imported["created"], [each["at"] for each in imported["refused"]]) == (1, [2, 0])
    assert client.put("/schedules/menu:9", json=body()).json()["what"] == "created"
    assert one(connection, "select array_agg(key order by key) from sereno.schedules where tenant = 'a'") == [
        "menu:1", "menu:2", "menu:8", "menu:9",
    ]  # fmt: skip
    everything = client.post("/schedules/disable", json={"keys": ["menu:1", "menu:3", "close"]}).json()
    assert everything["total"] == 1
    assert client.post("/schedules/delete", json={"all": True}).json()["total"] == 4
    assert one(connection, "select array_agg(key order by key) from sereno.schedules") == ["close", "menu:3"]


def test_a_tenant_cannot_take_over_a_key_in_a_race(
    tasks: Sereno, ask: Ask, connection: psycopg.Connection, database_url: str
) -> None:
    """Another tenant's schedule of the same key is committed between our read and our write."""
    fill(ask("admin"))
    client = ask("admin", tenant="a")
    answers: list[httpx.Response] = []
    with psycopg.connect(database_url) as other:
        other.execute("update sereno.schedules set key = 'wanted' where key = 'menu:3'")
        writer = threading.Thread(
            target=lambda: answers.append(client.put("/schedules/wanted", json=body(queue="stolen")))
        )
        writer.start()
        until(lambda: waits_for_a_lock(connection))
        other.commit()
    writer.join(30)
    assert answers[0].status_code == 409
    row = connection.execute("select tenant, queue from sereno.schedules where key = 'wanted'").fetchone()
    assert row == ("b", "default")


@pytest.mark.slow
def test_roles_for_schedules(tasks: Sereno, ask: Ask) -> None:
    fill(ask("admin"))
    assert ask(None).get("/schedules").status_code == 401
    viewer, operator = ask("viewer"), ask("operator")
    wanted = {"keys": ["menu:1"], "over": 0}
    for path in ("pause", "resume", "disable", "delete", "spread", "tick", "menu:1/run", "menu:1/backfill", "import"):
        assert viewer.post(f"/schedules/{path}", json=wanted).status_code == 403
    assert viewer.put("/schedules/menu:1", json=body()).status_code == 403
    for path in ("delete", "spread", "import"):
        assert operator.post(f"/schedules/{path}", json=wanted).status_code == 403
    assert operator.put("/schedules/menu:1", json=body()).status_code == 403
    for path in ("pause", "resume", "disable", "tick"):
        assert operator.post(f"/schedules/{path}", json=wanted).status_code == 200
    assert operator.post("/schedules/menu:1/run").status_code == 201


@pytest.mark.slow
def test_invalid_schedule_requests_get_a_problem_with_a_message(tasks: Sereno, ask: Ask) -> None:
    client = ask("admin")
    fill(client)
    deep: Any = 1
    for _ in range(300):
        deep = [deep]
    past = {"start": "2026-03-01T00:00:00Z", "end": "2026-03-04T00:00:00Z"}
    answers = [
        client.get("/schedules", params={"limit": 0}),
        client.get("/schedules", params={"key": "a\x00b"}),
        client.get("/schedules", params={"after": "a\x00b"}),
        client.get("/schedules", params={"after": "a", "soonest": True}),
        client.get("/schedules", params={"states": "asleep"}),
        client.get("/schedules/-", params={"key": "a\x00b"}),
        client.get("/schedules/-", params={"key": "a" * 501}),
        client.get("/schedules/menu:1/next", params={"n": 1001}),
        client.get("/schedules/heatmap", params={"span": "32d"}),
        client.get("/schedules/heatmap", params={"span": "soon"}),
        client.put("/schedules/new", json={"task": "work"}),
        client.put("/schedules/new", json=body(task="unknown")),
        client.put("/schedules/new", json=body(colour="blue")),
        client.put("/schedules/new", json=body(args={"name": 7})),
        client.put("/schedules/new", json=body(when={"kind": "cron", "expression": "61 * * * *"})),
        client.put("/schedules/new", json=body(when={"kind": "daily", "at": deep})),
        client.put("/schedules/new", json=body(when=DAILY | {"tz": "Europe/Nowhere"})),
        client.put("/schedules/new", json=body(when={"kind": "once", "at": "2001-01-01T00:00:00Z"})),
        client.put("/schedules/new", json=body(missed="all")),
        client.put("/schedules/new", json=body(missed_window="soon")),
        client.put("/schedules/new", json=body(max_fires=10**30)),
        client.put("/schedules/new", json=body(starts_at="0001-01-01T00:00:00+14:00")),
        client.put("/schedules/new", json=body(tags=["a\x00b"])),
        client.post("/schedules/preview", json={"when": {}}),
        client.post("/schedules/preview", json={"when": {"kind": "every", "interval": deep}}),
        client.post("/schedules/preview", json={"when": DAILY, "n": 0}),
        client.post("/schedules/preview", json={"when": DAILY, "after": "0001-01-01T00:00:00+14:00"}),
        client.post("/schedules/preview", json={"when": DAILY, "key": "a\x00b"}),
        client.post("/schedules/pause", json={"keys": ["menu:1"], "until": "9999-12-31T23:59:59-14:00"}),
        client.post("/schedules/pause", json={"keys": ["menu:1"], "note": "a\x00b"}),
        client.post("/schedules/pause", json={"keys": ["a\x00b"]}),
        client.post("/schedules/spread", json={"keys": ["menu:1"], "over": "wide"}),
        client.post("/schedules/spread", json={"keys": ["menu:1"]}),
        client.post("/schedules/menu:1/backfill", json=past | {"rate": 1e-300}),
        client.post("/schedules/menu:1/backfill", json=past | {"start": past["end"]}),
        client.post("/schedules/menu:1/backfill", json=past | {"start": "0001-01-01T00:00:00+14:00"}),
        client.post("/schedules/menu:1/backfill", json=past | {"end": "9000-01-01T00:00:00Z"}),
        client.post("/schedules/import", json={"schedules": []}),
        client.post("/schedules/import", json={"schedules": [{}] * 1001}),
    ]
    for number, answer in enumerate(answers):
        assert (number, answer.status_code) == (number, 422), answer.text
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["detail"]
    past_pause = client.post("/schedules/pause", json={"keys": ["menu:1"], "until": "2001-01-01T00:00:00Z"})
    assert past_pause.status_code == 409


def test_json_that_postgresql_cannot_store_is_refused(tasks: Sereno, ask: Ask) -> None:
    client = ask("admin")
    half = "\\ud800"
    fields = [
        *(f'"{name}": "{half}"' for name in ("task", "note", "missed_window", "tenant", "trace", "unique_key", half)),
        f'"tags": ["{half}"]',
        f'"args": {{"name": "{half}"}}',
        f'"args": {{"{half}": 1}}',
        '"args": {"name": NaN}',
        '"missed_window": NaN',
        '"when": {"kind": "every", "interval": NaN}',
        '"when": {"kind": "every", "interval": 1e999}',
        *(
            f'"when": {{"kind": "{kind}", "{name}": "{half}"}}'
            for kind, name in (("every", "interval"), ("once", "at"))
        ),
        *(f'"when": {{"kind": "{kind}", "{name}": "{half}"}}' for kind, name in (("daily", "at"), ("daily", "tz"))),
        *(f'"when": {{"kind": "cron", "expression": "{text}"}}' for text in (half, f"0 0 * * {half}")),
        f'"when": {{"kind": "{half}"}}',
        f'"when": {{"{half}": 1}}',
    ]
    for field in fields:
        sent = f'{{"task": "work", "when": {{"kind": "daily", "at": "03:00"}}, {field}}}'
        answer = client.put("/schedules/new", content=sent.encode(), headers=JSON)
        assert (field, answer.status_code) == (field, 422)
        assert answer.json()["detail"]
