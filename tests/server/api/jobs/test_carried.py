"""Carried queues over HTTP: their state is listed, and the share of the carrier is set."""

import httpx
import psycopg
import pytest

from tests.carriers.report_steps import add_batch, report
from tests.facts import one
from tests.server.api.conftest import Ask


def test_queues_have_the_state_of_their_carrier(ask: Ask, connection: psycopg.Connection) -> None:
    report(connection, pending_messages=3, held_messages=1)
    (line,) = ask("viewer").get("/queues").json()["items"]
    carrier = line["carrier"]
    assert (line["queue"], carrier["kind"], carrier["address"]) == ("clicks", "jetstream", "a:4222,b:4222")
    assert (carrier["pending_messages"], carrier["held_messages"], carrier["share"]) == (3, 1, 100)
    assert carrier["state"] == "up"


def test_an_operator_sets_the_share(ask: Ask, connection: psycopg.Connection) -> None:
    report(connection)
    add_batch(connection, 11, 12)
    client = ask("operator")
    changed = client.put("/queues/clicks/carrier", json={"share": 10}).json()
    assert changed == {"queue": "clicks", "share": 10, "before": 100, "recovered": 0}
    assert client.get("/queues").json()["items"][0]["carrier"]["share"] == 10
    recovered = client.put("/queues/clicks/carrier", json={"share": 0, "recover": True}).json()
    assert (recovered["before"], recovered["recovered"]) == (10, 2)
    rows = connection.execute(
        "select action, subject, actor from sereno.audit where action like 'queue.%' order by id"
    ).fetchall()
    assert [row[:2] for row in rows] == [("queue.carry", "queue clicks")] * 2
    assert all(row[2].startswith("operator") for row in rows)


def test_other_users_and_shares_are_refused(
    ask: Ask, connection: psycopg.Connection, subtests: pytest.Subtests
) -> None:
    report(connection)
    client = ask("operator")
    for user, path, body, status in (
        (ask("viewer"), "clicks", {"share": 10}, 403),
        (ask("operator", tenant="a"), "clicks", {"share": 10}, 403),
        (client, "click", {"share": 10}, 404),
        (client, "clicks", {"share": 101}, 422),
        (client, "clicks", {"share": -1}, 422),
        (client, "clicks", {}, 422),
        (client, "clicks", {"share": 10, "recover": True}, 422),
    ):
        with subtests.test(path=path, body=body, status=status):
            answer: httpx.Response = user.put(f"/queues/{path}/carrier", json=body)
            assert answer.status_code == status, answer.text
    assert "did you mean clicks?" in client.put("/queues/click/carrier", json={"share": 1}).text
    assert one(connection, "select count(*) from sereno.carried_queues") == 0


def test_a_job_that_only_its_carrier_has_is_explained(ask: Ask, connection: psycopg.Connection) -> None:
    report(connection, pending_messages=3)
    path = "/jobs/1000000000000007/why"
    assert "published directly to the carrier of its queue" in ask("viewer").get(path).text
    assert ask("viewer", tenant="a").get(path).status_code == 404
    assert ask("viewer").get("/jobs/7/why").status_code == 404
