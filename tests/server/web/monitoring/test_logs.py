"""The log page: its search is in the query, it shows details of one line, and a tenant sees only its own lines."""

import httpx
import psycopg
import pytest
from playwright.sync_api import expect

from tests.facts import one
from tests.server.web.html_reader import Read
from tests.server.web.shared_site import app, ask, connection, database_url, served
from tests.server.web.visit import InspectPage, Visits

__all__ = ["app", "ask", "connection", "database_url", "served"]

HOSTILE = "<img src=x onerror=alert(1)> of-bob-alone"
TRACEBACK = 'Traceback (most recent call last):\n  File "/srv/shop.py", line 4, in pay\n    charge()\nValueError: <b>no'


@pytest.fixture(scope="module")
def lines(connection: psycopg.Connection) -> list[int]:
    """A warning of ann and an error of bob."""
    rows = (("warning", "shop", "slow", "ann", None), ("error", "job.dead", HOSTILE, "bob", TRACEBACK))
    return [
        one(
            connection,
            "insert into sereno.logs (at, level, event, message, tenant, context, traceback) "
            'values (sereno.now(), %s, %s, %s, %s, \'{"basket": "<i>7"}\', %s) returning id',
            *each,
        )
        for each in rows
    ]


def _rows(answer: httpx.Response) -> int:
    return answer.text.count("<tr data-open")


def test_the_search_of_the_log_is_in_the_query(read: Read, lines: list[int]) -> None:
    assert "1 errors among the newest 2 lines." in read("logs").text
    assert _rows(read("logs", q="level:error")) == 1
    assert _rows(read("logs", q="slow")) == 1
    assert _rows(read("logs", tenant="ann")) == 1
    assert "No line matches." in read("logs", q="event:nothing").text
    assert 'value="level:error"' in read("logs", q="level:error").text


def test_an_invalid_search_is_explained(read: Read, subtests: pytest.Subtests) -> None:
    for q in ("level:loud", "job:x", 'event:"open', "nothing:here", "\x00", "x" * 2500):
        with subtests.test(q=q[:20]):
            answer = read("logs", q=q)
            assert answer.status_code == 200
            assert "The search is invalid." in answer.text


def test_a_log_line_is_shown_with_all_its_fields(read: Read, lines: list[int]) -> None:
    text = read("logs", line=lines[1]).text
    assert "/srv/shop.py:4" in text
    assert "&lt;i&gt;7" in text
    assert HOSTILE not in text
    assert "<b>no" not in text
    for wrong in ("999999", "x", "9" * 40, "-1"):
        assert "There is no line" in read("logs", line=wrong).text


def test_a_tenant_sees_only_its_own_log_lines(read: Read, lines: list[int]) -> None:
    text = read("logs", "viewer", "ann", line=lines[1]).text
    assert "of-bob-alone" not in text
    assert "There is no line" in text
    assert _rows(read("logs", "viewer", "ann")) == 1
    assert read("logs", "viewer", "ann", tenant="bob").status_code == 404
    assert read("logs", "viewer", "ann", q="tenant:bob").status_code == 404


@pytest.mark.slow
@pytest.mark.quick
def test_a_log_line_is_opened_and_closed(browse: Visits, inspect_page: InspectPage, lines: list[int]) -> None:
    page = browse("logs", "viewer")
    page.locator(f"a[data-focus='line {lines[1]}']").click()
    expect(page.locator(".drawer")).to_contain_text("charge()")
    inspect_page(page, "logs")
    expect(page.locator("html[data-ready]")).to_have_count(1)
    page.keyboard.press("Escape")
    expect(page.locator(".drawer")).to_have_count(0)
    page.get_by_role("link", name="warning").first.click()
    expect(page.locator("#log-rows tbody tr")).to_have_count(1)


@pytest.mark.slow
def test_the_log_page_is_accessible_dark_and_on_a_phone(
    browse: Visits, inspect_page: InspectPage, lines: list[int]
) -> None:
    inspect_page(browse(f"logs?line={lines[1]}", dark=True, width=375), "logs")
