"""Schedules over HTTP: they are listed, written, paused and run, whatever their keys are."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

from sereno import Every, Sereno
from tests.facts import advance, one
from tests.schedules.schedule_steps import insert_run, made, now
from tests.server.api.conftest import Ask
from tests.server.api.schedules.schedule_steps import DAILY, JSON, body, fill, keys

UNUSUAL_KEYS = [
    "reports/daily",
    "/",
    "//a//",
    "heatmap",
    "export",
    "a/next",
    "a/fires",
    "a/run",
    ".",
    "../jobs",
    "-",
    "50% of *?&#;=+ a b",
    "line\nline\t\r",
    "ключ 🗝 \u202e",
    "%2F%00",
]


@pytest.fixture
def tasks(app: Sereno) -> Sereno:
    @app.task
    def work(name: str = "x") -> None: ...

    return app


def at_noon(connection: psycopg.Connection) -> None:
    """Set the clock to noon UTC: every 24 hours from then have one night in Riga, also when the clock changes there."""
    advance(connection, (43_200 - now(connection).timestamp()) % 86_400)


def test_put_creates_changes_and_skips_identical_definitions(
    tasks: Sereno, ask: Ask, connection: psycopg.Connection
) -> None:
    client = ask("admin")
    given = body(args={"name": "{key}"}, tenant="a", queue="slow", overlap="queue_one", max_lateness="15m")
    first = client.put("/schedules/menu:1", json=given).json()
    assert (first["what"], first["state"], first["when"]) == ("created", "enabled", "every day at 03:00, Europe/Riga")
    assert client.put("/schedules/menu:1", json=given).json()["what"] == "unchanged"
    assert client.put("/schedules/menu:1", json=given | {"max_lateness": 60}).json()["what"] == "changed"
    found = client.get("/schedules/menu:1").json()
    assert found["schedule"]["max_lateness"] == 60
    assert found["schedule"]["rule"] == DAILY
    assert found["schedule"]["changed_by"].startswith("admin")
    assert (found["last_job"], found["fires"], len(found["upcoming"])) == (None, [], 5)
    assert one(connection, "select count(*) from sereno.audit where action = 'schedule.write'") == 2
    stopped = client.put("/schedules/menu:2", json=body(enabled=False, note="not yet")).json()
    assert stopped["what"] == "created"
    assert client.get("/schedules/menu:2").json()["schedule"]["state"] == "disabled"


def test_an_export_can_be_put_and_imported(tasks: Sereno, ask: Ask, connection: psycopg.Connection) -> None:
    client = ask("admin")
    fill(client)
    client.post("/schedules/disable", json={"keys": ["menu:2"], "note": "closed"})
    first = client.get("/schedules/export", params={"limit": 3}).json()
    rest = client.get("/schedules/export", params={"limit": 3, "after": first["next"]}).json()
    found = first["items"] + rest["items"]
    assert ([each["key"] for each in found], rest["next"]) == (["close", "menu:1", "menu:2", "menu:3"], None)
    for each in found:
        key = each["key"]
        definition = {name: value for name, value in each.items() if name != "key"}
        assert client.put(f"/schedules/{key}", json=definition).json()["what"] == "unchanged"
    connection.execute("delete from sereno.schedules where key <> 'close'")
    dry = client.post("/schedules/import", json={"schedules": found, "dry_run": True}).json()
    assert (dry["created"], dry["unchanged"], one(connection, "select count(*) from sereno.schedules")) == (3, 1, 1)
    done = client.post("/schedules/import", json={"schedules": found}).json()
    assert (done["created"], done["unchanged"], done["refused"]) == (3, 1, [])
    assert client.get("/schedules/export").json()["items"] == found


def test_an_import_refuses_invalid_definitions_and_imports_the_rest(
    tasks: Sereno, ask: Ask, connection: psycopg.Connection
) -> None:
    client = ask("admin")
    past = {"kind": "once", "at": "2001-01-01T00:00:00Z"}
    given: list[dict[str, Any]] = [
        {"key": "good", **body()},
        {"key": "no rule", "task": "work"},
        {"key": "good", **body()},
        {"key": "unknown", **body(task="unknown")},
        {"key": "over", **body(when=past)},
        {"key": 7},
    ]
    strict = client.post("/schedules/import", json={"schedules": given, "strict": True})
    assert (strict.status_code, one(connection, "select count(*) from sereno.schedules")) == (422, 0)
    assert strict.json()["detail"].startswith("schedules, at 1: it needs a when")
    done = client.post("/schedules/import", json={"schedules": given}).json()
    assert (done["created"], sorted(each["at"] for each in done["refused"])) == (1, [1, 2, 3, 4, 5])
    assert "its instants are all past" in next(each for each in done["refused"] if each["key"] == "over")["problem"]
    unchecked = client.post("/schedules/import", params={"unchecked": True}, json={"schedules": given[3:4]}).json()
    assert unchecked["created"] == 1
    assert client.put("/schedules/unknown:2", params={"unchecked": True}, json=body(task="unknown")).status_code == 200
    half = client.post("/schedules/import", content=b'{"schedules": [{"key": "\\ud800"}]}', headers=JSON)
    assert (half.status_code, half.json()["refused"][0]["key"]) == (200, "?")


@pytest.mark.slow
def test_schedules_are_filtered_and_listed_in_pages(tasks: Sereno, ask: Ask) -> None:
    fill(ask("admin"))
    client = ask("viewer")
    first = client.get("/schedules", params={"limit": 3})
    assert (keys(first), first.json()["next"]) == (["close", "menu:1", "menu:2"], "menu:2")
    rest = client.get("/schedules", params={"limit": 3, "after": "menu:2"})
    assert (keys(rest), rest.json()["next"]) == (["menu:3"], None)
    ask("operator").post("/schedules/disable", json={"keys": ["menu:1"]})
    searches: Sequence[tuple[dict[str, Any], list[str]]] = (
        ({"key": "menu:*"}, ["menu:1", "menu:2", "menu:3"]),
        ({"key": "close"}, ["close"]),
        ({"tenant": "b"}, ["menu:3"]),
        ({"states": ["disabled", "paused"]}, ["menu:1"]),
        ({"task": "nothing"}, []),
        ({"declared_by": "unknown"}, []),
        ({"key": "menu:2", "soonest": True}, ["menu:2"]),
    )
    for params, expected in searches:
        assert keys(client.get("/schedules", params=params)) == expected


@pytest.mark.slow
def test_every_key_can_be_reached_as_a_parameter(tasks: Sereno, ask: Ask, connection: psycopg.Connection) -> None:
    client = ask("admin")
    for key in UNUSUAL_KEYS:
        which = {"key": key}
        assert client.put("/schedules/-", params=which, json=body()).json()["key"] == key
        assert client.get("/schedules/-", params=which).json()["schedule"]["key"] == key
        assert client.get("/schedules/-/next", params=which).json()["key"] == key
        assert client.post("/schedules/-/run", params=which).status_code == 201
        assert len(client.get("/schedules/-/fires", params=which).json()["items"]) == 1
        assert made(connection, key) == 1
    assert sorted(keys(client.get("/schedules"))) == sorted(UNUSUAL_KEYS)
    for key in UNUSUAL_KEYS:
        assert client.post("/schedules/delete", json={"keys": [key]}).json()["total"] == 1


@pytest.mark.slow
def test_most_keys_work_in_the_path(tasks: Sereno, ask: Ask) -> None:
    client = ask("admin")
    for key in ("reports/daily", "a//b", "50% of *?&#;=+ a b", "ключ 🗝", "%2F", "pause", "a/run"):
        path = f"/schedules/{quote(key, safe='')}"
        assert client.put(path, json=body()).json()["key"] == key
        assert client.get(path).json()["schedule"]["key"] == key
        assert client.get(f"{path}/next").json()["key"] == key
        assert client.post(f"{path}/run").status_code == 201
        assert len(client.get(f"{path}/fires").json()["items"]) == 1


def test_runs_have_their_counts_without_what_viewers_may_not_see(
    tasks: Sereno, ask: Ask, connection: psycopg.Connection
) -> None:
    fill(ask("admin"))
    insert_run(connection, "menu:1", result={"new": 3, "found": 12, "pin": 4711, "done": True, "inner": {"n": 1}})
    insert_run(connection, "menu:1", "dead", ago=30)
    for role, counts in (("operator", {"found": 12, "new": 3, "pin": 4711}), ("viewer", {"found": 12, "new": 3})):
        dead, good = ask(role).get("/schedules/menu:1/fires").json()["items"]
        assert (good["counts"], good["duration"], good["state"]) == (counts, 2.0, "succeeded")
        assert (dead["counts"], dead["state"]) == (None, "dead")
        assert ask(role).get("/schedules/menu:1").json()["fires"] == [dead, good]


@pytest.mark.slow
def test_upcoming_and_past_runs_are_shown(tasks: Sereno, ask: Ask, connection: psycopg.Connection) -> None:
    client = ask("admin")
    fill(client)
    found = client.get("/schedules/menu:1/next", params={"n": 400}).json()
    assert (found["state"], len(found["upcoming"])) == ("enabled", 400)
    assert {each["zone"] for each in found["upcoming"]} == {"EET", "EEST"}
    assert sum(each["note"] is not None for each in found["upcoming"]) >= 2
    job = client.post("/schedules/menu:1/run").json()
    shown = client.get("/schedules/menu:1", params={"n": 0, "fires": 1}).json()
    assert (shown["last_job"]["id"], shown["last_job"]["state"], shown["upcoming"]) == (job["id"], "ready", [])
    assert [each["job_id"] for each in shown["fires"]] == [job["id"]]
    assert client.get("/schedules/menu:1/fires").json()["items"] == shown["fires"]
    assert one(connection, "select count(*) from sereno.audit where action = 'schedule.run' and actor like 'admin%%'")
    assert client.get("/schedules/nothing").json()["detail"].startswith("there is no schedule 'nothing'")


def test_a_preview_notes_a_change_of_the_clock(ask: Ask, connection: psycopg.Connection) -> None:
    client = ask("viewer", tenant="a")
    rule = {"kind": "cron", "expression": "30 3 * * *", "tz": "Europe/Riga"}
    found = client.post("/schedules/preview", json={"when": rule, "n": 2, "after": "2027-03-27T12:00:00Z"}).json()
    assert (found["when"], found["rule"]) == ("at 03:30 every day, Europe/Riga", rule)
    assert [each["local"] for each in found["upcoming"]] == ["2027-03-28T04:00:00+03:00", "2027-03-29T03:30:00+03:00"]
    assert found["upcoming"][0]["note"] == "03:30 does not exist on this day: runs at 04:00"
    assert found["upcoming"][0]["zone"] == "EEST"
    advance(connection, 86400 * 1000)
    later = client.post("/schedules/preview", json={"when": rule, "n": 1}).json()
    assert datetime.fromisoformat(later["upcoming"][0]["at"]) > now(connection)
    spread = {"when": rule | {"spread": "20m"}, "n": 1, "after": "2027-04-27T12:00:00Z", "key": "menu:1"}
    assert client.post("/schedules/preview", json=spread).json()["upcoming"][0]["local"] > "2027-04-28T03:30:00+03:00"
    assert one(connection, "select count(*) from sereno.schedules") == 0


@pytest.mark.slow
def test_schedules_are_paused_resumed_spread_and_deleted_in_bulk(
    tasks: Sereno, ask: Ask, connection: psycopg.Connection
) -> None:
    client = ask("admin")
    fill(client)
    dry = client.post("/schedules/pause", json={"pattern": "menu:*", "dry_run": True}).json()
    assert dry == {
        "dry_run": True, "total": 3, "exact": True, "by_state": {"enabled": 3}, "by_task": {"work": 3},
    }  # fmt: skip
    assert client.post("/schedules/pause", json={"pattern": "menu:*"}).status_code == 409
    assert client.post("/schedules/pause", json={}).status_code == 409
    soon = (now(connection) + timedelta(days=2)).isoformat()
    pause = {"pattern": "menu:*", "all": True, "until": soon, "note": "holidays"}
    assert client.post("/schedules/pause", json=pause).json()["total"] == 3
    seen = client.get("/schedules/menu:2").json()["schedule"]
    assert (datetime.fromisoformat(seen["paused_until"]), seen["note"]) == (datetime.fromisoformat(soon), "holidays")
    assert client.post("/schedules/resume", json={"tenant": "a", "all": True}).json()["total"] == 2
    assert client.post("/schedules/disable", json={"keys": ["close", "nothing"]}).json()["total"] == 1
    assert client.get("/schedules/close").json()["schedule"]["state"] == "disabled"
    assert client.post("/schedules/spread", json={"keys": ["menu:1"], "over": "20m"}).json()["total"] == 1
    assert client.get("/schedules/menu:1").json()["schedule"]["rule"]["spread"] == 1200
    assert client.post("/schedules/spread", json={"keys": ["menu:1"], "over": 0}).json()["total"] == 1
    assert client.post("/schedules/delete", json={"keys": []}).json()["total"] == 0
    assert client.post("/schedules/delete", json={"all": True}).json()["total"] == 4
    actions = connection.execute("select distinct action from sereno.audit where actor like 'admin%%'").fetchall()
    assert {f"schedule.{verb}" for verb in ("pause", "resume", "disable", "spread", "delete", "write")} <= {
        row[0] for row in actions
    }


@pytest.mark.slow
def test_a_backfill_shows_its_plan_and_runs_each_instant_once(
    tasks: Sereno, ask: Ask, connection: psycopg.Connection
) -> None:
    client = ask("operator")
    fill(ask("admin"))
    wanted = {"start": "2026-03-01T00:00:00Z", "end": "2026-03-04T00:00:00Z"}
    dry = client.post("/schedules/menu:1/backfill", json=wanted | {"dry_run": True}).json()
    assert (dry["dry_run"], dry["total"], dry["to_make"], dry["jobs"]) == (True, 3, 3, [])
    assert dry["instants"][0] == {
        "at": "2026-03-01T01:00:00Z", "local": "2026-03-01T03:00:00+02:00", "done": False,
    }  # fmt: skip
    assert made(connection) == 0
    done = client.post("/schedules/menu:1/backfill", json=wanted | {"rate": 0.001}).json()
    assert (len(done["jobs"]), done["there_before"], done["left"]) == (3, 0, 0)
    again = client.post("/schedules/menu:1/backfill", json=wanted).json()
    assert (again["jobs"], again["to_make"]) == ([], 0)
    assert all(each["done"] for each in again["instants"])
    long_past = {"start": "1900-01-03T00:00:00Z", "end": "2026-01-01T00:00:00Z", "dry_run": True}
    long = client.post("/schedules/menu:1/backfill", json=long_past).json()
    assert (long["total"] > 40_000, len(long["instants"])) == (True, 1000)


@pytest.mark.slow
def test_a_tick_fires_due_schedules(tasks: Sereno, ask: Ask, connection: psycopg.Connection) -> None:
    at_noon(connection)
    client = ask("admin")
    fill(client)
    assert client.post("/schedules/tick").json()["fires"] == 0
    connection.execute("update sereno.schedules set rule = '{\"kind\": \"never\"}' where key = 'close'")
    advance(connection, 86400)
    passed = client.post("/schedules/tick").json()
    assert (passed["fires"], [each["key"] for each in passed["parked"]]) == (3, ["close"])
    assert made(connection) == 3
    assert client.get("/schedules/close").json()["schedule"]["when"] == '{"kind":"never"}'
    assert client.get("/schedules/close/next").json()["upcoming"] == []
    assert client.post("/schedules/close/run").status_code == 422


@pytest.mark.slow
def test_the_heatmap_counts_planned_runs(tasks: Sereno, ask: Ask, connection: psycopg.Connection) -> None:
    at_noon(connection)
    fill(ask("admin"))
    client = ask("viewer")
    found = client.get("/schedules/heatmap").json()
    assert (found["schedules"], round(sum(cell["fires"] for cell in found["cells"]))) == (4, 4)
    week = client.get("/schedules/heatmap", params={"span": "7d", "key": "menu:*"}).json()
    assert round(sum(cell["fires"] for cell in week["cells"])) == 21
    theirs = ask("viewer", tenant="a").get("/schedules/heatmap").json()
    assert theirs["schedules"] == 2


def test_a_schedule_disabled_without_a_note_can_be_changed(tasks: Sereno, ask: Ask) -> None:
    client = ask("admin")
    assert client.put("/schedules/k", json=body(enabled=False)).json()["what"] == "created"
    changed = client.put("/schedules/k", json=body(priority=1))
    assert (changed.status_code, changed.json()["what"], changed.json()["state"]) == (200, "changed", "disabled")
    given = {"schedules": [body(key="k", priority=2), body(key="new")]}
    imported = client.post("/schedules/import", json=given).json()
    assert (imported["created"], imported["changed"], imported["refused"]) == (1, 1, [])


def test_a_tenants_admin_can_neither_block_nor_change_declared_schedules(app: Sereno, tasks: Sereno, ask: Ask) -> None:
    @app.cycle(Every("1h"), key="nightly")
    def nightly() -> None: ...

    theirs = ask("admin", tenant="acme")
    assert theirs.put("/schedules/nightly", json=body(enabled=False)).json()["what"] == "created"
    app.declare()
    mine = ask("admin").get("/schedules/nightly").json()["schedule"]
    assert (mine["state"], mine["tenant"], mine["task"]) == ("enabled", None, nightly.name)
    assert keys(theirs.get("/schedules")) == ["nightly@acme"]
    assert theirs.put("/schedules/nightly", json=body()).status_code == 404
    assert theirs.post("/schedules/pause", json={"keys": ["nightly"]}).json()["total"] == 0
    assert app.schedules.get("nightly").state == "enabled"
