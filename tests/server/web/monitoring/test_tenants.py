"""The pages of tenants: a list with the share of each, and a page of one tenant for its users and for operators."""

from collections.abc import Callable
from html import unescape
from urllib.parse import quote_plus

import psycopg
import pytest
from playwright.sync_api import Page, expect

from sereno import Sereno
from sereno.error_text import FailureText
from sereno.jobs.queries import error_groups, minute_stats
from sereno.schedules.bulk_write import described, write
from sereno.telemetry.metrics import MetricTally
from tests.facts import one, until
from tests.server.api.conftest import Ask, Served
from tests.server.web.html_reader import Read, reader
from tests.server.web.visit import Visits

InspectPage = Callable[[Page, str], None]

DAILY = {"kind": "daily", "at": "03:00", "tz": "Europe/Riga"}
HOSTILE = "<img src=x onerror=alert(1)>\"'/ {{7*7}}%"


@pytest.fixture
def read(ask: Ask, served: Served) -> Read:
    return reader(ask, served)


@pytest.fixture
def tenants(app: Sereno) -> None:
    """Tenant ann has most of the work, bob has a little, and a third tenant has a hostile name."""

    @app.task
    def work(number: int = 0) -> None: ...

    tally = MetricTally()
    for tenant, seconds, outcome in (("ann", 60.0, "succeeded"), ("ann", 20.0, "dead"), ("bob", 5.0, "succeeded")):
        tally.job("default", "work", outcome, 0.1, seconds, tenant)
    tally.job("default", "work", "succeeded", 0.1, 5.0, HOSTILE)
    tally.job("default", "work", "succeeded", 0.1, 10.0)
    tally.failed(FailureText("00000000000a", "work", "OSError", "secret of bob", "shop.py:work"), 2, "ann")
    tally.failed(FailureText("00000000000b", "work", "ValueError", "secret of bob", "shop.py:work"), 2, "bob")
    app.database.run(minute_stats.add(tally))
    app.database.run(error_groups.add(tally))
    for tenant in ("ann", "ann", "bob"):
        work.using(tenant=tenant).enqueue(1)
    for key, tenant in (("menu:ann", "ann"), ("menu:bob", "bob")):
        given = {"key": key, "task": "work", "when": DAILY, "tenant": tenant}
        app.database.run(write([described(given, app.new_job)], actor="maria"))


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


def test_a_list_without_tenants(read: Read) -> None:
    assert "No tenant yet." in read("tenants").text
    assert "Nothing is known of zed." in read("tenant", name="zed").text
    assert read("tenant").headers["location"] == "./tenants"
    assert read("tenant", name="x" * 501).status_code == 422


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


def test_a_tenant_is_paused_and_resumed(
    browse: Visits, inspect_page: InspectPage, tenants: None, connection: psycopg.Connection
) -> None:
    page = browse(f"tenant?name={quote_plus(HOSTILE)}", "operator", HOSTILE)
    page.get_by_role("button", name="Pause").click()
    page.locator("#ask").get_by_role("button", name="Confirm").click()
    expect(page.locator("h1")).to_contain_text("is paused: none of its jobs is started.")
    assert one(connection, "select name from sereno.pauses where kind = 'tenant'") == HOSTILE
    inspect_page(page, "tenant")
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("h1")).not_to_contain_text("is paused")
    until(lambda: one(connection, "select count(*) from sereno.pauses") == 0)


def test_the_tenant_pages_are_accessible(browse: Visits, inspect_page: InspectPage, tenants: None) -> None:
    inspect_page(browse("tenants", "viewer"), "tenants")
    page = browse("tenant?name=ann", "viewer", dark=True, width=375, language="pt")
    expect(page.locator("h1")).to_have_text("ann: tudo está bem.")
    inspect_page(page, "tenant")
