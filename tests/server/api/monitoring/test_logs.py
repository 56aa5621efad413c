"""The central log over HTTP: lines are searched, and a tenant sees only its own."""

import logging

import psycopg
import pytest

from sereno import Sereno
from sereno.telemetry import central_log
from sereno.telemetry.log_record import as_line
from tests.server.api.conftest import Ask


@pytest.fixture
def lines(app: Sereno, connection: psycopg.Connection) -> list[int]:
    """Lines of tenant a, of tenant b, and without a tenant."""
    stored = []
    for tenant, message in (("a", "menu is slow"), ("b", "bill is slow"), (None, "lease is lost")):
        error = ValueError(message)
        record = logging.LogRecord("sereno", logging.ERROR, "", 0, message, (), (ValueError, error, None))
        record.sereno_fields = {"tenant": tenant, "job_id": 7, "trace_id": "t-1", "secret": "s"}
        stored.append(as_line(record, 1.0))
    app.database.run(central_log.add(stored, 1.0))
    return [row[0] for row in connection.execute("select id from sereno.logs order by id")]


def test_log_lines_are_searched_and_listed_in_pages(ask: Ask, lines: list[int]) -> None:
    client = ask("viewer")
    first = client.get("/logs", params={"limit": 2}).json()
    assert ([each["id"] for each in first["items"]], first["next"]) == (lines[:0:-1], lines[1])
    rest = client.get("/logs", params={"limit": 2, "before": first["next"]}).json()
    assert ([each["id"] for each in rest["items"]], rest["next"]) == (lines[:1], None)
    found = client.get("/logs", params={"q": "level:error job:7 trace:t-1 at:1h.. slow -tenant:b"}).json()["items"]
    assert [each["id"] for each in found] == lines[:1]
    assert (found[0]["message"], found[0]["context"]) == ("menu is slow", {"secret": "********"})
    assert "traceback" not in found[0]


def test_a_log_line_is_shown_with_its_traceback(ask: Ask, lines: list[int]) -> None:
    client = ask("viewer")
    assert client.get(f"/logs/{lines[0]}").json()["traceback"] == "ValueError: menu is slow\n"
    missing = client.get("/logs/999999")
    assert missing.status_code == 404
    assert missing.json()["detail"] == "there is no line 999999 in the log, or you have no access to it"


def test_a_tenant_sees_only_its_own_log_lines(ask: Ask, lines: list[int]) -> None:
    client = ask("viewer", tenant="a")
    for search in ("", "job:7", "trace:t-1", "tenant:a", "tenant:a,b", "is", "at:1h..", "-event:x"):
        found = client.get("/logs", params={"q": search}).json()["items"]
        assert [each["id"] for each in found] == lines[:1], search
    assert client.get("/logs", params={"q": "-tenant:*"}).json()["items"] == []
    assert client.get("/logs", params={"q": "tenant:b"}).status_code == 404
    assert client.get(f"/logs/{lines[0]}").status_code == 200
    assert [client.get(f"/logs/{line}").status_code for line in lines[1:]] == [404, 404]


def test_log_requests_that_are_invalid_or_without_a_token_are_refused(ask: Ask, lines: list[int]) -> None:
    assert ask(None).get("/logs").status_code == 401
    client = ask("viewer")
    for answer in (
        client.get("/logs", params={"q": "x" * 2001}),
        client.get("/logs", params={"q": "job:one"}),
        client.get("/logs", params={"q": "a\x00b"}),
        client.get("/logs", params={"limit": 0}),
        client.get("/logs/one"),
        client.get(f"/logs/{2**63}"),
    ):
        assert answer.status_code == 422, answer.text
        assert answer.headers["content-type"] == "application/problem+json"
