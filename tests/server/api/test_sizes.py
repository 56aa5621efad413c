"""Size limits of requests and responses; no request blocks the server for others."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import psycopg
import pytest
from psycopg.types.json import Jsonb
from pydantic import BaseModel, model_validator

from sereno import InvalidArguments, Sereno
from sereno.notifications.templates import queries as templates
from sereno.server.api.paging import LARGEST_PAGE
from tests.server.api.conftest import PLAIN, Ask, Document, Served

MANY = 900_000
DAILY = {"kind": "daily", "at": "03:00", "tz": "Europe/Riga"}
TOO_MANY = [f"tag {number}" for number in range(51)]
TOO_LONG = ["t" * 201]
# The largest allowed value: 64 KiB as compact JSON.
ALLOWED_DATA, LARGE_DATA = {"text": "x" * 65_000}, {"text": "x" * 100_000}


def assert_refused(client: httpx.Client, method: str, path: str, body: Any) -> None:
    answer = client.request(method, path, json=body)
    assert answer.status_code == 422, (path, answer.status_code)
    assert len(answer.json().get("errors") or ()) <= 20, path
    assert len(answer.content) < 10_000, path


@pytest.mark.slow
def test_a_body_of_a_million_wrong_elements_gets_few_errors(app: Sereno, ask: Ask) -> None:
    """Elements beyond the limit are not validated, so there are few errors to list."""
    admin = ask("admin")
    numbers = list(range(MANY // 2))
    names = {f"a{number}": 1 for number in range(MANY // 6)}
    for body in ({"task": "work", "tags": [1] * MANY}, {"task": "work", "tags": ["a"] * MANY}):
        assert_refused(admin, "POST", "/jobs", body)
    assert_refused(admin, "PUT", "/schedules/k", {"task": "work", "when": DAILY, "tags": numbers})
    assert_refused(admin, "PUT", "/schedules/k", {"task": "work", "when": DAILY, **names})
    assert_refused(admin, "PUT", "/recipients/k", {"addresses": names})
    assert_refused(admin, "PUT", "/recipients/k", {"addresses": {"email": numbers}})
    assert_refused(admin, "PUT", "/procedures/here/public.f", {"given": names})
    assert_refused(admin, "POST", "/events", {"type": "x", "payload": {}, "to": numbers})
    assert_refused(admin, "POST", "/topics/t/subscribe", {"recipients": numbers})
    assert_refused(admin, "POST", "/jobs/retry", {"ids": ["x"] * (MANY // 2)})


class Slow(BaseModel):
    """An argument whose validation waits for the test."""

    size: int

    @model_validator(mode="after")
    def wait(self) -> "Slow":
        CHECKING.set()
        assert RESPONDED.wait(60)
        return self


CHECKING, RESPONDED = threading.Event(), threading.Event()


@pytest.mark.slow
def test_other_requests_are_handled_while_one_is_checked(
    app: Sereno, served: Served, ask: Ask, subtests: pytest.Subtests
) -> None:
    """The check of the first request waits until `/livez` has responded."""

    @app.task
    def work(slow: Slow) -> None: ...

    app.event("slow", Slow, channels=["in_app"])
    client, size = ask("admin"), {"size": 1}
    definition = {"task": "work", "args": {"slow": size}, "when": DAILY}
    sent_requests: tuple[tuple[str, str, dict[str, Any]], ...] = (
        ("POST", "/jobs", {"task": "work", "arguments": {"slow": size}}),
        ("PUT", "/schedules/one", definition),
        ("POST", "/schedules/import", {"schedules": [{**definition, "key": "other"}]}),
        ("POST", "/events", {"type": "slow", "payload": size}),
    )
    for method, path, body in sent_requests:
        with subtests.test(path=path):
            CHECKING.clear()
            RESPONDED.clear()
            with ThreadPoolExecutor(1) as pool:
                sent = pool.submit(client.request, method, path, json=body)
                try:
                    assert CHECKING.wait(60)
                    assert httpx.get(f"{served.url}/livez", **PLAIN).status_code == 200
                finally:
                    RESPONDED.set()
                assert sent.result().is_success, sent.result().text


def test_the_library_limits_number_and_length_of_tags(app: Sereno) -> None:
    @app.task
    def work() -> None: ...

    for tags in (TOO_MANY, TOO_LONG):
        with pytest.raises(InvalidArguments, match="at most"):
            work.using(tags=tags)
    work.using(tags=["t" * 200] * 50).enqueue()


def test_sql_limits_number_and_length_of_tags(connection: psycopg.Connection, subtests: pytest.Subtests) -> None:
    """The function, with and without a unique key, and the tables refuse other tags."""
    for tags in (TOO_MANY, TOO_LONG, [""]):
        with subtests.test(first=tags[0][:10]):
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
    """The library, the API, the SQL function and the table refuse larger data."""
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


def test_data_that_grows_in_the_database_is_refused_as_a_request(bare_ask: Ask) -> None:
    """PostgreSQL writes a number of five characters out with three hundred digits."""
    numbers = {"data": {"all": [1e300] * 9000}}
    assert bare_ask("admin").put("/recipients/user:8", json=numbers).status_code == 422


@pytest.mark.slow
def test_a_retry_with_other_arguments_respects_the_limit_of_tags(
    app: Sereno, ask: Ask, connection: psycopg.Connection
) -> None:
    @app.task
    def work() -> None: ...

    job = work.using(tags=[f"t{number}" for number in range(50)]).enqueue()
    admin = ask("admin")
    admin.post("/jobs/cancel", json={"ids": [job.id]})
    made = admin.post(f"/jobs/{job.id}/retry", json={"arguments": {}}).json()["id"]
    (tags,) = connection.execute("select tags from sereno.jobs where id = %s", [made]).fetchone() or ([],)
    assert (len(tags), tags[-1]) == (50, f"retry-of:{job.id}")


# Responses


def pages(client: httpx.Client, path: str, **params: Any) -> list[httpx.Response]:
    """Return all pages of a list, with the largest page size."""
    found, before = [], None
    while True:
        query = {**params, "limit": 200} | ({} if before is None else {"before": before})
        answer = client.get(path, params=query)
        assert answer.status_code == 200, (path, answer.text[:300])
        found.append(answer)
        before = answer.json()["next"]
        if before is None:
            return found


def assert_all_are_small(answers: list[httpx.Response], ids: list[int]) -> None:
    """Check that each row is on one page, in order, and that no page is much larger than its bound."""
    assert [row["id"] for answer in answers for row in answer.json()["items"]] == ids
    assert max(len(answer.content) for answer in answers) < LARGEST_PAGE + LARGEST_ROW
    assert len(answers) > 1


LARGEST_ROW = 1_100_000


@pytest.mark.slow
def test_a_page_of_an_inbox_is_bounded_in_bytes(app: Sereno, ask: Ask, connection: psycopg.Connection) -> None:
    """A hundred messages of 200 KB made a page of 20 MB."""
    app.recipients.upsert("user:7")
    connection.execute(
        "insert into sereno.inbox (recipient_id, delivery_id, event, title, body, data) "
        "select r.id, n, 'e', 't', case when n = 50 then repeat('x', 1000000) else repeat('é', 50000) end, "
        "       jsonb_build_object('text', repeat('y', 100000)) "
        "from sereno.recipients r, generate_series(1, 100) n"
    )
    ids = [row[0] for row in connection.execute("select id from sereno.inbox order by id desc").fetchall()]
    admin = ask("admin")
    assert_all_are_small(pages(admin, "/inbox", recipient="user:7"), ids)
    second = admin.get("/inbox", params={"recipient": "user:7", "page": 2, "page_size": 10}).json()
    assert [row["id"] for row in second["items"]] == ids[10:20]
    assert second["next"] == ids[19]
    # Library calls have no such limit: the caller says how many rows it wants.
    assert [row.id for row in app.inbox.list("user:7", most=100)] == ids


@pytest.mark.slow
def test_a_page_of_the_audit_is_bounded_in_bytes(ask: Ask, connection: psycopg.Connection) -> None:
    """The audit contains sources of templates and arguments."""
    admin = ask("admin")
    connection.execute(
        "insert into sereno.audit (actor, action, subject, detail) "
        "select 'a', 'template.set', 's', jsonb_build_object('source', repeat('y', 65000)) from generate_series(1, 150)"
    )
    ids = [row[0] for row in connection.execute("select id from sereno.audit order by id desc").fetchall()]
    assert_all_are_small(pages(admin, "/audit"), ids)
    mine = [row[0] for row in connection.execute("select id from sereno.audit where actor = 'a' order by id desc")]
    assert_all_are_small(pages(admin, "/audit", actor="a"), mine)
    second = admin.get("/audit", params={"actor": "a", "page": 2, "page_size": 10}).json()
    assert [row["id"] for row in second["items"]] == mine[10:20]


@pytest.mark.slow
def test_a_list_of_templates_reads_no_sources(ask: Ask, connection: psycopg.Connection) -> None:
    ask("admin").put("/templates/e/email/body", json={"source": "é" * 1000})
    (line,) = ask("viewer").get("/templates").json()["items"]
    assert line["length"] == 1000


@pytest.mark.slow
def test_a_list_of_operations_shows_few_of_their_ids(app: Sereno, ask: Ask, connection: psycopg.Connection) -> None:
    """Two hundred operations with ten thousand ids each made a page of 20 MB."""
    client = ask("operator", tenant="acme")
    ids = list(range(10**9, 10**9 + 10_000))
    made = client.post("/jobs/retry", json={"ids": ids, "in_background": True})
    assert made.is_success, made.text
    (line,) = client.get("/operations").json()["items"]
    assert "bytes: open it alone" in line["wanted"]["not shown"]
    assert client.get(f"/operations/{line['id']}").json()["wanted"]["ids"] == ids


@pytest.mark.slow
def test_a_job_with_very_many_attempts_and_steps_shows_the_newest(ask: Ask, connection: psycopg.Connection) -> None:
    """A job that was retried for weeks gave a response of a gigabyte."""
    (job,) = connection.execute("select sereno.enqueue('work')").fetchone() or (0,)
    connection.execute(
        "insert into sereno.attempts (job_id, number, started_at, finished_at, outcome, traceback) "
        "select %s, n, sereno.now(), sereno.now(), 'retry', repeat('in f, line 1 ', 800) "
        "from generate_series(1, 600) as n",
        [job],
    )
    connection.execute(
        "insert into sereno.steps (job_id, name, attempt, result, done_at) "
        "select %s, n::text, 1, to_jsonb(repeat('one two ', 1250)), sereno.now() + n * interval '1 ms' "
        "from generate_series(1, 600) as n",
        [job],
    )
    answer = ask("admin").get(f"/jobs/{job}")
    assert answer.status_code == 200
    assert len(answer.content) < 3 * LARGEST_PAGE
    assert len(answer.json()["attempts"]) < 600
    assert len(answer.json()["steps"]) < 600
    assert answer.json()["attempts"][-1]["number"] == 600
    assert answer.json()["steps"][-1]["name"] == "600"


# Lists without pages, because they are short in every installation, with the statement that fills each.
WHOLE_LISTS = {
    "/alerts/rules": "insert into sereno.alert_rules (name, targets, changed_by) select n::text, '[]', 'me'",
    "/channels": "insert into sereno.channel_pauses (channel, account, reason) select 'email', n::text, 'slow'",
    "/pauses": "insert into sereno.pauses (kind, name, paused_by) select 'tenant', n::text, 'me'",
    "/preferences": "insert into sereno.preferences (event, wanted) select 'e' || n, false",
    "/templates": "insert into sereno.templates (event, channel, part, source, changed_by) "
    "select 'e' || n, 'email', 'body', 'x', 'me'",
    "/tokens": "insert into sereno.tokens (name, hash, role, created_by) "
    "select n::text, decode(md5(n::text), 'hex'), 'viewer', 'me'",
    "/weights": "insert into sereno.weights (key, weight) select n::text, 2",
    "/workers": "insert into sereno.sessions (host, pid, version, queues, tasks, lease_until) "
    "select 'h', n, '1', '{}', '{}', sereno.now() + interval '1 hour'",
}
# Lists that are as long as something else: settings and tasks of the code, days of the archive, queues in use.
# The queries of /attention, /procedures, /searches and /traces have limits of their own.
FIXED_LISTS = {
    "/archive/days",
    "/archive/whereabouts",
    "/attention",
    "/figures/channels",
    "/procedures",
    "/queues",
    "/searches/{list_name}",
    "/searches/{list_name}/fields",
    "/settings",
    "/tasks",
    "/tasks/parameters",
    "/traces",
}
MOST_ROWS = 1000


def test_a_pause_beyond_the_limit_of_the_list_is_found(app: Sereno, connection: psycopg.Connection, ask: Ask) -> None:
    """The tenant's own list and the explanation of a waiting job show it."""

    @app.task
    def work() -> None: ...

    connection.execute(f"{WHOLE_LISTS['/pauses']} from generate_series(1, 3000) as n".encode())
    client, job = ask("operator", tenant="z"), work.using(tenant="z").enqueue()
    assert client.post("/tenants/z/pause").is_success
    assert [pause["name"] for pause in client.get("/pauses").json()["items"]] == ["z"]
    assert "paused" in " ".join(client.get(f"/jobs/{job.id}/why").json()["sentences"])
    connection.execute("update sereno.pauses set by_tenant = false where name = 'z'")
    assert client.post("/tenants/z/resume").status_code == 403


@pytest.mark.slow
def test_a_list_without_pages_is_bounded_in_rows(
    connection: psycopg.Connection, ask: Ask, subtests: pytest.Subtests
) -> None:
    client = ask("admin")
    for path, insert in WHOLE_LISTS.items():
        with subtests.test(path=path):
            most = templates.MOST_ROWS if path == "/templates" else MOST_ROWS
            connection.execute(f"{insert} from generate_series(1, {most + 1000}) as n".encode())
            answer = client.get(path)
            assert answer.status_code == 200, answer.text[:300]
            found = answer.json()
            rows = found if isinstance(found, list) else found["items"]
            assert sum(1 + len(row.get("pauses") or ()) for row in rows) <= most + 20
            assert len(answer.content) < LARGEST_PAGE


def test_every_list_has_pages_or_a_bound(document: Document) -> None:
    def resolved(schema: dict[str, Any]) -> dict[str, Any]:
        while "$ref" in schema:
            schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        return schema

    unbounded = []
    for path, operations in document["paths"].items():
        if (operation := operations.get("get")) is None:
            continue
        answer = operation["responses"].get("200", {}).get("content", {}).get("application/json")
        schema = resolved(answer["schema"]) if answer else {}
        if schema.get("type") != "array" and "items" not in schema.get("properties", {}):
            continue
        limits = [
            parameter["schema"].get("maximum")
            for parameter in operation.get("parameters", ())
            if parameter["name"] == "limit"
        ]
        if not any(limits) and path not in WHOLE_LISTS | dict.fromkeys(FIXED_LISTS):
            unbounded.append(path)
    assert not unbounded
