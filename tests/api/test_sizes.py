"""How large a request may be, and that no request keeps the server from answering another one."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import psycopg
import pytest
from psycopg.types.json import Jsonb
from pydantic import BaseModel, model_validator

from sereno import InvalidArguments, Sereno
from tests.api.conftest import Ask, Served
from tests.plain_http import NO_CERTIFICATES

MANY = 900_000
DAILY = {"kind": "daily", "at": "03:00", "tz": "Europe/Riga"}
TOO_MANY = [f"tag {number}" for number in range(51)]
TOO_LONG = ["t" * 201]
# As much as goes along: compact 64 KiB.
ALLOWED_DATA, LARGE_DATA = {"text": "x" * 65_000}, {"text": "x" * 100_000}


def refused(client: httpx.Client, method: str, path: str, body: Any) -> None:
    answer = client.request(method, path, json=body)
    assert answer.status_code == 422, (path, answer.status_code)
    assert len(answer.json().get("errors") or ()) <= 20, path
    assert len(answer.content) < 10_000, path


def test_a_body_of_a_million_wrong_elements_is_refused_in_a_few_words(app: Sereno, ask: Ask) -> None:
    """The elements behind the bound are not looked at, so there are few errors to list."""
    admin = ask("admin")
    numbers = list(range(MANY // 2))
    names = {f"a{number}": 1 for number in range(MANY // 6)}
    for body in ({"task": "work", "tags": [1] * MANY}, {"task": "work", "tags": ["a"] * MANY}):
        refused(admin, "POST", "/jobs", body)
    refused(admin, "PUT", "/schedules/k", {"task": "work", "when": DAILY, "tags": numbers})
    refused(admin, "PUT", "/schedules/k", {"task": "work", "when": DAILY, **names})
    refused(admin, "PUT", "/recipients/k", {"addresses": names})
    refused(admin, "PUT", "/recipients/k", {"addresses": {"email": numbers}})
    refused(admin, "PUT", "/procedures/here/public.f", {"given": names})
    refused(admin, "POST", "/events", {"type": "x", "payload": {}, "to": numbers})
    refused(admin, "POST", "/jobs/retry", {"ids": ["x"] * (MANY // 2)})


class Slow(BaseModel):
    """An argument that takes as long to check as the test wants."""

    size: int

    @model_validator(mode="after")
    def wait(self) -> "Slow":
        CHECKING.set()
        assert ANSWERED.wait(60)
        return self


CHECKING, ANSWERED = threading.Event(), threading.Event()


@pytest.mark.parametrize("way", ["job", "schedule", "import", "event"])
def test_the_server_answers_others_while_a_request_is_checked(app: Sereno, served: Served, ask: Ask, way: str) -> None:
    """The check of the one waits until `/livez` has answered the other."""
    CHECKING.clear()
    ANSWERED.clear()

    @app.task
    def work(slow: Slow) -> None: ...

    app.event("slow", Slow, channels=["in_app"])
    definition = {"task": "work", "args": {"slow": {"size": 1}}, "when": DAILY}
    client = ask("admin")
    send = {
        "job": lambda: client.post("/jobs", json={"task": "work", "arguments": {"slow": {"size": 1}}}),
        "schedule": lambda: client.put("/schedules/k", json=definition),
        "import": lambda: client.post("/schedules/import", json={"schedules": [{**definition, "key": "k"}]}),
        "event": lambda: client.post("/events", json={"type": "slow", "payload": {"size": 1}}),
    }[way]
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(send)
        try:
            assert CHECKING.wait(60)
            assert httpx.get(f"{served.url}/livez", timeout=60, verify=NO_CERTIFICATES).status_code == 200
        finally:
            ANSWERED.set()
        assert sent.result().is_success, sent.result().text


def test_tags_are_few_and_short_in_the_library(app: Sereno) -> None:
    @app.task
    def work() -> None: ...

    for tags in (TOO_MANY, TOO_LONG):
        with pytest.raises(InvalidArguments, match="at most"):
            work.using(tags=tags)
    work.using(tags=["t" * 200] * 50).enqueue()


@pytest.mark.parametrize("tags", [TOO_MANY, TOO_LONG, [""]])
def test_tags_are_few_and_short_in_sql(connection: psycopg.Connection, tags: list[str]) -> None:
    """In the function, with and without a unique key, and in the tables themselves."""
    for key in (None, "k"):
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="tags"), connection.transaction():
            connection.execute("select sereno.enqueue('work', tags => %s, unique_key => %s)", [tags, key])
    for insert in (
        "insert into sereno.jobs (task, state, ready_seq, tags) values ('work', 'ready', 1, %s)",
        "insert into sereno.schedules (key, task, rule, tags) values ('k', 'work', '{}', %s)",
    ):
        with pytest.raises(psycopg.errors.CheckViolation), connection.transaction():
            connection.execute(insert, [tags])


def test_data_of_a_recipient_is_bounded(app: Sereno, ask: Ask, connection: psycopg.Connection) -> None:
    """In the library, over HTTP, in SQL, and in the table itself."""
    with pytest.raises(InvalidArguments, match="65,536"):
        app.recipients.upsert("user:7", data=LARGE_DATA)
    app.recipients.upsert("user:7", data=ALLOWED_DATA)
    admin = ask("admin")
    assert admin.put("/recipients/user:8", json={"data": LARGE_DATA}).status_code == 422
    assert admin.put("/recipients/user:8", json={"data": ALLOWED_DATA}).status_code == 200
    large = Jsonb(LARGE_DATA)
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="bytes"), connection.transaction():
        connection.execute("select sereno.put_recipient('user:9', data => %s)", [large])
    with pytest.raises(psycopg.errors.CheckViolation), connection.transaction():
        connection.execute("insert into sereno.recipients (key, data) values ('user:9', %s)", [large])


def test_data_that_grows_in_the_database_is_refused_as_a_request(ask: Ask) -> None:
    """A number of five characters is written out with three hundred."""
    numbers = {"data": {"all": [1e300] * 9000}}
    assert ask("admin").put("/recipients/user:8", json=numbers).status_code == 422


def test_a_job_made_again_keeps_within_the_tags(app: Sereno, ask: Ask, connection: psycopg.Connection) -> None:
    @app.task
    def work() -> None: ...

    job = work.using(tags=[f"t{number}" for number in range(50)]).enqueue()
    admin = ask("admin")
    admin.post("/jobs/cancel", json={"ids": [job.id]})
    made = admin.post(f"/jobs/{job.id}/retry", json={"arguments": {}}).json()["id"]
    (tags,) = connection.execute("select tags from sereno.jobs where id = %s", [made]).fetchone() or ([],)
    assert (len(tags), tags[-1]) == (50, f"retry-of:{job.id}")
