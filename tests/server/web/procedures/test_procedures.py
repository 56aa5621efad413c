"""The page of procedures lists what jobs may call, and an admin revokes it."""

from collections.abc import Callable
from html import unescape

import psycopg
import pytest
from playwright.sync_api import Page, expect

from sereno import Sereno
from sereno.procedures import operations as procedures
from sereno.procedures.procedure import Parameter, ProcedureSignature
from tests.facts import one, until
from tests.server.api.conftest import Ask, Served
from tests.server.web.html_reader import Read, reader
from tests.server.web.visit import Visits

InspectPage = Callable[[Page, str], None]

HOSTILE = "<img src=x onerror=alert(1)>\"'/ {{7*7}}%"


@pytest.fixture
def read(ask: Ask, served: Served) -> Read:
    return reader(ask, served)


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


def test_an_empty_list_says_how_to_allow_a_procedure(read: Read) -> None:
    assert "sereno procedure allow" in read("procedures").text


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
