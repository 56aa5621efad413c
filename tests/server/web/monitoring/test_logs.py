"""The log page: its search is in the query, it shows details of one line, and a tenant sees only its own lines."""

from collections.abc import Callable
from typing import Any

import httpx
import psycopg
import pytest
from playwright.sync_api import Page, expect

from tests.facts import one
from tests.plain_http import NO_CERTIFICATES
from tests.server.api.conftest import Ask, Served
from tests.server.web.visit import Visits

InspectPage = Callable[[Page, str], None]
Get = Callable[..., httpx.Response]
HOSTILE = "<img src=x onerror=alert(1)> of-bob-alone"
TRACEBACK = 'Traceback (most recent call last):\n  File "/srv/shop.py", line 4, in pay\n    charge()\nValueError: <b>no'


@pytest.fixture
def get(ask: Ask, served: Served) -> Get:
    """Get a page without a browser."""

    def page(path: str, of: str | None = None, **params: Any) -> httpx.Response:
        headers = {"Authorization": ask("viewer", of).headers["Authorization"]}
        options: dict[str, Any] = {"verify": NO_CERTIFICATES, "trust_env": False, "timeout": 30}
        return httpx.get(f"{served.url}/{path}", params=params, headers=headers, **options)

    return page


@pytest.fixture
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


def test_the_search_of_the_log_is_in_the_query(get: Get, lines: list[int]) -> None:
    assert "1 errors among the newest 2 lines." in get("logs").text
    assert _rows(get("logs", q="level:error")) == 1
    assert _rows(get("logs", q="slow")) == 1
    assert _rows(get("logs", tenant="ann")) == 1
    assert "No line matches." in get("logs", q="event:nothing").text
    assert 'value="level:error"' in get("logs", q="level:error").text


@pytest.mark.parametrize("q", ["level:loud", "job:x", 'event:"open', "nothing:here", "\x00", "x" * 2500])
def test_an_invalid_search_is_explained(get: Get, q: str) -> None:
    answer = get("logs", q=q)
    assert answer.status_code == 200
    assert "The search is invalid." in answer.text


def test_a_log_line_is_shown_with_all_its_fields(get: Get, lines: list[int]) -> None:
    text = get("logs", line=lines[1]).text
    assert "/srv/shop.py:4" in text
    assert "&lt;i&gt;7" in text
    assert HOSTILE not in text
    assert "<b>no" not in text
    for wrong in ("999999", "x", "9" * 40, "-1"):
        assert "There is no line" in get("logs", line=wrong).text


def test_a_tenant_sees_only_its_own_log_lines(get: Get, lines: list[int]) -> None:
    text = get("logs", "ann", line=lines[1]).text
    assert "of-bob-alone" not in text
    assert "There is no line" in text
    assert _rows(get("logs", "ann")) == 1
    assert get("logs", "ann", tenant="bob").status_code == 404
    assert get("logs", "ann", q="tenant:bob").status_code == 404


def test_a_page_without_log_lines(get: Get) -> None:
    assert "No log lines." in get("logs").text


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


def test_the_log_page_is_accessible_dark_and_on_a_phone(
    browse: Visits, inspect_page: InspectPage, lines: list[int]
) -> None:
    inspect_page(browse(f"logs?line={lines[1]}", dark=True, width=375), "logs")
