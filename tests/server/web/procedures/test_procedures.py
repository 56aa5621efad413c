"""The page of procedures lists what jobs may call, and an admin revokes it."""

from html import unescape

import psycopg
import pytest
from playwright.sync_api import expect

from sereno import Sereno
from sereno.procedures import operations as procedures
from sereno.procedures.procedure import Parameter, ProcedureSignature
from tests.facts import one, until
from tests.server.web.html_reader import Read
from tests.server.web.visit import InspectPage, Visits

HOSTILE = "<img src=x onerror=alert(1)>\"'/ {{7*7}}%"


@pytest.fixture
def allowed(app: Sereno, connection: psycopg.Connection) -> None:
    for name in ("close_day", HOSTILE):
        signature = ProcedureSignature("function", "reporting", name, (Parameter("day", "date"),), "integer")
        app.database.run(procedures.allow("here", signature, note=f"why {name}", actor="maria"))
    connection.execute(
        "insert into sereno.procedure_runs (job_id, attempt, target, name, seconds, result) "
        "values (4711, 1, 'here', 'reporting.close_day', 1.5, '{}')"
    )


def test_allowed_procedures_are_listed(read: Read, allowed: None) -> None:
    raw = read("procedures").text
    page = unescape(raw)
    assert "Jobs may call 2 stored procedures." in page
    assert "function reporting.close_day(day date) returns integer" in page
    assert "jobs?job=4711" in page
    assert HOSTILE not in raw
    assert HOSTILE.replace('"', '""') in page


@pytest.mark.slow
def test_a_procedure_is_revoked(
    browse: Visits, inspect_page: InspectPage, allowed: None, connection: psycopg.Connection
) -> None:
    page = browse("procedures")
    inspect_page(page, "procedures")
    expect(page.get_by_role("heading", level=1)).to_have_text("Jobs may call 2 stored procedures.")
    page.get_by_role("row", name="reporting.close_day").get_by_role("button", name="Revoke").click()
    page.locator("#ask button.go").click()
    until(lambda: one(connection, "select count(*) from sereno.procedures") == 1)
    expect(page.get_by_role("heading", level=1)).to_have_text("Jobs may call one stored procedure.")
