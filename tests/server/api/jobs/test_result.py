"""The result of a job over HTTP: at once, after a wait, and within the rights of a token."""

import threading
from typing import Any

import psycopg
import pytest

from sereno import Dead, Sereno
from sereno.jobs.attempt import Settlement
from sereno.jobs.encryption import new_key
from tests.facts import one, until
from tests.jobs.job_steps import decided, end, session, take
from tests.server.api.conftest import Ask


@pytest.fixture
def job(app: Sereno) -> int:
    @app.task
    def work(number: int) -> dict[str, Any]:
        return {}

    return work.using(tenant="a").enqueue(7).id


def finish(connection: psycopg.Connection, settlement: Settlement) -> None:
    owner = session(connection)
    end(connection, owner, take(connection, owner), settlement)


@pytest.mark.slow
def test_a_result_is_read_with_its_state(ask: Ask, job: int, connection: psycopg.Connection) -> None:
    client = ask("operator")
    early = client.get(f"/jobs/{job}/result")
    assert (early.status_code, early.json()["state"], early.json()["result"]) == (202, "ready", None)
    finish(connection, Settlement("succeeded", result=b'{"rows": 7, "api_token": "hunter2"}'))
    found = client.get(f"/jobs/{job}/result")
    assert (found.status_code, found.json()["state"]) == (200, "succeeded")
    assert found.json()["result"] == {"rows": 7, "api_token": "hunter2"}
    assert ask("viewer").get(f"/jobs/{job}/result").json()["result"] == {"rows": 7, "api_token": "********"}
    assert ask("operator").get(f"/jobs/{job}").json()["job"]["result"] == {"rows": 7, "api_token": "********"}


def test_a_request_waits_until_the_job_has_finished(ask: Ask, job: int, connection: psycopg.Connection) -> None:
    client = ask("operator")
    replies: list[Any] = []
    waiting = threading.Thread(target=lambda: replies.append(client.get(f"/jobs/{job}/result", params={"wait": "50s"})))
    waiting.start()
    until(lambda: one(connection, "select count(*) from sereno.waiters") == 1)
    finish(connection, decided(Dead("no such account")))
    waiting.join()
    assert (replies[0].status_code, replies[0].json()["state"]) == (200, "dead")
    assert (replies[0].json()["reason"], replies[0].json()["result"]) == ("no such account", None)


def test_a_wait_has_a_valid_length_and_ends(ask: Ask, job: int) -> None:
    client = ask("viewer")
    assert client.get(f"/jobs/{job}/result", params={"wait": "0.1s"}).status_code == 202
    assert client.get(f"/jobs/{job}/result", params={"wait": "soon"}).status_code == 422
    assert client.get("/jobs/999999/result").status_code == 404
    assert ask("operator", tenant="b").get(f"/jobs/{job}/result").status_code == 404


def test_an_encrypted_result_is_shown_as_it_is_stored(ask: Ask, app: Sereno, connection: psycopg.Connection) -> None:
    app.override(encryption_keys=[new_key("one")])

    @app.task(name="work", encrypt=True)
    def work() -> str:
        return ""

    job = work.enqueue().id
    connection.execute("update sereno.jobs set requires = null")
    assert work.definition.result is not None
    finish(connection, work.definition.result.settlement("4111 1111 1111 1111", 1000))
    for role in ("admin", "operator", "viewer"):
        replies = ask(role).get(f"/jobs/{job}/result"), ask(role).get(f"/jobs/{job}")
        assert all("4111" not in reply.text and "$encrypted" in reply.text for reply in replies), role
    assert app.jobs.get(job).result("60s") == "4111 1111 1111 1111"
