"""The pages of tenants: a list with the share of each, and a page of one tenant for its users and for operators.

All tests share their rows.
"""

from html import unescape
from urllib.parse import quote_plus

import pytest
from playwright.sync_api import expect

from sereno import Sereno
from tests.server.web.html_reader import Read
from tests.server.web.monitoring.tenant_rows import HOSTILE, create_tenants
from tests.server.web.shared_site import app, ask, connection, database_url, served
from tests.server.web.visit import InspectPage, Visits

__all__ = ["app", "ask", "connection", "database_url", "served"]


@pytest.fixture(scope="module")
def tenants(app: Sereno) -> None:
    create_tenants(app)


def test_shares_of_tenants_are_shown(read: Read, tenants: None) -> None:
    raw = read("tenants").text
    page = unescape(raw)
    assert "ann took 80 % of the worker time." in page
    assert "80.0 %" in page
    assert page.index('data-focus="tenant ann"') < page.index('data-focus="tenant bob"')
    assert f"tenant?name={quote_plus(HOSTILE)}" in page
    assert HOSTILE not in raw
    assert "schedules?tenant=ann" in page


def test_tenants_are_searched_and_sorted(read: Read, tenants: None) -> None:
    assert 'data-focus="tenant bob"' not in read("tenants", q="AN").text
    assert 'data-focus="tenant ann"' in read("tenants", q="AN").text
    assert 'data-focus="tenant ann"' not in read("tenants", q="%").text
    assert "No tenant matches." in read("tenants", q="_").text
    assert "tenant?name=zed" in read("tenants", q="zed").text
    by_name = read("tenants", sort="name").text
    assert by_name.index('data-focus="tenant ann"') < by_name.index('data-focus="tenant bob"')
    for sort in ("failed", "deliveries", "jobs", "nonsense"):
        assert 'data-focus="tenant ann"' in read("tenants", sort=sort, after="x").text
    assert 'data-focus="tenant ann"' not in read("tenants", after=1).text
    assert read("tenants", q="\x00").status_code == 422


def test_the_page_of_a_tenant_shows_only_its_rows(read: Read, tenants: None) -> None:
    page = unescape(read("tenant", name="ann").text)
    assert "menu:ann" in page
    assert "menu:bob" not in page
    assert "50.0 % failed" in page
    assert "80.0 % of the worker time" in page
    assert "jobs?q=state%3Aready&tenant=ann" in page
    assert "error?fingerprint=00000000000a" in page
    assert "00000000000b" not in page
    assert HOSTILE not in read("tenant", name=HOSTILE).text


def test_a_tenants_user_sees_only_that_tenant(read: Read, tenants: None) -> None:
    assert read("tenants", "admin", "ann").headers["location"] == "./tenant?name=ann"
    assert read("", "admin", "ann").headers["location"] == "./tenant?name=ann"
    for answer in (read("tenant", "viewer", "ann"), read("tenant", "viewer", "ann", name="ann")):
        page = unescape(answer.text)
        assert "menu:ann" in page
        assert "state%3Adead+fingerprint%3A00000000000a" in page
        assert "bob" not in page
        assert "error?fingerprint" not in page
        assert "of the worker time" not in page
        assert "tenants" not in page.partition("<main")[2]
    other = read("tenant", "admin", "ann", name="bob")
    assert (other.status_code, "menu:bob" in other.text) == (404, False)


@pytest.mark.slow
def test_the_tenant_pages_are_accessible(browse: Visits, inspect_page: InspectPage, tenants: None) -> None:
    inspect_page(browse("tenants", "viewer"), "tenants")
    page = browse("tenant?name=ann", "viewer", dark=True, width=375, language="pt")
    expect(page.locator("h1")).to_have_text("ann: tudo está bem.")
    inspect_page(page, "tenant")
