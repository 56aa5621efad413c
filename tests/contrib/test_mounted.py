"""The server and a worker inside FastAPI and Litestar applications, in real processes over HTTP."""

import re
from collections.abc import Iterator

import httpx
import psycopg
import pytest

from sereno import Sereno
from sereno.access.operations import create
from tests.contrib.process import Served, served
from tests.facts import one, until

HERE = "/tools/sereno"
# Seconds. Only a process that hangs takes this long.
LONGEST_START = 100


@pytest.fixture(params=["fastapi", "litestar"])
def shop(request: pytest.FixtureRequest, database_url: str, connection: psycopg.Connection) -> Iterator[Served]:
    connection.execute(
        "create table orders (id bigint generated always as identity, total integer, confirmed boolean default false)"
    )
    with served(f"tests.contrib.{request.param}_shop:api", database_url) as found:
        yield found


@pytest.mark.slow
def test_a_mounted_server_and_its_worker_run_until_they_are_stopped(
    shop: Served, app: Sereno, connection: psycopg.Connection
) -> None:
    """One process for all facts, because it takes seconds to start."""
    secret = app.database.run(create("ann", "operator", actor="test")).secret
    check_orders_and_jobs_are_written_together_and_run(shop.client, connection)
    check_pages_and_the_api_work_under_the_path(shop.client, secret, connection)
    check_an_open_stream_does_not_delay_shutdown(shop, secret)
    assert one(connection, "select state from sereno.sessions") == "closed", "the worker closed its session"


def check_orders_and_jobs_are_written_together_and_run(client: httpx.Client, connection: psycopg.Connection) -> None:
    assert client.post("/orders", params={"total": -1}).status_code == 422
    assert one(connection, "select count(*) from orders") == 0
    number = client.post("/orders", params={"total": 42}).json()
    assert one(connection, "select total from orders where id = %s", number) == 42, "committed before the response"
    until(lambda: one(connection, "select confirmed from orders where id = %s", number))
    until(lambda: one(connection, "select count(*) from sereno.history where state = 'succeeded'") == 1)
    assert one(connection, "select count(*) from sereno.jobs") == 0


def check_pages_and_the_api_work_under_the_path(
    client: httpx.Client, secret: str, connection: psycopg.Connection
) -> None:
    known = {"authorization": f"Bearer {secret}"}
    assert client.get(f"{HERE}/api/v1/me").status_code == 401
    assert client.get(f"{HERE}/api/v1/me", headers=known).json()["name"] == "ann"
    assert client.get(HERE).headers["location"].endswith("sereno/")
    first = client.get(f"{HERE}/jobs?q=state:dead")
    assert first.headers["location"] == "./sign-in?next=jobs%3Fq%3Dstate%3Adead"
    # Sign in at the page, as a user does.
    signed = client.post(f"{HERE}/sign-in", data={"token": secret, "next": "jobs"})
    assert (signed.status_code, signed.headers["location"]) == (303, "./jobs")
    page = client.get(f"{HERE}/jobs")
    assert page.status_code == 200
    files = re.findall(r'(?:href|src)="([^":]+\.(?:css|js)[^"]*)"', page.text)
    assert files
    for name in files:
        assert client.get(f"{HERE}/{name.removeprefix('./')}").status_code == 200
    assert client.get(f"{HERE}/nothing").status_code == 404
    assert client.get("/tools/serenopark").status_code == 404
    # Names with slashes and spaces arrive unchanged.
    assert client.post(f"{HERE}/api/v1/queues/a%2Fb%20c/pause", json={}, headers=known).is_success
    assert one(connection, "select name from sereno.pauses") == "a/b c"


def check_an_open_stream_does_not_delay_shutdown(shop: Served, secret: str) -> None:
    headers = {"accept": "text/event-stream", "authorization": f"Bearer {secret}"}
    with shop.client.stream("GET", f"{HERE}/api/v1/stream", headers=headers) as response:
        lines = response.iter_lines()
        assert next(line for line in lines if line.startswith("data:"))
        output = shop.end()
        list(lines)
    assert "Application shutdown complete" in output, output


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["fastapi", "litestar"])
def test_an_application_without_the_schema_does_not_start(framework: str, empty_database_url: str) -> None:
    with served(f"tests.contrib.{framework}_shop:api", empty_database_url) as found:
        output, _ = found.process.communicate(timeout=LONGEST_START)
    assert found.process.returncode != 0
    assert "sereno migrate" in output
