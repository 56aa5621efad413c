"""Error groups over HTTP: they are listed and shown, and operators mute them."""

import psycopg
import pytest

from sereno import Sereno
from sereno.error_text import FailureText
from sereno.jobs.queries import error_groups
from sereno.telemetry.metrics import MetricTally
from tests.facts import one, ten_past
from tests.server.api.conftest import Ask

FINGERPRINTS = [f"{number:012x}" for number in range(1, 6)]


@pytest.fixture
def fingerprints(app: Sereno, connection: psycopg.Connection) -> list[str]:
    """Five error groups: the first failed once, the last five times, each for its own tenant and once for `all`."""
    # Ten minutes past the hour, so that the next hour does not begin during the test.
    ten_past(connection)
    tally = MetricTally()
    for number, fingerprint in enumerate(FINGERPRINTS, 1):
        for _ in range(number):
            failed = FailureText(fingerprint, f"task{number}", "OSError", "<b>\x1b[31m order 7", "shop.py:charge")
            tally.failed(failed, number, f"t{number}")
        tally.failed(failed, number, "all")
    app.database.run(error_groups.add(tally))
    return FINGERPRINTS


@pytest.mark.slow
def test_error_groups_are_listed_sorted_and_in_pages(ask: Ask, fingerprints: list[str]) -> None:
    client = ask("viewer")

    def listed(**params: str | int) -> list[str]:
        answer = client.get("/errors", params=params)
        assert answer.status_code == 200, answer.text
        return [each["fingerprint"] for each in answer.json()["items"]]

    assert listed() == fingerprints
    assert listed(sort="count") == fingerprints[::-1]
    assert listed(task="task2") == fingerprints[1:2]
    assert listed(tenant="t3", since="7d") == fingerprints[2:3]
    assert listed(page=2, page_size=2) == fingerprints[2:4]
    first = client.get("/errors", params={"limit": 3}).json()
    rest = client.get("/errors", params={"limit": 3, "before": first["next"]}).json()
    assert [each["fingerprint"] for each in first["items"] + rest["items"]] == fingerprints
    assert rest["next"] is None
    group = first["items"][1]
    assert (group["count"], group["total"], len(group["hours"]), group["hours"][-1]) == (3, 3, 24, 3)
    alone = client.get("/errors", params={"tenant": "all", "task": "task2"}).json()["items"][0]
    assert (alone["count"], alone["total"]) == (1, 3)


def test_an_error_group_is_shown_with_its_tenants(ask: Ask, fingerprints: list[str]) -> None:
    found = ask("viewer").get(f"/errors/{fingerprints[4]}").json()
    assert found["group"]["frame"] == "shop.py:charge"
    assert found["tenants"] == [{"tenant": "t5", "count": 5}, {"tenant": "all", "count": 1}]
    assert found["search"] == f"state:dead fingerprint:{fingerprints[4]}"
    assert (found["dead"], found["sample"], len(found["hours"])) == ({"value": 0, "exact": True}, None, 25)


def test_an_operator_mutes_a_group_and_the_audit_records_it(
    ask: Ask, fingerprints: list[str], connection: psycopg.Connection
) -> None:
    client = ask("operator")
    muted = client.post(f"/errors/{fingerprints[0]}/mute", json={"for": "8h", "note": "known"})
    assert (muted.status_code, muted.json()["note"]) == (200, "known")
    assert muted.json()["muted_until"] is not None
    assert [each["fingerprint"] for each in client.get("/errors").json()["items"]] == fingerprints[1:]
    assert len(client.get("/errors", params={"muted": True}).json()["items"]) == len(fingerprints)
    until = client.post(f"/errors/{fingerprints[0]}/mute", json={"until": "2096-01-01T00:00:00Z"}).json()
    assert (until["muted_until"], until["note"]) == ("2096-01-01T00:00:00Z", "known")
    unmuted = client.post(f"/errors/{fingerprints[0]}/mute", json={"note": ""}).json()
    assert (unmuted["muted_until"], unmuted["note"]) == (None, None)
    audited = connection.execute(
        "select action, subject from sereno.audit where action like 'error.%' order by id"
    ).fetchall()
    assert audited == [(f"error.{what}", f"error {fingerprints[0]}") for what in ("mute", "mute", "unmute")]


def test_roles_for_error_groups(ask: Ask, fingerprints: list[str]) -> None:
    path = f"/errors/{fingerprints[0]}"
    assert ask("viewer").post(f"{path}/mute", json={"for": "1h"}).status_code == 403
    for role in ("viewer", "operator", "admin"):
        theirs = ask(role, tenant="t1")
        assert [theirs.get(each).status_code for each in ("/errors", path)] == [403, 403]
        assert theirs.post(f"{path}/mute", json={"for": "1h"}).status_code == 403


@pytest.mark.slow
def test_invalid_error_group_requests_are_refused(
    ask: Ask, fingerprints: list[str], connection: psycopg.Connection
) -> None:
    client = ask("operator")
    for params in ({"since": "yesterday"}, {"since": "31d"}, {"since": "0"}, {"sort": "size"}, {"limit": 0}):
        assert client.get("/errors", params=params).status_code == 422, params
    assert client.get("/errors", params={"task": "\x00"}).status_code == 422
    assert client.get("/errors/ffffffffffff").status_code == 404
    assert client.post("/errors/ffffffffffff/mute", json={"for": "1h"}).status_code == 404
    assert client.get("/errors/xyz").status_code == 422
    path = f"/errors/{fingerprints[0]}/mute"
    for body in (
        {"for": "soon"},
        {"for": "9999d"},
        {"until": "2096-01-01T00:00:00"},
        {"note": "x" * 501},
        {"note": "\x00"},
    ):
        assert client.post(path, json=body).status_code == 422, body
    assert (
        one(connection, "select count(*) from sereno.error_groups where note is not null or muted_until is not null")
        == 0
    )


def test_dead_letters_of_an_error_are_retried_by_a_search(ask: Ask, connection: psycopg.Connection) -> None:
    connection.execute(
        "insert into sereno.history (id, finished_at, run_at, created_at, attempt, failures, crashes, snoozes, "
        "releases, priority, state, queue, task, args, fingerprint) "
        "select n, sereno.now(), sereno.now(), sereno.now(), 1, 1, 0, 0, 0, 5, 'dead', 'default', 'work', '{}', "
        "case when n %% 2 = 0 then %s else %s end from generate_series(1, 6) as n",
        FINGERPRINTS[:2],
    )
    client = ask("operator")
    search = f"state:dead fingerprint:{FINGERPRINTS[0]}"
    assert [each["id"] for each in client.get("/jobs", params={"q": search}).json()["items"]] == [6, 4, 2]
    dry = client.post("/jobs/retry", json={"q": search, "dry_run": True, "rate": 50}).json()
    assert (dry["total"], dry["by_task"]) == (3, {"work": 3})
    assert client.post("/jobs/retry", json={"q": search, "all": True, "rate": 50}).json()["done"] == [2, 4, 6]
    assert one(connection, "select count(*) from sereno.history_dead") == 3
    assert one(connection, "select count(*) from sereno.attempts where fingerprint = %s", FINGERPRINTS[0]) == 3
    waiting = client.get("/jobs", params={"q": f"fingerprint:{FINGERPRINTS[0]}"}).json()["items"]
    assert [each["id"] for each in waiting] == [6, 4, 2]
    assert client.get("/jobs", params={"q": f"-fingerprint:{FINGERPRINTS[0]}"}).status_code == 422
